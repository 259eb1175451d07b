import type { Reply } from '../../domain/reply.ts';
import type { TraceContext } from '../../domain/trace_context.ts';
import type { Send } from '../accept/acceptor.ts';

/**
 * Each idempotency key belongs to a sender. For replies the sender is this text, for other messages the id of an API
 * key. No API key has this text as its id, so nobody else can use the idempotency key of a reply.
 */
const SENDER = 'reply';

/** Makes a reply into a message to send. */
export function replySend(
  delivery: { meeting_id: string; message_id: string; instance_id: string },
  { message, timestamp, from_agent, target_agents }: Reply,
  trace: TraceContext | null,
  idempotency: { key: string; fingerprint: string },
): Send {
  const { meeting_id, message_id: in_reply_to, instance_id } = delivery;
  return {
    meeting_id,
    message,
    timestamp,
    target_agents,
    origin: { from_agent, in_reply_to, speaks_for: { key_id: null, instance_id } },
    trace,
    expires_in_ms: null,
    idempotency: { ...idempotency, sender: SENDER },
  };
}
