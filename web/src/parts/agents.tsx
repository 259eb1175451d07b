import type { JSX } from 'preact';

export function AgentTags({ agent_ids }: { agent_ids: readonly string[] }): JSX.Element {
  if (agent_ids.length === 0) return <span class="faint">none</span>;
  return (
    <span class="tags">
      {agent_ids.map((agent_id) => (
        <bdi key={agent_id} class="tag">
          {agent_id}
        </bdi>
      ))}
    </span>
  );
}
