/** Messages as both engines read them. */
import type { MessageOrigin } from '../../domain/message_origin.ts';
import type { IdCodec } from '../../domain/id.ts';
import { EXCERPT_CHARS, type FoundMessage, type MessageBrief } from '../contract/messages.ts';
import type { MessageHead, MessageRow } from '../contract/messages.ts';
import { storedCount, storedObjectJson, storedTextsOrNull, storedTrace } from './stored_values.ts';
import type { MessagesTable } from './tables.ts';

/** The columns of `MessageOrigin`. */
export type OriginColumns = Pick<MessagesTable, 'from_agent' | 'in_reply_to' | 'hops'>;

/** The columns of a message that a list of the messages of a meeting reads. */
export type PagedRow = OriginColumns &
  Pick<MessagesTable, 'message_no' | 'seq' | 'accepted_at' | 'deliveries_queued' | 'target_agents' | 'message'>;

/** The columns of a PagedRow. */
export const PAGED_COLUMNS =
  'message_no, seq, accepted_at, deliveries_queued, target_agents, message, from_agent, in_reply_to, hops';

export function originOf(
  { from_agent, in_reply_to, hops }: OriginColumns,
  message_no: number,
  ids: IdCodec,
): MessageOrigin | null {
  if (from_agent === null && in_reply_to === null) return null;
  return {
    from_agent,
    in_reply_to: in_reply_to === null ? null : ids.encode('msg', in_reply_to),
    hops: storedCount(hops, 'messages', 'hops', String(message_no)),
  };
}

/** Makes a page from at most `limit + 1` rows, and takes no more rows than it needs. The first message always fits. */
export function pageOfMessages(
  rows: Iterable<PagedRow>,
  { limit, chars_max, forward }: { limit: number; chars_max: number; forward: boolean },
  ids: IdCodec,
): { data: MessageRow[]; has_more: boolean } {
  const data: MessageRow[] = [];
  let has_more = false;
  let chars = 0;
  for (const row of rows) {
    chars += row.message.length;
    has_more = data.length === limit || (chars > chars_max && data.length > 0);
    if (has_more) break;
    data.push(messageOf(row, ids));
  }
  if (!forward) data.reverse();
  return { data, has_more };
}

function messageOf(
  { message_no, seq, accepted_at, deliveries_queued, target_agents, message, ...origin }: PagedRow,
  ids: IdCodec,
): MessageRow {
  return {
    message_id: ids.encode('msg', message_no),
    seq,
    accepted_at,
    deliveries_queued,
    target_agents: targetsOf(target_agents, message_no),
    origin: originOf(origin, message_no, ids),
    message: storedObjectJson(message, 'messages', 'message', String(message_no)),
  };
}

export type FoundRow = PagedRow & Pick<MessagesTable, 'meeting_id' | 'trace'>;

export const FOUND_COLUMNS = [
  'meeting_id',
  'deliveries_queued',
  'message_no',
  'seq',
  'accepted_at',
  'target_agents',
  'message',
  'from_agent',
  'in_reply_to',
  'hops',
  'trace',
] as const satisfies (keyof FoundRow)[];

/** The bytes of the long columns of `m`. */
export const MESSAGE_BYTES = 'octet_length(m.message) + coalesce(octet_length(m.target_agents), 0)';

export function foundMessageOf({ meeting_id, trace, ...row }: FoundRow, ids: IdCodec): FoundMessage {
  return { meeting_id, trace: storedTrace(trace, row.message_no), ...messageOf(row, ids) };
}

export type BriefRow = OriginColumns & Pick<MessagesTable, 'message_no' | 'seq' | 'accepted_at'> & { excerpt: string };

/** The columns of a BriefRow of the messages `m`. In both engines `substr` counts code points. */
export const BRIEF_COLUMNS = `m.message_no, m.seq, m.accepted_at, m.from_agent, m.in_reply_to, m.hops, substr(m.message, 1, ${EXCERPT_CHARS}) AS excerpt`;

export function briefOf({ message_no, seq, accepted_at, excerpt, ...origin }: BriefRow, ids: IdCodec): MessageBrief {
  return {
    message_id: ids.encode('msg', message_no),
    seq,
    accepted_at,
    origin: originOf(origin, message_no, ids),
    excerpt,
  };
}

/** How many messages a search for answers reads, and the seq of the last of them. */
export const SCANNED = `
  SELECT count(*) AS scanned, max(seq) AS last_seq FROM (
    SELECT seq FROM messages WHERE meeting_id = $meeting_id AND seq > $after_seq ORDER BY seq LIMIT $scan) page`;

export interface Scanned {
  scanned: number;
  last_seq: number | null;
}

/** The first message that a call of `since` does not look at any more. */
export const BEYOND_SCAN = `
  SELECT message_no FROM messages WHERE message_no > $after ORDER BY message_no LIMIT 1 OFFSET $scan`;

export const ANSWERS = `
  SELECT ${BRIEF_COLUMNS} FROM messages m
  WHERE m.meeting_id = $meeting_id AND m.seq > $after_seq AND m.seq <= $last_seq AND m.in_reply_to = $message_no
  ORDER BY m.seq`;

/** Stops at a message of another meeting, because a message answers only messages of its own meeting. */
export const ANSWERED_CHAIN = `
  WITH RECURSIVE chain AS (
    SELECT 0 AS distance, message_no, meeting_id, in_reply_to FROM messages WHERE message_no = $message_no
    UNION ALL
    SELECT chain.distance + 1, m.message_no, m.meeting_id, m.in_reply_to FROM chain
      JOIN messages m ON m.message_no = chain.in_reply_to AND m.meeting_id = chain.meeting_id
    WHERE chain.distance < $limit)
  SELECT ${BRIEF_COLUMNS} FROM chain JOIN messages m ON m.message_no = chain.message_no
  WHERE chain.distance > 0 ORDER BY chain.distance`;

export type HeadRow = Omit<MessagesTable, 'timestamp' | 'message' | 'trace'>;

/**
 * Makes a page from `limit + 1` rows, as `pageOfMessages` does. Here `chars_max` bounds the lists of agents.
 *
 * @param is_cut whether messages follow that the call did not look at
 */
export function pageOfHeads(
  rows: Iterable<HeadRow>,
  { limit, chars_max, is_cut }: { limit: number; chars_max: number; is_cut: boolean },
  ids: IdCodec,
): { data: MessageHead[]; has_more: boolean } {
  const data: MessageHead[] = [];
  let chars = 0;
  for (const { message_no, target_agents, from_agent, in_reply_to, hops, ...head } of rows) {
    chars += target_agents?.length ?? 0;
    if (data.length === limit || (chars > chars_max && data.length > 0)) return { data, has_more: true };
    data.push({
      message_id: ids.encode('msg', message_no),
      ...head,
      target_agents: targetsOf(target_agents, message_no),
      origin: originOf({ from_agent, in_reply_to, hops }, message_no, ids),
    });
  }
  return { data, has_more: is_cut };
}

function targetsOf(target_agents: string | null, message_no: number): string[] | null {
  return storedTextsOrNull(target_agents, 'messages', 'target_agents', String(message_no));
}
