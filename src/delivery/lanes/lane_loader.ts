import {
  LANE_PAGE_CHARS_MAX,
  type LaneRequest,
  type QueuedDelivery,
  queuedChars,
} from '../../store/contract/deliveries.ts';
import { NO_LINGER } from '../../store/linger.ts';
import type { Store } from '../../store/store.ts';
import type { Dispatcher } from '../attempts/dispatcher.ts';
import type { Settlements } from '../attempts/settlements.ts';
import { Batcher } from '../batcher.ts';
import type { Clock } from '../clock.ts';
import type { Backlog } from './backlog.ts';
import type { Lane } from './lane.ts';
import { laneDeliveryOf } from './lane_delivery.ts';
import type { LaneMemory } from './lane_memory.ts';
import type { Recipient } from './recipient.ts';
import type { RecipientCache } from './recipient_cache.ts';

/** The most deliveries that are read into a lane at once. When memory has no room, only one delivery is read. */
export const LANE_PAGE = 64;
/** The most lanes that one batch reads. */
const LANES_READ_MAX = 500;
/** One batch reads about this many deliveries at most, because messages that arrive meanwhile wait for the batch. */
const DELIVERIES_READ_MAX = 500;
/** The weight of the latest page in the average length of pages. */
const PAGE_LENGTH_WEIGHT = 0.02;
/** When the last page of a backlog has at most this many deliveries, the instance counts as one without a backlog. */
const FEW = 16;

export interface LaneLoaderParts {
  clock: Clock;
  store: Store;
  settlements: Settlements;
  memory: LaneMemory;
  recipients: RecipientCache;
  dispatcher: Dispatcher;
  /** The latest time at which a delivery written now can be due. */
  latestDue: () => number;
}

/** Reads the part of lanes that is on disk only, page by page. */
export class LaneLoader {
  readonly #clock: Clock;
  readonly #settlements: Settlements;
  readonly #memory: LaneMemory;
  readonly #recipients: RecipientCache;
  readonly #dispatcher: Dispatcher;
  readonly #latestDue: () => number;
  /** Reads of instances without a backlog. They do not wait for the pages of instances with a backlog. */
  readonly #first_reads: Batcher<LaneRequest, QueuedDelivery[]>;
  readonly #reads: Batcher<LaneRequest, QueuedDelivery[]>;
  /** The average number of deliveries in recent pages. */
  #page_length = LANE_PAGE / 2;

  constructor({ clock, store, settlements, memory, recipients, dispatcher, latestDue }: LaneLoaderParts) {
    this.#clock = clock;
    this.#settlements = settlements;
    this.#memory = memory;
    this.#recipients = recipients;
    this.#dispatcher = dispatcher;
    this.#latestDue = latestDue;
    this.#first_reads = this.#batchedReads(store);
    this.#reads = this.#batchedReads(store);
  }

  #batchedReads({ lingers = NO_LINGER, deliveries }: Store): Batcher<LaneRequest, QueuedDelivery[]> {
    return new Batcher(
      this.#clock,
      {
        items_max: () => Math.min(LANES_READ_MAX, Math.ceil(DELIVERIES_READ_MAX / this.#page_length)),
        weight_max: Infinity,
        in_flight_max: 2,
        consumer_coalesces: true,
        linger: () => lingers.load,
      },
      (requests) => deliveries.loadLanes(requests),
    );
  }

  /** Reads the next page of a lane's backlog; then the lane is offered to the dispatcher again. */
  load(recipient: Recipient, lane: Lane, backlog: Backlog): void {
    lane.begin('loading');
    recipient.loads++;
    const is_full = recipient.goes_first ? this.#memory.isFull : this.#memory.isShareFull;
    const length_max = Math.max(1, this.#memory.limitFor(recipient, lane, this.#clock.now()));
    const limit = is_full ? 1 : Math.min(LANE_PAGE, length_max);
    const { meeting_id, last_seq: after_seq, generation } = lane;
    const { is_unsettled, changes } = backlog;
    this.#memory.reserve(limit);
    const reads = recipient.goes_first ? this.#first_reads : this.#reads;
    const read = () => reads.add({ instance_id: recipient.instance_id, meeting_id, after_seq, limit }, 1);
    backlog.is_unsettled = false;
    void (is_unsettled ? this.#settlements.flush(recipient.instance_id).then(read) : read()).then(
      (rows) => {
        lane.end();
        recipient.loads--;
        this.#memory.release(limit);
        this.#page_length += (Math.max(1, rows.length) - this.#page_length) * PAGE_LENGTH_WEIGHT;
        if (recipient.dropped) return;
        // Rows of an earlier generation do not count: the lane is read again.
        if (lane.generation === generation) {
          this.#take(lane, backlog, rows, isLastPage(rows, limit) && backlog.changes === changes);
          noteBacklog(recipient, lane, rows.length);
        }
        this.#recipients.evictIfIdle(recipient, lane);
        this.#dispatcher.wake(recipient, lane);
      },
      (error: unknown) => {
        lane.end();
        recipient.loads--;
        backlog.is_unsettled ||= is_unsettled;
        this.#memory.release(limit);
        this.#dispatcher.retryLater(error, () => this.#dispatcher.offer(recipient, lane));
      },
    );
  }

  #take(lane: Lane, backlog: Backlog, rows: QueuedDelivery[], may_be_last: boolean): void {
    // The page knows more than the tail: the table has deliveries behind the tail. Other nodes stored them, and this
    // node has not received their broadcasts.
    const is_tail_stale = lane.tail_length > 0 && rows.some(({ seq }) => seq > backlog.tail_to);
    if (is_tail_stale) this.#memory.spillTail(lane);
    const is_last = may_be_last && !is_tail_stale;
    const latest_due = this.#latestDue();
    const before_tail = rows.filter(({ seq }) => seq < backlog.tail_from);
    for (const row of before_tail) this.#memory.appendRead(lane, laneDeliveryOf(row, latest_due));
    const reaches_tail = before_tail.length < rows.length;
    // The last page ends before the tail begins, so no delivery in the tail is pending any more.
    if (is_last && !reaches_tail && lane.tail_length > 0) this.#memory.spillTail(lane);
    else if (is_last || reaches_tail) {
      this.#memory.joinTail(lane);
      // After a page that is not the last, the table may have more behind the tail: other nodes may have stored
      // deliveries whose broadcasts this node has not received.
      if (!is_last && lane.contiguous_from !== null) lane.spill();
    } else this.#memory.setUnread(backlog, Math.max(0, backlog.unread_estimate - rows.length));
  }
}

/** Notes whether the instance has a backlog: it has one if the page was long, or was not the last. */
function noteBacklog(recipient: Recipient, lane: Lane, page_length: number): void {
  if (page_length > FEW || lane.backlog !== null) recipient.is_behind = true;
  else if (recipient.is_behind && recipient.attempts_in_turn === null && !recipient.isSpilled) {
    recipient.is_behind = recipient.registration.health.backoff_step > 0;
  }
}

/**
 * Whether a page is the last of its lane. The last page is shorter than both limits, in deliveries and in characters.
 */
function isLastPage(rows: QueuedDelivery[], limit: number): boolean {
  if (rows.length >= limit) return false;
  let chars = 0;
  for (const row of rows) chars += queuedChars(row);
  return chars < LANE_PAGE_CHARS_MAX;
}
