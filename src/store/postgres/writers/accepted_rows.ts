/** The rows that accepting a batch returns, and the result of each message in them. */
import type { IdCodec } from '../../../domain/id.ts';
import type { AcceptedDelivery } from '../../contract/messages.ts';
import { storedCount, storedTime } from '../../rows/stored_values.ts';
import { numbersIn, textsIn } from '../json_lists.ts';

/** A row stands for several messages, and each column is the JSON text of a list: see accept_messages.ts. */
export interface AcceptedRow {
  places: string;
  message_nos: string;
  seqs: string;
  queued_counts: string;
  accepted_ats: string;
  instance_ids: string | null;
  agent_lists: string | null;
  former_fingerprints: string | null;
  hop_counts: string | null;
}

/** The result of one message. */
export interface Stored {
  /** The place of the message in the batch, from 1. */
  place: number;
  message_no: number;
  seq: number;
  deliveries_queued: number;
  accepted_at: number;
  deliveries: AcceptedDelivery[];
  /** The fingerprint of the earlier message with the same idempotency key; null when there is no such message. */
  fingerprint: string | null;
  hops: number;
}

/**
 * Whether this batch stored the message. If not, the sender used its idempotency key before. Then the values are from
 * the row of that key in `idempotency_keys`, and may be damaged.
 */
export function isNew({ fingerprint }: Stored): boolean {
  return fingerprint === null;
}

/**
 * Whether all values from the row of an idempotency key are whole. Reports a damaged value.
 *
 * @param row identifies the row of the key in that report
 */
export function isWhole({ message_no, seq, accepted_at, deliveries_queued }: Stored, row: string): boolean {
  const isCount = (number: number, column: string): boolean =>
    storedCount(number, 'idempotency_keys', column, row) === number;
  return (
    isCount(message_no, 'message_no') &&
    isCount(seq, 'seq') &&
    storedTime(accepted_at, 'idempotency_keys', 'accepted_at', row) === accepted_at &&
    isCount(deliveries_queued, 'deliveries_queued')
  );
}

export function storedOf(row: AcceptedRow, ids: IdCodec): Stored[] {
  const [message_nos, seqs] = [numbersIn(row.message_nos), numbersIn(row.seqs)];
  const [queued_counts, accepted_ats] = [numbersIn(row.queued_counts), numbersIn(row.accepted_ats)];
  const [instance_ids, agent_lists] = [textsIn(row.instance_ids), textsIn(row.agent_lists)];
  const fingerprints = textsIn(row.former_fingerprints);
  const hop_counts = numbersIn(row.hop_counts);
  let deliveries_at = 0;
  return numbersIn(row.places).map((place, i) => {
    const message_no = message_nos[i]!;
    const deliveries_queued = queued_counts[i]!;
    const fingerprint = fingerprints[i] ?? null;
    const deliveries: AcceptedDelivery[] = [];
    // The result lists no deliveries for an earlier message. The numbers of deliveries follow the number of their
    // message.
    const count = fingerprint === null ? deliveries_queued : 0;
    for (let n = 1; n <= count; n++, deliveries_at++) {
      deliveries.push({
        delivery_id: ids.encode('dlv', message_no + n),
        instance_id: instance_ids[deliveries_at]!,
        target_agents: agent_lists[deliveries_at]!,
      });
    }
    return {
      place,
      message_no,
      seq: seqs[i]!,
      deliveries_queued,
      accepted_at: accepted_ats[i]!,
      deliveries,
      fingerprint,
      hops: hop_counts[i] ?? 0,
    };
  });
}
