/**
 * Who gets a message: the agents of a membership that it is for (spec section 4, steps 2 and 3). With targets, these
 * are the targeted agents, in the membership's order. Without targets, they are all agents but the one that says it.
 * Empty: the instance gets no delivery.
 */
export function agentsToNotify(
  member_agents: readonly string[],
  target_agents: ReadonlySet<string> | null,
  from_agent: string | null = null,
): string[] {
  if (target_agents !== null && target_agents.size > 0)
    return member_agents.filter((agent_id) => target_agents.has(agent_id));
  return from_agent === null ? [...member_agents] : member_agents.filter((agent_id) => agent_id !== from_agent);
}
