/**
 * What wakes a membership: every message that is for one of its agents, only one that names an agent of it, or only one that
 * no agent says. What does not wake it is no delivery; it stands in the history.
 */
export const WAKES = ['all', 'targeted', 'people'] as const;
export type Wake = (typeof WAKES)[number];

/**
 * Who gets a message: the agents of a membership that it is for (spec section 4, steps 2 and 3). These are the targeted ones, in the
 * membership's order. Without targets they are all but the agent that says it. Empty: the instance gets no delivery.
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
