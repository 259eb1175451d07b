import TinyQueue from 'tinyqueue';

interface Event {
  at: number;
  order: number;
  run: (() => void) | null;
}

export const START_MS = Date.UTC(2026, 0, 1);

/**
 * The virtual time of one world. The caller moves it event by event. Unlike test/support/virtual_clock.ts this clock
 * never waits for the event loop, so many worlds share each turn of the loop. That makes a thousand worlds a second
 * possible.
 */
export class SteppedClock {
  now = START_MS;
  #order = 0;
  readonly #events = new TinyQueue<Event>([], (a, b) => a.at - b.at || a.order - b.order);

  /** Runs something later. Returns a function that cancels this. */
  after(delay_ms: number, run: () => void): () => void {
    const event: Event = { at: this.now + Math.max(0, delay_ms), order: this.#order++, run };
    this.#events.push(event);
    return () => void (event.run = null);
  }

  /** Runs the next event; false when there is none. Promises must settle before the next step. */
  step(): boolean {
    for (let event = this.#events.pop(); event !== undefined; event = this.#events.pop()) {
      if (event.run === null) continue;
      this.now = event.at;
      event.run();
      return true;
    }
    return false;
  }
}
