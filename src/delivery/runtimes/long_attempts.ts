/**
 * How many long attempts may run at a time, over all instances. Each attempt holds a connection and its message while
 * an agent thinks.
 */
const LONG_MAX = 1_000;

/**
 * Bounds the attempts that may take long. They do not count against the limits of short attempts, so they have limits
 * of their own: for all instances together, and for each instance.
 */
export class LongAttempts {
  readonly #of_instance_max: number;
  readonly #onReady: (instance_id: string) => void;
  readonly #by_instance = new Map<string, number>();
  /** Instances that found no room. */
  readonly #waiting = new Set<string>();
  #count = 0;

  /**
   * @param of_instance_max how many long attempts one instance may have
   * @param onReady called with an instance that found no room before, when there may be room now
   */
  constructor(of_instance_max: number, onReady: (instance_id: string) => void) {
    this.#of_instance_max = of_instance_max;
    this.#onReady = onReady;
  }

  hasRoom(instance_id: string): boolean {
    const has_room = this.#count < LONG_MAX && (this.#by_instance.get(instance_id) ?? 0) < this.#of_instance_max;
    if (!has_room) this.#waiting.add(instance_id);
    return has_room;
  }

  start(instance_id: string): void {
    this.#count++;
    this.#by_instance.set(instance_id, (this.#by_instance.get(instance_id) ?? 0) + 1);
  }

  end(instance_id: string): void {
    const was_full = this.#count-- >= LONG_MAX;
    const left = (this.#by_instance.get(instance_id) ?? 1) - 1;
    if (left === 0) this.#by_instance.delete(instance_id);
    else this.#by_instance.set(instance_id, left);
    const ready = was_full ? [...this.#waiting] : this.#waiting.has(instance_id) ? [instance_id] : [];
    for (const each of ready) {
      this.#waiting.delete(each);
      this.#onReady(each);
    }
  }
}
