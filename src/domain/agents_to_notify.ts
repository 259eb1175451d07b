/**
 * Who gets a message: the agents of a membership that it is for (spec section 4, steps 2 and 3). These are the targeted ones, in the
 * membership's order, or all of them without targets. Empty: the instance gets no delivery.
 */
export function agentsToNotify(member_agents: readonly string[], target_agents: ReadonlySet<string> | null): string[] {
  if (target_agents === null || target_agents.size === 0) return [...member_agents];
  return member_agents.filter((agent_id) => target_agents.has(agent_id));
}
