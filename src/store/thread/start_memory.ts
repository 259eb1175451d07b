import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * When the start of a service is over. A collection during the start would delay the calls of the store for which the
 * service waits. A thread that ends sooner, as in most tests, needs no collection.
 */
const START_MS = 1_000;

/**
 * V8 drops the bytecode of a function that has not run during this many collections; 6 is V8's default. With 1, two
 * collections drop all bytecode that only the start ran, 3 MiB. When such a function runs again, V8 compiles it again.
 */
const BYTECODE_AGE = 6;

/** Calls `releaseStartMemory` when the start of the service is over. */
export function releaseStartMemoryLater(): void {
  setTimeout(releaseStartMemory, START_MS).unref();
}

/**
 * Gives back to the system the memory that only the start of a thread needed. The call stops the calling thread for
 * about 40 ms.
 *
 * A start makes V8 grow its young generation, and V8 keeps the empty pages: 8 MiB in the thread that serves, 4 MiB in
 * the thread of the store. Only V8's collection of last resort releases these pages, and only a call of `gc` like the
 * one below starts that collection.
 *
 * For each layout of objects, V8 keeps what it has learned about objects with this layout. The collection makes V8
 * forget every layout that no object has at that moment. Ticks are the entries in Node's queue for `nextTick`, and the
 * queue is empty now. So this function puts one tick into the queue, and V8 keeps the layout of ticks. Otherwise
 * `nextTick` would take 4 % of the thread that serves, and not 0.6 %.
 *
 * The flag `--expose-gc` stays set. V8's flags belong to the whole process, and another thread may be about to make the
 * context that needs this flag.
 */
export function releaseStartMemory(): void {
  setFlagsFromString('--expose-gc');
  setFlagsFromString('--bytecode-old-age=1');
  const gc = runInNewContext('gc') as (options: { type: 'major'; flavor: 'last-resort' }) => void;
  process.nextTick(() => {});
  for (let collection = 0; collection < 2; collection++) gc({ type: 'major', flavor: 'last-resort' });
  setFlagsFromString(`--bytecode-old-age=${BYTECODE_AGE}`);
}
