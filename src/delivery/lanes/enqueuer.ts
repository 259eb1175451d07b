import { pushBodyHead } from '../../domain/push_body.ts';
import type { StoredMessage } from '../../store/contract/cluster.ts';
import type { Dispatcher } from '../attempts/dispatcher.ts';
import type { Clock } from '../clock.ts';
import type { Lane } from './lane.ts';
import type { LaneMemory } from './lane_memory.ts';
import type { Recipient } from './recipient.ts';
import type { RecipientCache } from './recipient_cache.ts';

/**
 * A message with more deliveries than this is wide. When a recipient of a wide message has nothing else to deliver, it
 * takes turns, as a recipient with a backlog does. Otherwise all other instances would wait until the last recipient
 * has its push.
 */
export const WIDE = 500;

/**
 * Puts stored messages into the lanes of their recipients. The recipients were chosen when the message was stored: see
 * src/domain/agents_to_notify.ts.
 */
export class Enqueuer {
  readonly #clock: Clock;
  readonly #memory: LaneMemory;
  readonly #recipients: RecipientCache;
  readonly #dispatcher: Dispatcher;

  constructor(clock: Clock, memory: LaneMemory, recipients: RecipientCache, dispatcher: Dispatcher) {
    this.#clock = clock;
    this.#memory = memory;
    this.#recipients = recipients;
    this.#dispatcher = dispatcher;
  }

  /**
   * Enqueues those deliveries of a message that belong to this node, and offers their lanes to the dispatcher.
   *
   * @param contiguous_from the first seq of the range of this message (see cluster/seen_ranges.ts); null without a
   * cluster
   * @param requested_at the time of the invalidation clock when this node requested the message
   * @param is_own true when this node stored the message, false when another node did
   */
  enqueue(stored: StoredMessage, contiguous_from: number | null, requested_at: number, is_own: boolean): void {
    const { message_id, meeting_id, seq, message, timestamp, origin, trace, accepted_at, expires_at, deliveries } =
      stored;
    let body_head: Uint8Array | null = null;
    const is_wide = deliveries.length > WIDE;
    const now = this.#clock.now();
    for (const { delivery_id, instance_id, target_agents } of deliveries) {
      const recipient = this.#recipients.of(instance_id);
      // Another node delivers to this recipient, and learns of the message from the store.
      if (recipient === null) continue;
      // A lane that is not in memory need not be read if two things are certain. The first: nothing before this message
      // is pending. This is certain when this node saw every message of the meeting and has found all pending
      // deliveries. The second: this node has not pushed this message yet. It may have read the message from the table
      // and pushed it if another node stored the message, or before the response to its own commit arrived.
      const is_whole = contiguous_from === null || contiguous_from === 1;
      const was_unread = is_own && !this.#recipients.mayHaveRead(recipient, requested_at);
      const is_known = was_unread && is_whole && recipient.partition.discovered;
      const lane = this.#recipients.laneOf(recipient, meeting_id, is_known ? seq - 1 : null);
      // When the message belongs to a new range, this node may not have seen the messages before it.
      const is_after_gap = lane.contiguous_from !== contiguous_from;
      lane.contiguous_from = contiguous_from;
      // This node read the message from the table before the broadcast of the message arrived.
      if (seq <= lane.newest_seq) continue;
      // In a cluster, a lane whose newest_seq is 0 was read from its beginning, and nothing was pending. If this
      // message was stored before that read, it is delivered already, and only its broadcast came after the read. The
      // range does not help here, because a range says only which messages this node saw. So the table is read again.
      const may_be_done = contiguous_from !== null && lane.newest_seq === 0 && !is_known;
      const has_gap = is_after_gap && lane.newest_seq < seq - 1;
      if (has_gap || may_be_done) this.#memory.spillTail(lane);
      // If the delivery may have been cancelled while the response of the store was on its way, its row is read first.
      let only_on_disk = may_be_done || requested_at < recipient.invalidated_at || staysOnDisk(recipient, lane);
      const is_long = !only_on_disk && this.#isLong(recipient, lane, now);
      if (is_long) {
        only_on_disk = true;
        if (!lane.is_paused) recipient.is_behind = true;
      }
      if (!is_wide) recipient.touch(now);
      else if (!recipient.isActive && recipient.ready.length === 0) recipient.is_behind = true;
      if (only_on_disk) {
        const backlog = this.#memory.spillTail(lane);
        if (is_long) backlog.is_closed = true;
        if (!recipient.is_behind || recipient.attempts_in_turn !== null)
          this.#memory.countUnread(recipient, lane, backlog, now);
      } else {
        this.#memory.append(lane, {
          delivery_id,
          message_id,
          meeting_id,
          seq,
          instance_id,
          target_agents,
          body_head: (body_head ??= pushBodyHead(meeting_id, message)),
          timestamp,
          origin,
          trace,
          accepted_at,
          expires_at,
          attempt_count: 0,
          answered_badly: 0,
          attempts: [],
          next_attempt_at: null,
          // Acceptance does not wait for wide messages, unless the share of the memory for backlogs is full.
          is_backlog: is_wide && !this.#memory.isShareFull,
          missed: 0,
        });
      }
      this.#dispatcher.offer(recipient, lane);
    }
  }

  /** Whether a lane has no room in memory for one more delivery. */
  #isLong(recipient: Recipient, lane: Lane, now: number): boolean {
    return lane.length >= this.#memory.limitFor(recipient, lane, now) || this.#memory.isFull;
  }
}

/**
 * Whether a new delivery of a lane stays on disk only, as a part of the backlog. It does while the backlog is closed.
 * Without a cluster, it also does while the instance is behind.
 */
function staysOnDisk({ is_behind }: Recipient, { backlog, contiguous_from }: Lane): boolean {
  return backlog !== null && (backlog.is_closed || (contiguous_from === null && is_behind));
}
