import type { Reply } from '../../domain/reply.ts';
import type { TraceContext } from '../../domain/trace_context.ts';
import type { Send } from '../accept/acceptor.ts';

/**
 * The sender of a reply, where other messages have the id of the sender's key. No API key has this id, so no sender can
 * use the idempotency key of a reply.
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
