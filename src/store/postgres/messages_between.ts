/** What nodes tell each other, as NOTIFY carries it: who says it, what it is, and for `told` the text behind a line feed. */

export const CHANNEL = 'convoke';

/** Leaves room for who says it. */
const LANES_BYTES_MAX = 7_000;

export type Message =
  /** Deliveries came into the lanes of these instances in these meetings: so many at most into each. */
  | { kind: 'deliveries'; lanes: [meeting_id: string, count: number, ...instance_ids: string[]][] }
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

/** What came into lanes of a meeting. */
export interface Told {
  /** Messages of the meeting. */
  count: number;
  instance_ids: Set<string>;
}

/** As many messages as it takes to tell of all these lanes, by meeting. */
export function tellingOf(meetings: ReadonlyMap<string, Told>): Message[] {
  const messages: Extract<Message, { kind: 'deliveries' }>[] = [];
  let bytes = Infinity;
  for (const [meeting_id, { count, instance_ids }] of meetings) {
    let open = false;
    for (const instance_id of instance_ids) {
      bytes += bytesOf(instance_id);
      if (bytes > LANES_BYTES_MAX) {
        messages.push({ kind: 'deliveries', lanes: [] });
        bytes = bytesOf(instance_id);
        open = false;
      }
      const { lanes } = messages.at(-1)!;
      if (open) {
        lanes.at(-1)!.push(instance_id);
      } else {
        lanes.push([meeting_id, count, instance_id]);
        bytes += bytesOf(meeting_id) + String(count).length;
        open = true;
      }
    }
  }
  return messages;
}

/** Of a string in a list, as JSON. */
function bytesOf(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) + '[],,'.length;
}
