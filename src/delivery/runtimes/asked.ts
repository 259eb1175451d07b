import { parseExactly } from '../../domain/exact_json.ts';
import type { Asked, PastMessage } from '../../domain/runtimes/runtime.ts';

/** A push of the specification, read for a runtime. The agents of the push are the agents that have to answer. */
export function askedOf(
  body: string,
  headers: Readonly<Record<string, string>>,
  history: readonly PastMessage[],
): Asked {
  const { meeting_id, message, target_agents, timestamp } = parseExactly(body) as {
    meeting_id: string;
    message: Record<string, unknown>;
    target_agents: string[];
    timestamp: string;
  };
  const from_agent = headers['convoke-from-agent'];
  return {
    delivery_id: headers['webhook-id'] ?? '',
    message_id: headers['convoke-message-id'] ?? '',
    seq: Number(headers['convoke-seq'] ?? 0),
    meeting_id,
    message,
    agents: target_agents,
    timestamp,
    from_agent: from_agent === undefined ? null : decodeURIComponent(from_agent),
    in_reply_to: headers['convoke-in-reply-to'] ?? null,
    reply_url: headers['convoke-reply-url'] ?? null,
    reply_token: headers['convoke-reply-token'] ?? null,
    missed: Number(headers['convoke-missed'] ?? 0),
    body,
    history,
  };
}
