import { GenerationCache } from '../domain/generation_cache.ts';

/** Of how many meetings it is remembered from when on all their messages were seen. */
const MEETINGS_MAX = 50_000;

/**
 * What a node of a cluster has seen of each meeting. Its messages come through any node: this one stores some itself, and is
 * told what others stored. As long as none is missing they are a run, and whatever of them is not in the lanes of this node
 * is not pending there. (The table `runs` is something else: what one start of a node accepts.)
 */
export class Runs {
  #runs = new GenerationCache<{ from: number; to: number }>(MEETINGS_MAX);

  /**
   * The messages from one seq to another were seen.
   *
   * @returns the first seq of their run: from there on all messages of the meeting were seen, in their order
   */
  extend(meeting_id: string, first_seq: number, last_seq: number): number {
    const run = this.#runs.get(meeting_id);
    const from = run?.to === first_seq - 1 ? run.from : first_seq;
    this.#runs.set(meeting_id, { from, to: last_seq });
    return from;
  }

  /** What was seen says nothing of what comes: whatever comes next begins a run. */
  forget(): void {
    this.#runs = new GenerationCache(MEETINGS_MAX);
  }
}
