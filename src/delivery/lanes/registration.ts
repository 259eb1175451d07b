import { type Instance, type InstanceHealth, NO_HEALTH } from '../../domain/instance.ts';
import { isSamePlace, type Target, targetOf } from '../transport/target.ts';

/**
 * The state of an instance's row in memory.
 *
 *   unknown ── replaced ──► current ◄──── replaced ────┐
 *                              └──── invalidated ──► stale
 *
 * No attempt starts unless the row is current.
 */
export type Freshness = 'unknown' | 'current' | 'stale';

/**
 * Whether the row is being read. `paused`: its secrets cannot be decrypted or are malformed, so it is read again later.
 */
export type Reading = 'none' | 'in_flight' | 'paused';

/**
 * The registration of an instance in memory, with its health. While this node delivers to the instance, the health in
 * memory counts, and not the health in the row.
 */
export class Registration {
  #freshness: Freshness = 'unknown';
  reading: Reading = 'none';
  #target: Target | null = null;
  #health: InstanceHealth = NO_HEALTH;
  /** Whether the health changed and is not on disk yet. */
  health_dirty = false;
  /** The `updated_at` of the registration to which the receiver responded 410; null when the receiver did not. */
  gone_as_of: number | null = null;
  /** Rises with each invalidation, and with a 410. A row that was requested before the last rise is out of date. */
  version = 0;
  /**
   * True when another node may have reset the back-off, or a change that may or may not be stored. The row shows
   * whether the back-off was reset.
   */
  may_need_reset = false;
  #resets_when_replaced = false;

  get freshness(): Freshness {
    return this.#freshness;
  }

  /** Null until the row is read. */
  get target(): Target | null {
    return this.#target;
  }

  get health(): InstanceHealth {
    return this.#health;
  }

  get isCurrent(): boolean {
    return this.#freshness === 'current';
  }

  /**
   * The row may have changed: no attempt starts until the row is read again. A pause ends, because the secrets in the
   * row may be usable now.
   */
  invalidate(): void {
    if (this.#freshness === 'current') this.#freshness = 'stale';
    this.#endPause();
    this.version++;
  }

  /**
   * Ends a pause, but does not cancel its timer. When the timer fires, its callback sees from `reading` and `version`
   * that the pause is over.
   */
  #endPause(): void {
    if (this.reading === 'paused') this.reading = 'none';
  }

  /**
   * Takes over a row. The health in the row counts only when this is the first row, or when the URL or the transport
   * changed.
   */
  replace(row: Instance): void {
    const target = targetOf(row);
    if (this.#target === null || !isSamePlace(this.#target, target)) {
      const { consecutive_failures, health_since, last_success_at, last_failure, backoff_step, backoff_until } = row;
      const health = { consecutive_failures, health_since, last_success_at, last_failure, backoff_step, backoff_until };
      this.#health = health;
    }
    // A row that is older than the 410 still says that the instance is switched on.
    if (this.gone_as_of === row.updated_at) target.switched_on = false;
    else this.gone_as_of = null;
    this.#target = target;
    this.#freshness = 'current';
    this.#endPause();
    if (this.#resets_when_replaced) this.resetBackoff();
  }

  /** Forgets the keys that sign pushes, because no push is made for now: see `Target.keys`. */
  forgetKeys(): void {
    if (this.#target !== null) this.#target.keys = null;
  }

  /** Ends the back-off. The other parts of the health stay as they are. */
  resetBackoff(): void {
    this.#resets_when_replaced = this.#target === null;
    if (this.#health.backoff_step === 0 && this.#health.backoff_until === null) return;
    this.#health = { ...this.#health, backoff_step: 0, backoff_until: null };
  }

  /**
   * Notes the health that the instance has after a push to `target`.
   *
   * @returns false when the push does not count: the URL or the transport of the instance changed meanwhile
   */
  learn(target: Target, health: InstanceHealth, is_gone: boolean): boolean {
    if (this.#target === null || !isSamePlace(this.#target, target)) return false;
    this.#health = health;
    if (is_gone && this.#target.updated_at === target.updated_at) {
      this.gone_as_of = target.updated_at;
      this.version++;
      this.#target = { ...this.#target, switched_on: false };
    }
    return true;
  }
}
