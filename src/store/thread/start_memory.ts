import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * When the start of a service is over. A collection during the start would delay the calls of the store for which the
 * service waits. A thread that ends sooner, as in most tests, needs no collection.
 */
const START_MS = 1_000;

/**
 * V8 drops the bytecode of a function that has not run during this many collections. This is the default. While it is
 * set to 1, two collections drop all bytecode that only the start ran, 3 MiB. A function that runs again is compiled
 * again.
 */
const BYTECODE_AGE = 6;

/** Calls `releaseStartMemory` when the start of the service is over. */
export function releaseStartMemoryLater(): void {
  setTimeout(releaseStartMemory, START_MS).unref();
}

/**
 * Gives memory that only the start of a thread needed back to the system. The call stops the calling thread for about
 * 40 ms.
 *
 * A start makes V8 grow its young generation, and V8 keeps the empty pages: 8 MiB in the thread that serves, 4 MiB in
 * the thread of the store. Only V8's collection of last resort releases these pages, and only a call of `gc` like the
 * one below starts that collection.
 *
 * The collection also makes V8 forget each layout that no object has at that moment, and everything that V8 has learned
 * about objects with such a layout. Ticks have such a layout, because Node's queue of ticks is empty now. So this
 * function puts one tick into the queue. Otherwise `nextTick` would take 4 % of the thread that serves, and not 0.6 %.
 *
 * V8's flags belong to the whole process. The flag stays set, because another thread may be about to make the context
 * that needs the flag.
 */
export function releaseStartMemory(): void {
  setFlagsFromString('--expose-gc');
  setFlagsFromString('--bytecode-old-age=1');
  const gc = runInNewContext('gc') as (options: { type: 'major'; flavor: 'last-resort' }) => void;
  process.nextTick(() => {});
  for (let collection = 0; collection < 2; collection++) gc({ type: 'major', flavor: 'last-resort' });
  setFlagsFromString(`--bytecode-old-age=${BYTECODE_AGE}`);
}
