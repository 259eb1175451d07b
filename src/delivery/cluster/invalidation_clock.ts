/**
 * A logical clock: it rises whenever deliveries may have been changed by something else than an attempt of this node. What was
 * requested at an earlier time than the one of an instance's last invalidation may be stale.
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
