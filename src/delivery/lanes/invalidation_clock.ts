/**
 * A logical clock. Its time rises whenever deliveries may have changed in another way than by an attempt of this node.
 * An instance keeps the time of its last invalidation: rows that were requested before that time may be stale.
 */
export class InvalidationClock {
  #now = 0;

  get now(): number {
    return this.#now;
  }

  /** @returns the new time */
  tick(): number {
    return ++this.#now;
  }
}
