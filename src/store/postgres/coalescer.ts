import type { Call } from '../thread/thread_protocol.ts';

/** The most messages, settlements or lanes in one statement. They all wait until it ends, so it must not be long. */
const ITEMS_PER_STATEMENT_MAX = 2_000;

/** Combines calls of one kind: while one statement runs, further calls wait, and then make up the next statement. */
export class Coalescer {
  readonly #run: (calls: Call[]) => Promise<void>;
  #waiting: Call[] = [];
  #running: Promise<void> | null = null;

  constructor(run: (calls: Call[]) => Promise<void>) {
    this.#run = run;
  }

  /** Resolves when the call has its reply. */
  add(call: Call): Promise<void> {
    this.#waiting.push(call);
    this.#running ??= this.#runAll();
    return this.#running;
  }

  async #runAll(): Promise<void> {
    // Waits for the other calls of this turn of the event loop.
    await Promise.resolve();
    while (this.#waiting.length > 0) await this.#run(this.#take());
    this.#running = null;
  }

  #take(): Call[] {
    let items = 0;
    let count = 0;
    for (const call of this.#waiting) {
      if (count > 0 && items + requestsIn(call) > ITEMS_PER_STATEMENT_MAX) break;
      items += requestsIn(call);
      count++;
    }
    return this.#waiting.splice(0, count);
  }
}

/** How many messages, settlements or lanes a call has. */
function requestsIn({ args }: Call): number {
  return (args[0] as unknown[]).length;
}
