import { GenerationCache } from '../../domain/generation_cache.ts';

/** Meetings for which the start of the seen range is kept. */
const MEETINGS_MAX = 50_000;

/**
 * What a node of a cluster has seen of each meeting. It stores some messages itself, and learns which ones others
 * stored. While no message is missing, the messages form one range. A message of that range that is in no lane of this
 * node is not pending.
 */
export class SeenRanges {
  #ranges = new GenerationCache<{ from: number; to: number }>(MEETINGS_MAX);

  /**
   * The messages from one seq to another were seen.
   *
   * @returns the first seq of their range: from there on all messages of the meeting were seen, in their order
   */
  extend(meeting_id: string, first_seq: number, last_seq: number): number {
    const range = this.#ranges.get(meeting_id);
    const from = range?.to === first_seq - 1 ? range.from : first_seq;
    this.#ranges.set(meeting_id, { from, to: last_seq });
    return from;
  }

  /** Forgets all ranges: the next message of each meeting begins a new one. */
  clear(): void {
    this.#ranges = new GenerationCache(MEETINGS_MAX);
  }
}
