/** The events of the live feed. docs/events.md describes them for users. */
import type { DeliveryReason, DeliveryState } from './delivery.ts';
import type { AdvisedFailure } from './advice.ts';
import type { Health } from './instance.ts';
import type { Outcome } from './outcome.ts';

/** The data of each event, by its name. Times are RFC 3339. */
export interface FeedData {
  'message.accepted': {
    message_id: string;
    meeting_id: string;
    seq: number;
    accepted_at: string;
    /** At most the first TARGETS_SHOWN_MAX; null for a message to all agents. */
    target_agents: string[] | null;
    /**
     * `from_agent` and `in_reply_to` are absent when the sender did not give them. `hops` is absent when the sender
     * gave neither of these two.
     */
    from_agent?: string;
    in_reply_to?: string;
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
  /** The agents or the rules of an instance in a meeting changed. */
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
  /** Events are missing: a client reads its view again. */
  gap: {
    /** Events after this time may be missing; null when the time is not known. */
    since: string | null;
    /** The kinds of missing events that the feed has replayed from the store. */
    replayed: FeedEventName[];
  };
}

interface HealthChange {
  instance_id: string;
  health: Exclude<Health, 'unknown'>;
  consecutive_failures: number;
  last_failure: AdvisedFailure | null;
  at: string;
}

export type FeedEventName = keyof FeedData;

/** One event, with the facts that decide who sees it. */
export type FeedEvent = { [Name in FeedEventName]: { name: Name; data: FeedData[Name]; about: About } }[FeedEventName];

/**
 * The meeting and the instances that an event is about. `of_an_instance`: a listener sees the event if it asked for the
 * events of a single instance, whichever that is, and may see the meeting. No other listener sees it.
 */
export interface About {
  kind: 'message' | 'delivery' | 'instance' | 'of_an_instance' | 'everybody';
  meeting_id: string | null;
  instance_ids: readonly string[];
  /**
   * When the event happened, in milliseconds since the epoch; for an attempt, when its message was accepted. The feed
   * compares this time with the registration of the instance: an instance that was deleted before may have had the id.
   */
  since?: number;
  /** Only for changes of an instance: its present owner, and when it was first registered under this id. */
  owner_key_id?: string | null;
  created_at?: number;
}

/** The events that can be replayed from the store after a restart. */
export const STORED_EVENTS = [
  'message.accepted',
  'delivery.attempted',
  'delivery.settled',
] as const satisfies FeedEventName[];

export const TARGETS_SHOWN_MAX = 100;

/** Bounds the size of an event: a list of agents may have 40,000 bytes. */
export function targetsShown(target_agents: readonly string[] | null): string[] | null {
  return target_agents === null ? null : target_agents.slice(0, TARGETS_SHOWN_MAX);
}

const NAMES: Readonly<Record<FeedEventName, true>> = {
  'message.accepted': true,
  'delivery.attempted': true,
  'delivery.settled': true,
  'delivery.queued': true,
  'instance.registered': true,
  'instance.changed': true,
  'instance.connected': true,
  'instance.disconnected': true,
  'instance.removed': true,
  'instance.joined': true,
  'instance.left': true,
  'membership.changed': true,
  'meeting.changed': true,
  'instance.up': true,
  'instance.failing': true,
  'instance.down': true,
  gap: true,
};
const KINDS: ReadonlySet<unknown> = new Set<About['kind']>([
  'message',
  'delivery',
  'instance',
  'of_an_instance',
  'everybody',
]);

/**
 * The events in the JSON text of a list, as another node published them. Leaves out every item that is not an event: a
 * node of the next version may publish more kinds.
 */
export function feedEventsIn(text: string): FeedEvent[] {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return [];
  }
  return Array.isArray(list) ? list.filter(isFeedEvent) : [];
}

/** Checks only the fields that this node reads. The others are passed on as they are. */
function isFeedEvent(value: unknown): value is FeedEvent {
  if (!isObject(value)) return false;
  const { name, data, about } = value;
  if (typeof name !== 'string' || !Object.hasOwn(NAMES, name) || !isObject(data) || !isAbout(about)) return false;
  switch (name as FeedEventName) {
    case 'message.accepted':
      return typeof data['message_id'] === 'string';
    case 'delivery.attempted':
      return (
        typeof data['delivery_id'] === 'string' &&
        Number.isSafeInteger(data['attempt']) &&
        isTime(data['started_at']) &&
        Number.isFinite(data['duration_ms'])
      );
    case 'delivery.settled':
      return isTime(data['at']);
    default:
      return true;
  }
}

function isAbout(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { kind, meeting_id, instance_ids, owner_key_id = null, since = 0, created_at = 0 } = value;
  const is_text = (each: unknown): boolean => typeof each === 'string';
  return (
    KINDS.has(kind) &&
    (meeting_id === null || is_text(meeting_id)) &&
    (owner_key_id === null || is_text(owner_key_id)) &&
    typeof since === 'number' &&
    typeof created_at === 'number' &&
    Array.isArray(instance_ids) &&
    instance_ids.every(is_text)
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isTime(value: unknown): boolean {
  return typeof value === 'string' && !Number.isNaN(Date.parse(value));
}
