/** What nodes tell each other, as NOTIFY carries it: who says it, what it is, and for `told` the text behind a line feed. */

export const CHANNEL = 'convoke';

/** Leaves room for who says it. */
const LANES_BYTES_MAX = 7_000;

export type Message =
  /** Deliveries came into the lanes of these instances in these meetings. */
  | { kind: 'deliveries'; lanes: [meeting_id: string, ...instance_ids: string[]][] }
  | { kind: 'instance'; instance_id: string; lifts: boolean; requeued: boolean }
  | { kind: 'keys' }
  | { kind: 'told'; topic: string; text: string };

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

/** As many messages as it takes to tell of all these lanes, by meeting. */
export function tellingOf(lanes: ReadonlyMap<string, Iterable<string>>): Message[] {
  const messages: Extract<Message, { kind: 'deliveries' }>[] = [];
  let bytes = Infinity;
  for (const [meeting_id, instance_ids] of lanes) {
    let open = false;
    for (const instance_id of instance_ids) {
      bytes += bytesOf(instance_id);
      if (bytes > LANES_BYTES_MAX) {
        messages.push({ kind: 'deliveries', lanes: [] });
        bytes = bytesOf(instance_id);
        open = false;
      }
      const told = messages.at(-1)!.lanes;
      if (open) {
        told.at(-1)!.push(instance_id);
      } else {
        told.push([meeting_id, instance_id]);
        bytes += bytesOf(meeting_id);
        open = true;
      }
    }
  }
  return messages;
}

/** Of a string in a list, as JSON. */
function bytesOf(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) + '[],'.length;
}
