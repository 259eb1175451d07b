/** The limits of a question to the service about a message for chosen agents: src/http/schemas/explanation.ts. */
const TARGETS_MAX = 100;
const TARGETS_BYTES_MAX = 4_000;

/** The first of the agents, as many as the service takes in one question. */
export function firstTargets(targets: readonly string[]): string[] {
  const encoder = new TextEncoder();
  let bytes = 0;
  const first = targets.slice(0, TARGETS_MAX);
  const end = first.findIndex((agent_id) => (bytes += encoder.encode(agent_id).length) > TARGETS_BYTES_MAX);
  return end === -1 ? first : first.slice(0, end);
}
