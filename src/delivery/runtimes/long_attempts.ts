import type { Clock } from '../clock.ts';

/**
 * How many long attempts may run at a time, over all instances. Each attempt holds a connection and its message while
 * an agent thinks.
 */
const LONG_MAX = 1_000;

/**
 * How many waiting instances are woken at a time. There may be thousands, and an attempt that ends makes room for one.
 * But some of them may have nothing to push any more.
 */
const WOKEN_MAX = 16;

/**
 * Bounds the attempts that may take long. They do not count against the limits of short attempts, so they have limits
 * of their own: for all instances together, and for each instance.
 */
export class LongAttempts {
  readonly #clock: Pick<Clock, 'soon'>;
  readonly #of_instance_max: number;
  readonly #onReady: (instance_id: string) => void;
  readonly #by_instance = new Map<string, number>();
  /** Instances that found all places taken, in the order in which they began to wait. */
  readonly #waiting = new Set<string>();
  /** Instances that had as many attempts as one instance may have. */
  readonly #full = new Set<string>();
  #count = 0;
  #wakes_soon = false;

  /**
   * @param of_instance_max how many long attempts one instance may have
   * @param onReady called with an instance that found no room before, when there may be room now
   */
  constructor(clock: Pick<Clock, 'soon'>, of_instance_max: number, onReady: (instance_id: string) => void) {
    this.#clock = clock;
    this.#of_instance_max = of_instance_max;
    this.#onReady = onReady;
  }

  hasRoom(instance_id: string): boolean {
    if (this.#count >= LONG_MAX) this.#waiting.add(instance_id);
    else if ((this.#by_instance.get(instance_id) ?? 0) >= this.#of_instance_max) this.#full.add(instance_id);
    else return true;
    return false;
  }

  start(instance_id: string): void {
    this.#count++;
    this.#by_instance.set(instance_id, (this.#by_instance.get(instance_id) ?? 0) + 1);
  }

  end(instance_id: string): void {
    this.#count--;
    const left = (this.#by_instance.get(instance_id) ?? 1) - 1;
    if (left === 0) this.#by_instance.delete(instance_id);
    else this.#by_instance.set(instance_id, left);
    if (this.#full.delete(instance_id)) this.#onReady(instance_id);
    this.#wake();
  }

  #wake(): void {
    let woken = 0;
    for (const instance_id of this.#waiting) {
      if (this.#count >= LONG_MAX) return;
      // Those that were woken may have nothing to push, so the others may get the free places later.
      if (woken++ === WOKEN_MAX) return this.#wakeSoon();
      this.#waiting.delete(instance_id);
      this.#onReady(instance_id);
    }
  }

  #wakeSoon(): void {
    if (this.#wakes_soon) return;
    this.#wakes_soon = true;
    this.#clock.soon(() => {
      this.#wakes_soon = false;
      this.#wake();
    });
  }
}
