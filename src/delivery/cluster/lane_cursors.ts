import type { InvalidationClock } from '../lanes/invalidation_clock.ts';
import type { Lane } from '../lanes/lane.ts';
import type { Recipient } from '../lanes/recipient.ts';

/** The most cursors in memory: for one instance, and for all instances. */
const OF_RECIPIENT_MAX = 256;
const CURSORS_MAX = 200_000;

/** The cursor of an empty lane. */
export interface LaneCursor extends Pick<Lane, 'contiguous_from' | 'last_seq'> {
  /** When the lane became empty, on the invalidation clock. */
  emptied_at: number;
}

/** The empty lanes of a recipient. */
interface CursorsOfRecipient {
  /** By meeting; the first lane has been empty for the longest time. */
  by_meeting: Map<string, LaneCursor>;
  /** When the last of the forgotten lanes became empty, on the invalidation clock. */
  forgotten_at: number;
}

/**
 * The positions (seqs) of empty lanes. A node of a cluster keeps these positions, so that the next message of a lane
 * needs no read. Other nodes may have stored messages for the lane before that message. The position shows whether this
 * node missed one of these messages.
 */
export class LaneCursors {
  readonly #invalidations: InvalidationClock;
  readonly #cursors = new Map<Recipient, CursorsOfRecipient>();
  #count = 0;
  /** When the lanes of a whole recipient were last forgotten, on the invalidation clock. */
  #dropped_at = 0;

  constructor(invalidations: InvalidationClock) {
    this.#invalidations = invalidations;
  }

  /** Remembers an empty lane. */
  add(recipient: Recipient, { meeting_id, contiguous_from, last_seq }: Lane): void {
    const emptied_at = this.#invalidations.tick();
    let cursors = this.#cursors.get(recipient);
    if (cursors === undefined) {
      cursors = { by_meeting: new Map(), forgotten_at: this.#dropped_at };
      this.#cursors.set(recipient, cursors);
    }
    const { by_meeting } = cursors;
    if (by_meeting.size >= OF_RECIPIENT_MAX || this.#count >= CURSORS_MAX) {
      const longest = by_meeting.entries().next().value;
      cursors.forgotten_at = longest === undefined ? emptied_at : longest[1].emptied_at;
      if (longest === undefined) return;
      by_meeting.delete(longest[0]);
      this.#count--;
    }
    by_meeting.set(meeting_id, { contiguous_from, last_seq, emptied_at });
    this.#count++;
  }

  /** Takes out the cursor of a lane that is about to be in memory: from then on the lane itself knows its position. */
  take(recipient: Recipient, meeting_id: string): LaneCursor | undefined {
    const by_meeting = this.#cursors.get(recipient)?.by_meeting;
    const cursor = by_meeting?.get(meeting_id);
    if (cursor === undefined) return undefined;
    by_meeting?.delete(meeting_id);
    this.#count--;
    return cursor;
  }

  /**
   * A time of the invalidation clock. A forgotten lane of the recipient may have read messages from the table and
   * delivered them before this time. So a message that this node requested before this time may be delivered already. A
   * message that this node requested later is not.
   */
  forgottenAt(recipient: Recipient): number {
    return this.#cursors.get(recipient)?.forgotten_at ?? this.#dropped_at;
  }

  /** Forgets the lanes of a recipient: the recipient leaves memory, or the table may have changed. */
  drop(recipient: Recipient): void {
    const cursors = this.#cursors.get(recipient);
    if (cursors === undefined) return;
    this.#dropped_at = this.#invalidations.tick();
    this.#count -= cursors.by_meeting.size;
    this.#cursors.delete(recipient);
  }
}
