/**
 * Which messages wake a membership: all messages for its agents, only messages that name one of its agents, or only
 * messages of people. A message that does not wake the membership is in the history of the meeting, without a delivery
 * to the instance.
 */
export const WAKES = ['all', 'targeted', 'people'] as const;
export type Wake = (typeof WAKES)[number];

/**
 * The agents of a membership that get a message (spec section 4, steps 2 and 3): its targeted agents, in the
 * membership's order; without targets, all its agents except the sender. Empty: the instance gets no delivery.
 */
export function agentsToNotify(
  member_agents: readonly string[],
  target_agents: ReadonlySet<string> | null,
  from_agent: string | null = null,
  wake: Wake = 'all',
): string[] {
  const is_targeted = target_agents !== null && target_agents.size > 0;
  if (wake !== 'all' && !(wake === 'targeted' ? is_targeted : from_agent === null)) return [];
  if (is_targeted) return member_agents.filter((agent_id) => target_agents.has(agent_id));
  return from_agent === null ? [...member_agents] : member_agents.filter((agent_id) => agent_id !== from_agent);
}

/** Whether a message is for all agents of its meeting: the specification says so of an empty list as well. */
export function isForEverybody(target_agents: readonly string[] | null): target_agents is null | readonly [] {
  return target_agents === null || target_agents.length === 0;
}
