/** The problems when a quota is used up. */
import { Problem } from '../../domain/problem.ts';
import type { Quotas } from '../contract/quotas.ts';

/**
 * The most bytes of all lists of agents in a meeting, because a message may be stored with all these lists. A small
 * list is always accepted. Thus the long lists of some instances do not keep other instances out of the meeting.
 */
const LISTS_BYTES_MAX = 4 << 20;
const SMALL_LIST_BYTES = 1_024;

const WHAT: Record<keyof Quotas, string> = {
  max_instances: 'Instances are registered here',
  max_instances_per_key: 'Instances belong to this key',
  max_instances_per_meeting: 'Instances are in this meeting',
  max_meetings_per_instance: 'Meetings have this instance in them',
};

export function quotaExceeded(setting: keyof Quotas, quota: number): Problem {
  return new Problem(
    'quota_exceeded',
    `${WHAT[setting]} as many as CONVOKE_${setting.toUpperCase()} permits: ${quota}. Remove one first, or ask the operator to raise it.`,
  );
}

/** The most subscriptions of MCP Events that a key may have at a time. */
export const SUBSCRIPTIONS_OF_KEY_MAX = 100;

export function tooManySubscriptions(): Problem {
  return new Problem(
    'quota_exceeded',
    `This key has ${SUBSCRIPTIONS_OF_KEY_MAX} subscriptions, the most that are permitted. End one first with events/unsubscribe.`,
  );
}

/**
 * @param list a list of agents as it is stored
 * @returns the bytes that remain for the other lists in the meeting; null: the list is small, and needs no check
 */
export function roomBeside(list: string): number | null {
  const bytes = Buffer.byteLength(list);
  return bytes <= SMALL_LIST_BYTES ? null : LISTS_BYTES_MAX - bytes;
}

/** @returns why a list of agents is refused */
export function listsTooLong(): Problem {
  return new Problem(
    'quota_exceeded',
    `The lists of agents in this meeting come to ${LISTS_BYTES_MAX} bytes, the most that one message may be stored with. Join with fewer agents: a list of up to ${SMALL_LIST_BYTES} bytes is always taken.`,
  );
}

/** Picks the quotas from a larger object, because only plain data can go to the thread of the engine. */
export function quotasOf(from: Quotas): Quotas {
  const { max_instances, max_instances_per_key, max_instances_per_meeting, max_meetings_per_instance } = from;
  return { max_instances, max_instances_per_key, max_instances_per_meeting, max_meetings_per_instance };
}
