/** A batch of messages, in the columns that accept_messages_5 takes. */
import type { GenerationCache } from '../../../domain/generation_cache.ts';
import type { IdCodec } from '../../../domain/id.ts';
import type { RefusedField } from '../../../domain/message_origin.ts';
import type { Accepted, NewMessage } from '../../contract/messages.ts';
import { type BatchValue, bigints, ints, texts } from '../connection/batch_message.ts';
import { raisedDetail } from '../connection/connection.ts';
import { REFUSED } from '../functions/who_says.ts';
import { timestampText } from '../timestamp.ts';

/** The columns of a batch, as accept_messages_5 takes them. Of messages with the same key, only the first is sent. */
export interface Batch {
  columns: BatchValue[];
  meeting_ids: string[];
  sent: NewMessage[];
  /** For each message, its place among the sent messages, counted from 0. */
  places: number[];
}

/** The refused messages of a batch, by place, from 1; null when the batch failed for another reason. */
export function refusedIn(error: unknown): Map<number, RefusedField> | null {
  const detail = raisedDetail(error, REFUSED);
  return detail === null ? null : new Map(JSON.parse(detail) as [number, RefusedField][]);
}

/**
 * The results of the refused messages of a batch; null for the others. The database has judged only the first message
 * with each key. If that message is refused, its repetitions are refused too. A different message with its key is sent
 * again with the others, but only once. Otherwise a batch with many such messages would be sent many times.
 *
 * @param refused the refused fields; the key is the place of the message in the batch, from 1
 */
export function refusalsOf(
  messages: readonly NewMessage[],
  { places, sent }: Batch,
  refused: ReadonlyMap<number, RefusedField>,
  frees_keys: boolean,
): (Accepted | null)[] {
  const freed = new Set<number>();
  return messages.map(({ idempotency }, i) => {
    const place = places[i]!;
    const field = refused.get(place + 1);
    if (field === undefined || freed.has(place)) return null;
    if (idempotency?.fingerprint === sent[place]!.idempotency?.fingerprint) return { kind: 'refused', field };
    if (!frees_keys) return { kind: 'key_reused' };
    freed.add(place);
    return null;
  });
}

/** @param hints a known seq of each meeting */
export function batchOf(messages: NewMessage[], hints: GenerationCache<number>, ids: IdCodec): Batch {
  const meetings = new Map<string, { place: number; created_at: number; count: number }>();
  const first_with_key = new Map<string, number>();
  const places: number[] = [];
  const sent: NewMessage[] = [];
  for (const message of messages) {
    const { meeting_id, idempotency, wall_ms } = message;
    const key = idempotency === null ? null : `${meeting_id}\n${idempotency.sender}\n${idempotency.key}`;
    const first = key === null ? undefined : first_with_key.get(key);
    if (first !== undefined) {
      places.push(first);
      continue;
    }
    if (key !== null) first_with_key.set(key, sent.length);
    places.push(sent.length);
    sent.push(message);
    const meeting = meetings.get(meeting_id);
    if (meeting === undefined) meetings.set(meeting_id, { place: 0, created_at: wall_ms, count: 1 });
    else meeting.count++;
  }
  // All nodes lock meetings in the same order.
  const sorted = [...meetings].toSorted(([a], [b]) => (a < b ? -1 : 1));
  for (const [i, [, meeting]] of sorted.entries()) meeting.place = i + 1;
  const columns = [
    texts(sorted.map(([meeting_id]) => meeting_id)),
    bigints(sorted.map(([, { created_at }]) => created_at)),
    bigints(sorted.map(([, { count }]) => count)),
    bigints(sorted.map(([meeting_id]) => hints.get(meeting_id) ?? null)),
    ints(sent.map(({ meeting_id }) => meetings.get(meeting_id)!.place)),
    bigints(sent.map(({ wall_ms }) => wall_ms)),
    bigints(sent.map(({ expires_at }) => expires_at)),
    texts(sent.map(({ target_agents }) => (target_agents === null ? null : JSON.stringify(target_agents)))),
    texts(sent.map(({ timestamp }) => timestampText(timestamp))),
    texts(sent.map(({ message }) => message)),
    ...originColumns(sent, ids),
    texts(sent.some(({ trace }) => trace !== null) ? sent.map(({ trace }) => trace) : []),
    first_with_key.size > 0,
    texts(sent.map(({ idempotency }) => idempotency?.key ?? null)),
    texts(sent.map(({ idempotency }) => idempotency?.sender ?? null)),
    texts(sent.map(({ idempotency }) => idempotency?.fingerprint ?? null)),
  ];
  return { columns, meeting_ids: sorted.map(([meeting_id]) => meeting_id), sent, places };
}

/**
 * The columns with the senders of messages and the messages that they answer. The lists are empty when no message of
 * the batch has a sender or answers another.
 */
function originColumns(sent: readonly NewMessage[], ids: IdCodec): BatchValue[] {
  const has_said = sent.some(({ origin }) => origin !== null);
  const given = has_said ? sent.map(({ origin }) => origin) : [];
  // No message has the number 0.
  const numberOf = (message_id: string): number => ids.decode('msg', message_id) ?? 0;
  const speaks_for = given.map((origin) => (origin === null || origin.from_agent === null ? null : origin.speaks_for));
  return [
    has_said,
    texts(given.map((origin) => origin?.from_agent ?? null)),
    bigints(
      given.map((origin) => (origin === null || origin.in_reply_to === null ? null : numberOf(origin.in_reply_to))),
    ),
    texts(speaks_for.map((scope) => scope?.key_id ?? null)),
    texts(speaks_for.map((scope) => scope?.instance_id ?? null)),
  ];
}
