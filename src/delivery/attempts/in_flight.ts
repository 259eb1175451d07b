import type { Recipient } from '../lanes/recipient.ts';

/** Counts the attempts in flight: of all instances, of each instance, and of each partition. */
export class InFlight {
  #count = 0;
  #in_turns = 0;
  #onIdle: (() => void) | null = null;

  /** Attempts in flight, over all instances. */
  get count(): number {
    return this.#count;
  }

  /** Of these, attempts that were started in a turn. */
  get in_turns(): number {
    return this.#in_turns;
  }

  /** An attempt starts. @returns whether it counts as one of a turn, to be given to `end` */
  start(recipient: Recipient, now: number): boolean {
    if (recipient.in_flight === 0) recipient.moved_at = now;
    recipient.partition.attemptStarts();
    recipient.in_flight++;
    this.#count++;
    const is_in_turn = recipient.turn !== null;
    if (is_in_turn) this.#in_turns++;
    recipient.attempted();
    return is_in_turn;
  }

  /** An attempt ended. Its result is noted next, then `conclude` is called. */
  end(recipient: Recipient, is_in_turn: boolean, now: number, duration_ms: number): void {
    this.#count--;
    recipient.in_flight--;
    if (is_in_turn) this.#in_turns--;
    recipient.moved(now, duration_ms);
  }

  /** The result of an attempt is noted: its partition may be released. */
  conclude(recipient: Recipient): void {
    recipient.partition.attemptEnds();
    if (this.#count === 0) this.#onIdle?.();
  }

  /** Resolves when no attempt is in flight; to be called once, when no more are started. */
  async idle(): Promise<void> {
    if (this.#count === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }
}
