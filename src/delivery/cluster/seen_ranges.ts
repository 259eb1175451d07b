import { GenerationCache } from '../../domain/generation_cache.ts';

/** The most meetings whose range is remembered. */
const MEETINGS_MAX = 50_000;

/**
 * The messages that a node of a cluster has seen of each meeting: those that this node stored, and those that other
 * nodes stored and this node read. As long as no message is missing in between, these messages form one range. This
 * node puts each message that it sees into its lanes. So a message of the range that is in none of its lanes has no
 * pending delivery here.
 */
export class SeenRanges {
  #ranges = new GenerationCache<{ from: number; to: number }>(MEETINGS_MAX);

  /**
   * Notes that this node saw the messages from one seq to another.
   *
   * @returns the first seq of their range: from there on all messages of the meeting were seen, in their order
   */
  extend(meeting_id: string, first_seq: number, last_seq: number): number {
    const range = this.#ranges.get(meeting_id);
    const from = range?.to === first_seq - 1 ? range.from : first_seq;
    this.#ranges.set(meeting_id, { from, to: last_seq });
    return from;
  }

  /** Forgets all ranges. The next message of each meeting begins a new range. */
  clear(): void {
    this.#ranges = new GenerationCache(MEETINGS_MAX);
  }
}
