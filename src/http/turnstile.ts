/** Runs a limited number of tasks at a time, in the order in which they were added. */
export class Turnstile {
  readonly #max: number;
  #running = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(max: number) {
    this.#max = max;
  }

  async pass<Result>(work: () => Promise<Result>): Promise<Result> {
    if (this.#running >= this.#max) await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    else this.#running++;
    try {
      return await work();
    } finally {
      const following = this.#waiting.shift();
      if (following === undefined) this.#running--;
      else following();
    }
  }
}
