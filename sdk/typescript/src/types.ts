/**
 * The shapes of Convoke's API. Times are RFC 3339 UTC with milliseconds. The shapes of bodies, queries and responses
 * are generated from the server's schemas; the others are here.
 *
 * - instance: what a machine registers; it has a webhook address, or its machine pulls
 * - membership: the agents of one instance that take part in one meeting
 * - message: a message of a meeting, an opaque JSON object
 * - delivery: one message on its way to one instance
 * - attempt: one push of a delivery
 */
import type { DeliveryReason, DeliveryState, Health, Instance, Outcome } from './schemas.ts';

export type * from './schemas.ts';

export interface Page<T> {
  data: T[];
  /** Give it as `cursor` to get the next page; null on the last page. */
  next_cursor: string | null;
}

/** A page of a search. A search may end before it has read everything. */
export interface SearchPage<T> extends Page<T> {
  /**
   * Present when the search stopped before the page was full: it came to this time, or to this id where the list is in
   * the order of ids. The page may be empty; `next_cursor` continues.
   */
  searched_to?: string;
}

interface HealthChange {
  instance_id: string;
  health: Exclude<Health, 'unknown'>;
  consecutive_failures: number;
  last_failure: Instance['last_failure'];
  at: string;
}

/** The data of each event of the live feed, by its name. */
export interface FeedData {
  'message.accepted': {
    message_id: string;
    meeting_id: string;
    seq: number;
    accepted_at: string;
    /** At most the first 100; null for a message to all agents. */
    target_agents: string[] | null;
    /** The agent that sent the message; absent: a person, or a program that is no agent. */
    from_agent?: string;
    /** The message_id of the message that this one answers; absent: the sender named none. */
    in_reply_to?: string;
    /** How many messages of agents in a row led to this one; absent when from_agent and in_reply_to are absent. */
    hops?: number;
    deliveries_queued: number;
  };
  'delivery.attempted': {
    delivery_id: string;
    message_id: string;
    meeting_id: string;
    seq: number;
    instance_id: string;
    attempt: number;
    started_at: string;
    outcome: Outcome;
    status_code: number | null;
    duration_ms: number;
    detail: string;
    /** The state of the delivery after the attempt. */
    state: Exclude<DeliveryState, 'cancelled'>;
    reason: DeliveryReason | null;
    retry_in_ms: number | null;
  };
  /** Deliveries that ended without an attempt. */
  'delivery.settled': {
    instance_id: string;
    /** Null: deliveries of all meetings. */
    meeting_id: string | null;
    state: 'failed' | 'cancelled';
    reason: DeliveryReason;
    deliveries: number;
    at: string;
  };
  /** Deliveries that were queued again by hand. */
  'delivery.queued': {
    instance_id: string;
    meeting_id: string | null;
    delivery_id: string | null;
    deliveries: number;
    at: string;
  };
  'instance.registered': { instance_id: string; instance_name: string; created: boolean; at: string };
  'instance.changed': { instance_id: string; fields: string[]; at: string };
  /** A machine began to pull, or pulls from another address now. */
  'instance.connected': {
    instance_id: string;
    since: string;
    address: string | null;
    client: string | null;
    at: string;
  };
  /** No machine pulls any more. */
  'instance.disconnected': { instance_id: string; at: string };
  'instance.removed': { instance_id: string; at: string };
  'instance.joined': { instance_id: string; meeting_id: string; at: string };
  'instance.left': { instance_id: string; meeting_id: string; at: string };
  'membership.changed': { instance_id: string; meeting_id: string; fields: string[]; at: string };
  /** The settings of a meeting changed: these are the settings now. */
  'meeting.changed': {
    meeting_id: string;
    paused: boolean;
    hop_limit: number | null;
    pair_limit: number | null;
    pair_window_s: number | null;
    at: string;
  };
  'instance.up': HealthChange;
  'instance.failing': HealthChange;
  'instance.down': HealthChange;
  /** Events are missing: read again the data that you show. */
  gap: {
    /** Events after this time may be missing; null when the time is not known. */
    since: string | null;
    /** The kinds of missing events that the feed has replayed from the store. */
    replayed: (keyof FeedData)[];
  };
}

/** An event of the live feed. */
export type FeedEvent = {
  [Name in keyof FeedData]: {
    name: Name;
    data: FeedData[Name];
    /** Give the id as `last_event_id` to continue after this event. */
    id: string;
  };
}[keyof FeedData];
