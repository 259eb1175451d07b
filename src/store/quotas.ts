/** What is said when there are as many as there may be. */
import { Problem } from '../domain/problem.ts';
import type { Quotas } from './store.ts';

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

/** The quotas and nothing that came with them: what the thread of an engine is told. */
export function quotasOf(from: Quotas): Quotas {
  const { max_instances, max_instances_per_key, max_instances_per_meeting, max_meetings_per_instance } = from;
  return { max_instances, max_instances_per_key, max_instances_per_meeting, max_meetings_per_instance };
}
