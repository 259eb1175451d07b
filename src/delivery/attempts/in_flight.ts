import { IntrusiveList, ListNode } from '../intrusive_list.ts';
import type { Recipient, TurnKind } from '../lanes/recipient.ts';
import { mayTakeLong, type Target } from '../transport/target.ts';

/**
 * The limits that an attempt counts against. `first`: the limits for an instance without a backlog. `long`: only the
 * limits of its transport, because the attempt may take as long as an agent thinks. Otherwise the limits of the turn.
 */
export type AttemptKind = 'first' | 'long' | TurnKind;

/**
 * An attempt in a turn hangs when it has taken this long. A receiver that does not respond costs this thread nothing, so
 * attempts that hang leave room for others. The time is longer than this thread is usually busy with other work:
 * otherwise attempts would seem to hang although their responses have arrived.
 */
export const HANGS_AFTER_MS = 100;

/** An attempt from its start to its end. */
export class StartedAttempt extends ListNode {
  readonly recipient: Recipient;
  readonly kind: AttemptKind;
  readonly started_at: number;

  constructor(recipient: Recipient, kind: AttemptKind, started_at: number) {
    super();
    this.recipient = recipient;
    this.kind = kind;
    this.started_at = started_at;
  }
}

/** Counts the attempts in flight: of all instances, of each instance, and of each partition. */
export class InFlight {
  #count = 0;
  readonly #of: Record<AttemptKind, number> = { first: 0, long: 0, trusted: 0, doubtful: 0 };
  /** The attempts in turns that `takeHanging` has not returned, in the order of their start. */
  readonly #young: Record<TurnKind, IntrusiveList<StartedAttempt>> = {
    trusted: new IntrusiveList(),
    doubtful: new IntrusiveList(),
  };
  #onIdle: (() => void) | null = null;

  /** Attempts in flight, over all instances. */
  get count(): number {
    return this.#count;
  }

  /** Attempts in flight that count against the limit of all instances. */
  get limited(): number {
    return this.#count - this.#of.long;
  }

  /** Attempts in flight that were started in a turn of this kind. */
  of(kind: TurnKind): number {
    return this.#of[kind];
  }

  /** The same, without those that `takeHanging` returned. */
  young(kind: TurnKind): number {
    return this.#young[kind].size;
  }

  get has_young(): boolean {
    return this.#young.trusted.size + this.#young.doubtful.size > 0;
  }

  /** An attempt starts. The caller gives the result to `end`. */
  start(recipient: Recipient, target: Target, now: number): StartedAttempt {
    if (recipient.in_flight === 0) recipient.moved_at = now;
    recipient.partition.attemptStarts();
    const kind = mayTakeLong(target) ? 'long' : recipient.attempts_in_turn === null ? 'first' : recipient.turn_kind;
    this.#add(recipient, kind, 1);
    recipient.attemptStarts();
    const attempt = new StartedAttempt(recipient, kind, now);
    if (kind === 'trusted' || kind === 'doubtful') this.#young[kind].add(attempt);
    return attempt;
  }

  /**
   * The recipient of an attempt that hangs, in a turn of this kind; null when there is no further one. Each attempt is
   * returned once.
   */
  takeHanging(kind: TurnKind, now: number): Recipient | null {
    const { first } = this.#young[kind];
    if (first === null || now - first.started_at < HANGS_AFTER_MS) return null;
    this.#young[kind].delete(first);
    return first.recipient;
  }

  /** An attempt ended. The caller then notes the result, if the attempt has one, and calls `resultNoted`. */
  end(attempt: StartedAttempt): void {
    attempt.list?.delete(attempt);
    this.#add(attempt.recipient, attempt.kind, -1);
    if (this.#count === 0) this.#onIdle?.();
  }

  #add(recipient: Recipient, kind: AttemptKind, change: 1 | -1): void {
    this.#count += change;
    recipient.in_flight += change;
    this.#of[kind] += change;
    if (kind === 'long') recipient.long_in_flight += change;
  }

  /** The result of an attempt is noted: the partition of the recipient may be released. */
  resultNoted(recipient: Recipient): void {
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
