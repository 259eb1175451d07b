/** What nodes tell each other, as NOTIFY carries it: who says it, what it is, and for `told` the text behind a line feed. */

export const CHANNEL = 'convoke';

export type Message =
  /** Deliveries with numbers in these ranges, first to last, came into these partitions. */
  | { kind: 'deliveries'; ranges: [first_no: number, last_no: number][]; partitions: number[] }
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

/** Lanes of deliveries that were told of. */
export const LANES_OF_RANGES = `
  SELECT DISTINCT d.instance_id, d.meeting_id
  FROM unnest($1::bigint[], $2::bigint[]) AS r(first_no, last_no)
    JOIN deliveries d ON d.delivery_no BETWEEN r.first_no AND r.last_no
  WHERE d.partition_no = ANY ($3::smallint[]) AND d.state = 'pending' AND d.aside = 0`;
