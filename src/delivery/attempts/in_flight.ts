import type { Recipient } from '../lanes/recipient.ts';
import { mayTakeLong, type Target } from '../transport/target.ts';

/**
 * The limits that an attempt counts against. `first`: the limits for an instance without a backlog. `in_turn`: the
 * limits for a turn. `in_hand`: only the limits of its transport, because the attempt may take as long as an agent
 * thinks.
 */
export type AttemptKind = 'first' | 'in_turn' | 'in_hand';

/** Counts the attempts in flight: of all instances, of each instance, and of each partition. */
export class InFlight {
  #count = 0;
  #in_turns = 0;
  #in_hand = 0;
  #onIdle: (() => void) | null = null;

  /** Attempts in flight, over all instances. */
  get count(): number {
    return this.#count;
  }

  /** Attempts in flight that count against the limit of all instances. */
  get limited(): number {
    return this.#count - this.#in_hand;
  }

  /** Attempts in flight that were started in a turn. */
  get in_turns(): number {
    return this.#in_turns;
  }

  /**
   * An attempt starts.
   *
   * @returns its kind, to be given to `end`
   */
  start(recipient: Recipient, target: Target, now: number): AttemptKind {
    if (recipient.in_flight === 0) recipient.moved_at = now;
    recipient.partition.attemptStarts();
    const kind = mayTakeLong(target) ? 'in_hand' : recipient.turn === null ? 'first' : 'in_turn';
    this.#add(recipient, kind, 1);
    recipient.attempted();
    return kind;
  }

  /** An attempt ended. The caller then notes the result, if the attempt has one, and calls `conclude`. */
  end(recipient: Recipient, kind: AttemptKind): void {
    this.#add(recipient, kind, -1);
    if (this.#count === 0) this.#onIdle?.();
  }

  #add(recipient: Recipient, kind: AttemptKind, change: 1 | -1): void {
    this.#count += change;
    recipient.in_flight += change;
    if (kind === 'in_turn') this.#in_turns += change;
    if (kind !== 'in_hand') return;
    this.#in_hand += change;
    recipient.in_hand += change;
  }

  /** The result of an attempt is noted: the partition of the recipient may be released. */
  conclude(recipient: Recipient): void {
    recipient.partition.attemptEnds();
  }

  /** Resolves when no attempt is in flight. Call it once, when no more attempts start. */
  async idle(): Promise<void> {
    if (this.#count === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }
}
