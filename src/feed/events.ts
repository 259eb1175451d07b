/** Makes the events of the live feed. */
import type { AttemptEvent } from '../delivery/observer.ts';
import { advised, withoutResponse } from '../domain/advice.ts';
import { type About, type FeedData, type FeedEvent, targetsShown } from '../domain/feed_event.ts';
import { originFields } from '../domain/message_origin.ts';
import { type Connection, healthOf, type InstanceHealth } from '../domain/instance.ts';
import type { Attempt } from '../domain/outcome.ts';
import { isoTime } from '../domain/time.ts';
import type { InstanceRow } from '../store/contract/instances.ts';
import type { MeetingRow } from '../store/contract/meetings.ts';
import type { MessageHead } from '../store/contract/messages.ts';

/** @param instance_ids the instances that get the message */
export function acceptedEvent(message: MessageHead, instance_ids: readonly string[]): FeedEvent {
  const { message_id, meeting_id, seq, accepted_at, target_agents, origin, deliveries_queued } = message;
  return {
    name: 'message.accepted',
    data: {
      message_id,
      meeting_id,
      seq,
      accepted_at: isoTime(accepted_at),
      target_agents: targetsShown(target_agents),
      ...originFields(origin),
      deliveries_queued,
    },
    about: { kind: 'message', meeting_id, instance_ids },
  };
}

export function attemptedEvent(
  event: Omit<AttemptEvent, 'attempt' | 'health_before' | 'health_after'>,
  attempt: Attempt,
): FeedEvent {
  const { delivery_id, message_id, meeting_id, seq, instance_id, accepted_at, state, reason, retry_in_ms } = event;
  const { attempt: number, started_at, outcome, status_code, duration_ms, detail } = attempt;
  return {
    name: 'delivery.attempted',
    data: {
      delivery_id,
      message_id,
      meeting_id,
      seq,
      instance_id,
      attempt: number,
      started_at,
      outcome,
      status_code,
      duration_ms,
      detail,
      state,
      reason,
      retry_in_ms,
    },
    about: { kind: 'delivery', meeting_id, instance_ids: [instance_id], since: accepted_at },
  };
}

/** The event of an attempt that changed the health of its instance; null for the same health, and for `unknown`. */
export function healthEvent(
  { instance_id, accepted_at }: Pick<AttemptEvent, 'instance_id' | 'accepted_at'>,
  before: InstanceHealth,
  after: InstanceHealth,
  wall_ms: number,
): FeedEvent | null {
  const health = healthOf(after);
  if (health === healthOf(before) || health === 'unknown') return null;
  const { consecutive_failures, last_failure } = after;
  return {
    name: `instance.${health}`,
    data: {
      instance_id,
      health,
      consecutive_failures,
      last_failure: advised(withoutResponse(last_failure)),
      at: isoTime(wall_ms),
    },
    about: aboutInstance(instance_id, accepted_at),
  };
}

export function settledEvent(settled: Omit<FeedData['delivery.settled'], 'at'>, wall_ms: number): FeedEvent {
  const { instance_id, meeting_id } = settled;
  return {
    name: 'delivery.settled',
    data: { ...settled, at: isoTime(wall_ms) },
    about: { kind: 'delivery', meeting_id, instance_ids: [instance_id], since: wall_ms },
  };
}

export function queuedEvent(queued: Omit<FeedData['delivery.queued'], 'at'>, wall_ms: number): FeedEvent {
  const { instance_id, meeting_id } = queued;
  return {
    name: 'delivery.queued',
    data: { ...queued, at: isoTime(wall_ms) },
    about: { kind: 'delivery', meeting_id, instance_ids: [instance_id], since: wall_ms },
  };
}

export function registeredEvent(row: InstanceRow, created: boolean, wall_ms: number): FeedEvent {
  const { instance_id, instance_name, owner_key_id, created_at } = row;
  return {
    name: 'instance.registered',
    data: { instance_id, instance_name, created, at: isoTime(wall_ms) },
    about: { ...aboutInstance(instance_id, wall_ms), owner_key_id, created_at },
  };
}

export function changedEvent(row: InstanceRow, fields: string[], wall_ms: number): FeedEvent {
  const { instance_id, owner_key_id, created_at } = row;
  return {
    name: 'instance.changed',
    data: { instance_id, fields, at: isoTime(wall_ms) },
    about: { ...aboutInstance(instance_id, wall_ms), owner_key_id, created_at },
  };
}

/** @param connection null when the machine no longer pulls */
export function connectionEvent(instance_id: string, connection: Connection | null, wall_ms: number): FeedEvent {
  const about = aboutInstance(instance_id, wall_ms);
  const at = isoTime(wall_ms);
  if (connection === null) return { name: 'instance.disconnected', data: { instance_id, at }, about };
  const { since, address, client } = connection;
  return { name: 'instance.connected', data: { instance_id, since: isoTime(since), address, client, at }, about };
}

/** The event of an instance that a response of 410 has switched off. */
export function goneEvent(
  { instance_id, accepted_at }: Pick<AttemptEvent, 'instance_id' | 'accepted_at'>,
  wall_ms: number,
): FeedEvent {
  return {
    name: 'instance.changed',
    data: { instance_id, fields: ['webhook_enabled'], at: isoTime(wall_ms) },
    about: aboutInstance(instance_id, accepted_at),
  };
}

export function removedEvent(instance_id: string, wall_ms: number): FeedEvent {
  return {
    name: 'instance.removed',
    data: { instance_id, at: isoTime(wall_ms) },
    about: aboutInstance(instance_id, wall_ms),
  };
}

export function membershipEvent(
  name: 'instance.joined' | 'instance.left',
  instance_id: string,
  meeting_id: string,
  at: number,
): FeedEvent {
  return {
    name,
    data: { instance_id, meeting_id, at: isoTime(at) },
    about: { kind: 'instance', meeting_id, instance_ids: [instance_id], since: at },
  };
}

export function membershipChangedEvent(
  instance_id: string,
  meeting_id: string,
  fields: string[],
  wall_ms: number,
): FeedEvent {
  return {
    name: 'membership.changed',
    data: { instance_id, meeting_id, fields, at: isoTime(wall_ms) },
    about: { kind: 'instance', meeting_id, instance_ids: [instance_id], since: wall_ms },
  };
}

export function meetingEvent(row: MeetingRow, wall_ms: number): FeedEvent {
  const { meeting_id, paused, hop_limit, pair_limit, pair_window_s } = row;
  return {
    name: 'meeting.changed',
    data: { meeting_id, paused, hop_limit, pair_limit, pair_window_s, at: isoTime(wall_ms) },
    about: { kind: 'message', meeting_id, instance_ids: [], since: wall_ms },
  };
}

function aboutInstance(instance_id: string, since: number): About {
  return { kind: 'instance', meeting_id: null, instance_ids: [instance_id], since };
}
