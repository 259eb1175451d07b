/**
 * The batches of other nodes, as the database returns them. The thread of the store reads them, and the thread that
 * delivers makes objects from them.
 */
import { IdCodec } from '../../../domain/id.ts';
import type { MessageOrigin } from '../../../domain/message_origin.ts';
import type { AcceptedDelivery } from '../../contract/messages.ts';
import type { Change, StoredRange } from '../../contract/cluster.ts';
import { originOf } from '../../rows/messages.ts';
import { storedTrace } from '../../rows/stored_values.ts';
import { numbersIn, textsIn } from '../json_lists.ts';
import { timestampOf } from '../timestamp.ts';

/**
 * A batch. Each column is the JSON text of a list, or null for an empty list. All lists are in the order of the
 * message_no.
 */
export interface BatchRow {
  /** Columns with an item for every message. */
  message_nos: string | null;
  meeting_ids: string | null;
  seqs: string | null;
  /** Columns with an item for each message that has deliveries for this node. */
  accepted_ats: string | null;
  timestamps: string | null;
  messages: string | null;
  /**
   * An item for each of these messages that has a sender or answers another message: its message_no, and the columns of
   * `MessageOrigin`.
   */
  said: string | null;
  /** An item for each of these messages that belongs to a trace: its message_no, and the trace. */
  traces: string | null;
  /** Columns with an item for each delivery for this node. */
  delivery_nos: string | null;
  /** The message_no of each delivery. */
  of_messages: string | null;
  expire_ats: string | null;
  instance_ids: string | null;
  agent_lists: string | null;
}

/**
 * A change as the thread of the store posts it: as texts, because passing texts between threads costs almost nothing. A
 * batch of 118 messages, half of them for this node, takes both threads 90 µs together. If the thread of the store made
 * the objects, both threads would take 230 µs.
 */
export type RawChange = Exclude<Change, { kind: 'stored' }> | { kind: 'stored'; tag: string; rows: BatchRow[] };

/** Makes the objects of a change from the texts that the thread of the store posted. */
export function changeOf(raw: RawChange): Change {
  if (raw.kind !== 'stored') return raw;
  const ids = new IdCodec(raw.tag);
  return { kind: 'stored', ranges: raw.rows.flatMap((row) => rangesOf(row, ids)) };
}

function rangesOf(row: BatchRow, ids: IdCodec): StoredRange[] {
  const [meeting_ids, seqs] = [textsIn(row.meeting_ids), numbersIn(row.seqs)];
  const [accepted_ats, timestamps, messages] = [
    numbersIn(row.accepted_ats),
    textsIn(row.timestamps),
    textsIn(row.messages),
  ];
  const origins = originsIn(row.said, ids);
  const traces = row.traces === null ? null : new Map(JSON.parse(row.traces) as [number, string][]);
  const nextDeliveries = deliveriesOf(row, ids);
  const ranges = new Map<string, StoredRange>();
  let at = 0;
  for (const [i, message_no] of numbersIn(row.message_nos).entries()) {
    const [meeting_id, seq] = [meeting_ids[i]!, seqs[i]!];
    let range = ranges.get(meeting_id);
    if (range === undefined)
      ranges.set(meeting_id, (range = { meeting_id, first_seq: seq, last_seq: seq, messages: [] }));
    range.last_seq = seq;
    const { deliveries, expires_at } = nextDeliveries(message_no);
    if (deliveries.length === 0) continue;
    range.messages.push({
      message_id: ids.encode('msg', message_no),
      meeting_id,
      seq,
      accepted_at: accepted_ats[at]!,
      message: messages[at]!,
      timestamp: timestampOf(timestamps[at]!),
      origin: origins?.get(message_no) ?? null,
      trace: storedTrace(traces?.get(message_no) ?? null, message_no),
      expires_at,
      deliveries,
    });
    at++;
  }
  return [...ranges.values()];
}

/**
 * The sender of each message and the message that it answers, by message_no. Null when no message of the batch has a
 * sender or answers a message.
 */
function originsIn(json: string | null, ids: IdCodec): Map<number, MessageOrigin | null> | null {
  if (json === null) return null;
  const rows = JSON.parse(json) as [number, string | null, number | null, number][];
  return new Map(
    rows.map(([message_no, from_agent, in_reply_to, hops]) => [
      message_no,
      originOf({ from_agent, in_reply_to, hops }, message_no, ids),
    ]),
  );
}

/**
 * Returns a function that finds the deliveries of a message. The function must be called in the order of the
 * message_no.
 */
function deliveriesOf(row: BatchRow, ids: IdCodec) {
  const [of_messages, delivery_nos] = [numbersIn(row.of_messages), numbersIn(row.delivery_nos)];
  const [expire_ats, instance_ids] = [numbersIn(row.expire_ats), textsIn(row.instance_ids)];
  const agent_lists = textsIn(row.agent_lists);
  let at = 0;
  return (message_no: number) => {
    const deliveries: AcceptedDelivery[] = [];
    let expires_at = Infinity;
    // Skips deliveries whose message is removed already.
    while (of_messages[at]! < message_no) at++;
    for (; of_messages[at] === message_no; at++) {
      expires_at = Math.min(expires_at, expire_ats[at]!);
      deliveries.push({
        delivery_id: ids.encode('dlv', delivery_nos[at]!),
        instance_id: instance_ids[at]!,
        target_agents: agent_lists[at]!,
      });
    }
    return { deliveries, expires_at };
  };
}
