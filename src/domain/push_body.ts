import { ownBytes } from './own_bytes.ts';
import { fieldText } from './request_body.ts';

/**
 * The part of a push's body that is the same for every instance. This part contains the message as the sender wrote it.
 *
 * @param message the sender's own JSON text
 */
export function pushBodyHead(meeting_id: string, message: string): Uint8Array {
  return ownBytes(
    `{"event":"new_message","meeting_id":${JSON.stringify(meeting_id)},"message":${message},"target_agents":`,
  );
}

/**
 * The whole body of a push: the five fields of the specification (section 6), in the order of the specification.
 *
 * @param target_agents JSON text of the list
 * @param timestamp the result of `pushTimestamp` for the message's created_at
 */
export function pushBody(head: Uint8Array, target_agents: string, timestamp: string): Uint8Array {
  const rest = `${target_agents},"timestamp":${JSON.stringify(timestamp)}}`;
  // In memory of its own, as `ownBytes` makes it: a machine that pulls may have a push in hand for ten minutes.
  const body = Buffer.allocUnsafeSlow(head.byteLength + Buffer.byteLength(rest));
  body.set(head);
  body.write(rest, head.byteLength);
  return body;
}

/**
 * The push's timestamp for a message.
 *
 * @param parsed the message as JSON.parse read it
 * @param text the JSON text of the message, as its sender wrote it
 */
export function timestampOf(parsed: Record<string, unknown>, text: string): string {
  if (!Object.hasOwn(parsed, 'created_at')) return '';
  const { created_at } = parsed;
  return typeof created_at === 'string' ? created_at : pushTimestamp(fieldText(text, 'created_at'));
}

/**
 * The push's timestamp: the message's created_at as a string, empty when it has none (spec section 6).
 *
 * @param created_at the JSON text of the value, or null when the message has no such key; a number keeps its digits
 */
export function pushTimestamp(created_at: string | null): string {
  if (created_at === null || created_at === 'null') return '';
  return created_at.startsWith('"') ? (JSON.parse(created_at) as string) : created_at;
}
