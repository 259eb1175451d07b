/** What is said when there are as many as there may be. */
import { Problem } from '../../domain/problem.ts';
import type { Quotas } from '../contract/quotas.ts';

/**
 * What the lists of agents in a meeting may come to together, as they are stored. Every message of the meeting is stored with
 * all of them. A small list is always taken, so that nobody keeps others out by long ones of their own.
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

/**
 * @param list a list of agents as it is stored
 * @returns what the lists of the others in the meeting may come to beside it; null when nobody has to ask
 */
export function roomBeside(list: string): number | null {
  const bytes = Buffer.byteLength(list);
  return bytes <= SMALL_LIST_BYTES ? null : LISTS_BYTES_MAX - bytes;
}

/** @returns why a list of agents is not taken */
export function listsTooLong(): Problem {
  return new Problem(
    'quota_exceeded',
    `The lists of agents in this meeting come to ${LISTS_BYTES_MAX} bytes, the most that one message may be stored with. Join with fewer agents: a list of up to ${SMALL_LIST_BYTES} bytes is always taken.`,
  );
}

/** The quotas and nothing that came with them: what the thread of an engine is told. */
export function quotasOf(from: Quotas): Quotas {
  const { max_instances, max_instances_per_key, max_instances_per_meeting, max_meetings_per_instance } = from;
  return { max_instances, max_instances_per_key, max_instances_per_meeting, max_meetings_per_instance };
}
