import { NUMBERS_PER_MS } from '../../../domain/id.ts';

/**
 * Remembers the highest numbers that the database gave to messages and deliveries of this node. A database may go back
 * in time: a standby without the last commits took over, or an older backup was restored. Such a database does not know
 * the last numbers that were given. If its clock is behind too, it may give these numbers again. Ids are made from
 * these numbers, and receivers treat two pushes with one id as the same push.
 */
export class GivenNumbers {
  readonly #now_ms: () => number;
  #last = 0;
  /**
   * How far the clock of the database is ahead of the clock of this node, counted in numbers: numbers follow the clock
   * of the database.
   */
  #ahead = -Infinity;

  /** @param now_ms the time of a clock that nobody can set */
  constructor(now_ms: () => number = () => performance.now()) {
    this.#now_ms = now_ms;
  }

  /** Records a number that the database gave. */
  given(number: number): void {
    this.#last = Math.max(this.#last, number);
    this.#ahead = Math.max(this.#ahead, number - this.#now_ms() * NUMBERS_PER_MS);
  }

  /** The highest number that the database gave; 0 before the first. */
  get last(): number {
    return this.#last;
  }

  /** The number that the clock of the database has reached by now, at least; 0 before this node got a number. */
  get reached(): number {
    return this.#last === 0 ? 0 : Math.floor(this.#ahead + this.#now_ms() * NUMBERS_PER_MS);
  }
}
