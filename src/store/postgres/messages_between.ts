/** What nodes tell each other, as NOTIFY carries it: who says it, what it is, and for `told` the text behind a line feed. */

export const CHANNEL = 'convoke';

export type Message =
  /** A batch of messages and deliveries with these numbers was stored: accept_messages says so. */
  | ({ kind: 'stored' } & Range)
  | { kind: 'instance'; instance_id: string; lifts: boolean; requeued: boolean }
  | { kind: 'keys' }
  | { kind: 'told'; topic: string; text: string };

/** Numbers of messages and deliveries, both ends included. */
export interface Range {
  first_no: number;
  last_no: number;
}

/** The payload of a NOTIFY: less than 8,000 bytes. */
export function payloadOf(from: string, message: Message): string {
  if (message.kind !== 'told') return JSON.stringify({ from, ...message });
  // As it is: as a JSON string it could take twice as much.
  return `${JSON.stringify({ from, kind: 'told', topic: message.topic })}\n${message.text}`;
}

/** Null for one's own, and for what is none of ours. */
export function messageOf(payload: string, me: string): Message | null {
  const end = payload.indexOf('\n');
  try {
    const head = JSON.parse(end === -1 ? payload : payload.slice(0, end)) as { from: string } & Message;
    if (head.from === me) return null;
    return head.kind === 'told' ? { ...head, text: payload.slice(end + 1) } : head;
  } catch {
    return null;
  }
}
