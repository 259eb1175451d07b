import { GenerationCache } from '../../domain/generation_cache.ts';

/** Of how many meetings it is remembered from when on all their messages were seen. */
const MEETINGS_MAX = 50_000;

/**
 * What a node of a cluster has seen of each meeting. Its messages come through any node: this one stores some itself, and is
 * told what others stored. As long as none is missing they are one range, and whatever of them is not in the lanes of this
 * node is not pending there.
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

  /** What was seen says nothing of what comes: whatever follows begins a range. */
  clear(): void {
    this.#ranges = new GenerationCache(MEETINGS_MAX);
  }
}
