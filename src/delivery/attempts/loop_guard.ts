import {
  GUARD_READ,
  type GuardLimits,
  type GuardReason,
  guardReason,
  limitsPairs,
  pairsOf,
} from '../../domain/guard_rule.ts';
import type { AgentDelivery } from '../../store/contract/deliveries.ts';
import type { Store } from '../../store/store.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { Lane } from '../lanes/lane.ts';
import type { Recipient } from '../lanes/recipient.ts';
import type { Meetings } from '../meetings.ts';
import { type HeadReadParts, readForHead } from './head_read.ts';

/**
 * The most points of time in memory, over all lanes: see `Window.pairs`. When there are more, the guard drops the
 * windows that it has not used for the longest time. It reads a dropped window again when it needs the window.
 */
const TIMES_MAX = 200_000;

export interface LoopGuardParts extends HeadReadParts {
  store: Pick<Store, 'deliveries'>;
  meetings: Pick<Meetings, 'limitsOf'>;
}

/** The messages that a lane delivered lately, by pair. */
interface Window {
  /**
   * The window is valid only for the recipient with this number, and for limits up to these. Otherwise the window is
   * read again. A reference to the recipient would keep an evicted recipient in memory.
   */
  recipient_no: number;
  pair_limit: number;
  pair_window_s: number;
  /** The seq of the last delivery that was judged. */
  last_seq: number;
  /** By pair: the times at which the delivered messages were accepted, the newest last. */
  pairs: Map<string, number[]>;
  times: number;
}

/**
 * Judges the messages of agents at the head of a lane. The node that delivers to the instance sees all messages that
 * count. After a restart, or when another node had the instance, the window of a lane is rebuilt from the store.
 */
export class LoopGuard {
  readonly #parts: LoopGuardParts;
  /** By instance and meeting; the most recently used are at the end. */
  readonly #windows = new Map<string, Window>();
  #times = 0;

  constructor(parts: LoopGuardParts) {
    this.#parts = parts;
  }

  /** Null: the head may be delivered. `unknown`: the window of the lane must be read first. */
  judge(recipient: Recipient, head: LaneDelivery): GuardReason | 'unknown' | null {
    const { origin, accepted_at, meeting_id } = head;
    if (origin === null || origin.from_agent === null) return null;
    const limits = this.#parts.meetings.limitsOf(meeting_id);
    const { hops, from_agent } = origin;
    if (!limitsPairs(limits)) {
      // The window is read again when pairs have a limit again, because this message is not noted in it.
      this.#drop(keyOf(recipient, head));
      return guardReason({ hops, accepted_at }, [], limits);
    }
    const window = this.#windowOf(recipient, head, limits);
    if (window === null) return 'unknown';
    // The guard let this head pass before. The head is here again because the lane was read again.
    if (head.seq <= window.last_seq) return null;
    window.last_seq = head.seq;
    const pairs = pairsOf(from_agent, agentsOf(head));
    const times = pairs.map((pair) => window.pairs.get(pair) ?? []);
    const reason = guardReason({ hops, accepted_at }, times, limits);
    if (reason === null) for (const pair of pairs) this.#note(window, pair, accepted_at);
    this.#forgetOldest();
    return reason;
  }

  /** Rebuilds the window of a lane, and offers the lane to the dispatcher again. */
  read(recipient: Recipient, lane: Lane, head: LaneDelivery): Promise<void> {
    const { store, meetings } = this.#parts;
    const limits = meetings.limitsOf(head.meeting_id);
    const since_ms = head.accepted_at - 2 * limits.pair_window_s * 1_000;
    const read = (): Promise<AgentDelivery[]> => store.deliveries.ofAgentsBefore(head, since_ms, GUARD_READ);
    return readForHead(this.#parts, recipient, lane, read, (went) => this.#rebuild(recipient, head, limits, went));
  }

  #rebuild(
    recipient: Recipient,
    head: LaneDelivery,
    { pair_limit, pair_window_s }: GuardLimits,
    went: readonly AgentDelivery[],
  ): void {
    const window: Window = {
      recipient_no: recipient.number,
      pair_limit,
      pair_window_s,
      last_seq: head.seq - 1,
      pairs: new Map(),
      times: 0,
    };
    this.#keep(keyOf(recipient, head), window);
    for (const sent of went) {
      for (const pair of pairsOf(sent.from_agent, agentsOf(sent))) this.#note(window, pair, sent.accepted_at);
    }
  }

  /**
   * Called when the rules of a membership cancel a delivery. The guard counts a message before the first attempt on it.
   * When it has counted this message, it drops the window of the lane, and reads the window again without the message.
   */
  uncount(recipient: Recipient, delivery: LaneDelivery): void {
    const key = keyOf(recipient, delivery);
    const window = this.#windows.get(key);
    if (window !== undefined && delivery.seq <= window.last_seq) this.#drop(key);
  }

  /**
   * Forgets all windows, because the database may have gone back to an earlier time. Such a database may use a seq
   * again for a new message, and may have lost messages that were judged.
   */
  forgetAll(): void {
    this.#windows.clear();
    this.#times = 0;
  }

  #windowOf(recipient: Recipient, head: LaneDelivery, { pair_limit, pair_window_s }: GuardLimits): Window | null {
    const key = keyOf(recipient, head);
    const { number: recipient_no } = recipient;
    const known = this.#windows.get(key);
    const is_valid =
      known !== undefined &&
      known.recipient_no === recipient_no &&
      known.pair_limit >= pair_limit &&
      known.pair_window_s >= pair_window_s;
    // Nothing comes before the first message of a meeting, so its window begins empty. Every other window must be read.
    if (!is_valid && head.seq > 1) return null;
    const window = is_valid
      ? known
      : { recipient_no, pair_limit, pair_window_s, last_seq: 0, pairs: new Map<string, number[]>(), times: 0 };
    this.#keep(key, window);
    return window;
  }

  /** Keeps a window as the most recently used one. */
  #keep(key: string, window: Window): void {
    this.#drop(key);
    this.#windows.set(key, window);
    this.#times += window.times;
  }

  #drop(key: string): void {
    this.#times -= this.#windows.get(key)?.times ?? 0;
    this.#windows.delete(key);
  }

  #note(window: Window, pair: string, at: number): void {
    const times = window.pairs.get(pair) ?? [];
    window.pairs.set(pair, times);
    times.push(at);
    if (times.length > window.pair_limit) times.shift();
    else {
      window.times++;
      this.#times++;
    }
  }

  #forgetOldest(): void {
    for (const key of this.#windows.keys()) {
      // A window takes memory even without times.
      if (this.#times + this.#windows.size <= TIMES_MAX) break;
      this.#drop(key);
    }
  }
}

/** No id contains a line feed. */
function keyOf({ instance_id }: Recipient, { meeting_id }: LaneDelivery): string {
  return `${instance_id}\n${meeting_id}`;
}

function agentsOf({ target_agents }: { target_agents: string }): string[] {
  return JSON.parse(target_agents) as string[];
}
