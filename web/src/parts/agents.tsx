import type { JSX } from 'preact';
import { Foreign } from './foreign.tsx';

export function AgentTags({ agent_ids }: { agent_ids: readonly string[] }): JSX.Element {
  if (agent_ids.length === 0) return <span class="faint">none</span>;
  return (
    <span class="tags">
      {agent_ids.map((agent_id) => (
        <Foreign key={agent_id} class="tag">
          {agent_id}
        </Foreign>
      ))}
    </span>
  );
}
