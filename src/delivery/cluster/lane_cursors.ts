import type { Lane } from '../lanes/lane.ts';
import type { Recipient } from '../lanes/recipient.ts';

/** The most empty lanes that are remembered: of one instance, and of all instances. */
const OF_RECIPIENT_MAX = 256;
const CURSORS_MAX = 200_000;

/** What is remembered of an empty lane. */
export type LaneCursor = Pick<Lane, 'contiguous_from' | 'last_seq'>;

/**
 * The positions of empty lanes. A node of a cluster keeps them, so that the next message of a lane needs no read: another
 * node may have stored messages in between, and the position tells whether one is missing.
 */
export class LaneCursors {
  /** By recipient, then by meeting. In each inner Map, the first lane has been empty for the longest time. */
  readonly #cursors = new Map<Recipient, Map<string, LaneCursor>>();
  #count = 0;

  /** Remembers an empty lane. */
  add(recipient: Recipient, { meeting_id, contiguous_from, last_seq }: Lane): void {
    let cursors = this.#cursors.get(recipient);
    if (cursors === undefined) this.#cursors.set(recipient, (cursors = new Map()));
    if (cursors.size >= OF_RECIPIENT_MAX || this.#count >= CURSORS_MAX) {
      const [longest] = cursors.keys();
      if (longest === undefined) return;
      cursors.delete(longest);
      this.#count--;
    }
    cursors.set(meeting_id, { contiguous_from, last_seq });
    this.#count++;
  }

  /** The cursor of a lane that is about to be in memory: from then on the lane itself knows its position. */
  take(recipient: Recipient, meeting_id: string): LaneCursor | undefined {
    const cursors = this.#cursors.get(recipient);
    const cursor = cursors?.get(meeting_id);
    if (cursor === undefined) return undefined;
    cursors?.delete(meeting_id);
    this.#count--;
    return cursor;
  }

  /** Forgets the lanes of a recipient: it leaves memory, or the table may have changed. */
  drop(recipient: Recipient): void {
    this.#count -= this.#cursors.get(recipient)?.size ?? 0;
    this.#cursors.delete(recipient);
  }
}
