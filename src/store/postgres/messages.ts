import type { IdCodec } from '../../domain/id.ts';
import type { MessageStore } from '../contract/messages.ts';
import {
  ANSWERED_CHAIN,
  ANSWERS,
  BEYOND_SCAN,
  briefOf,
  type BriefRow,
  FOUND_COLUMNS,
  foundMessageOf,
  type FoundRow,
  type HeadRow,
  pageOfHeads,
  PAGED_COLUMNS,
  type PagedRow,
  pageOfMessages,
  SCANNED,
  type Scanned,
} from '../rows/messages.ts';
import { type Session, statement } from './database.ts';
import { messageSearch } from './message_search.ts';
import { LAST_OF_MESSAGE } from './search.ts';

const EXISTS = statement('SELECT 1 FROM meetings WHERE meeting_id = $meeting_id');

/**
 * The rows that fit into the limit of characters, and up to two more: the page always has its first row, and a further
 * row shows that there is more. `pageOfMessages` cuts off the rest.
 */
const list = (order: 'ASC' | 'DESC') =>
  statement(`
    SELECT ${PAGED_COLUMNS} FROM (
      SELECT page.*, coalesce(sum(length(page.message)) OVER (ORDER BY page.seq ${order} ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING), 0) AS chars_before FROM (
        SELECT * FROM messages WHERE meeting_id = $meeting_id AND seq > $after_seq AND seq < $before_seq
        ORDER BY seq ${order} LIMIT $limit) page) cut
    WHERE chars_before <= $chars_max ORDER BY seq ${order}`);

const LAST = statement('SELECT max(message_no) AS last FROM messages');

const HEAD_COLUMNS =
  'message_no, meeting_id, seq, accepted_at, deliveries_queued, target_agents, from_agent, in_reply_to, hops';

/** The rows that fit into the limit of characters, and up to two more, as in `list`. */
const HEADS_SINCE = statement(`
  SELECT ${HEAD_COLUMNS} FROM (
    SELECT page.*, coalesce(sum(length(page.target_agents)) OVER (ORDER BY page.message_no ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING), 0) AS chars_before FROM (
      SELECT ${HEAD_COLUMNS} FROM messages m
      WHERE message_no > $after AND message_no < $below
        AND ($meeting_ids::text[] IS NULL OR meeting_id = ANY ($meeting_ids))
        AND ($instance_id::text IS NULL OR EXISTS (SELECT 1 FROM deliveries d
          WHERE d.delivery_no > m.message_no AND d.delivery_no <= ${LAST_OF_MESSAGE} AND d.instance_id = $instance_id))
      ORDER BY message_no LIMIT $limit) page) cut
  WHERE chars_before <= $chars_max ORDER BY message_no`);

const FIRST_BEYOND = statement(BEYOND_SCAN);

const FIND = statement(`SELECT ${FOUND_COLUMNS.join(', ')} FROM messages WHERE message_no = $message_no`);
const ANSWERED_BY = statement(ANSWERED_CHAIN);
const LAST_SCANNED = statement(SCANNED);
const ANSWERS_TO = statement(ANSWERS);

const FORWARD = list('ASC');
const BACKWARD = list('DESC');

export function messageOperations(session: Session, { ids }: { ids: IdCodec }): Omit<MessageStore, 'accept'> {
  const numberOf = (message_id: string): number => ids.decode('msg', message_id) ?? 0;

  return {
    async list(meeting_id, { after_seq, before_seq, limit, chars_max }) {
      if ((await session.one(EXISTS, { meeting_id })) === undefined) return null;
      const forward = after_seq !== undefined;
      const rows = await session.all<PagedRow>(forward ? FORWARD : BACKWARD, {
        meeting_id,
        after_seq: after_seq ?? 0,
        before_seq: before_seq ?? Number.MAX_SAFE_INTEGER,
        limit: limit + 1,
        chars_max,
      });
      return pageOfMessages(rows, { limit, chars_max, forward }, ids);
    },
    async get(message_id) {
      const row = await session.one<FoundRow>(FIND, { message_no: numberOf(message_id) });
      return row === undefined ? null : foundMessageOf(row, ids);
    },
    ...messageSearch(session, ids),
    async answeredBy(message_id, limit) {
      const rows = await session.all<BriefRow>(ANSWERED_BY, { message_no: numberOf(message_id), limit });
      return rows.map((row) => briefOf(row, ids));
    },
    async answersTo(message_id, meeting_id, after_seq, scan) {
      const { scanned, last_seq } = (await session.one<Scanned>(LAST_SCANNED, { meeting_id, after_seq, scan }))!;
      if (last_seq === null) return { data: [], next_seq: null };
      const values = { meeting_id, after_seq, last_seq, message_no: numberOf(message_id) };
      const rows = await session.all<BriefRow>(ANSWERS_TO, values);
      return { data: rows.map((row) => briefOf(row, ids)), next_seq: scanned < scan ? null : last_seq };
    },
    async last() {
      const { last } = (await session.one<{ last: number | null }>(LAST))!;
      return last === null ? null : ids.encode('msg', last);
    },
    async since(after_id, { meeting_ids, instance_id, scan, limit, chars_max }) {
      // A message_id of another database has no place in the order of these messages: all of them count as later.
      const after = after_id === null ? 0 : numberOf(after_id);
      const beyond = await session.one<{ message_no: number }>(FIRST_BEYOND, { after, scan });
      const rows = await session.all<HeadRow>(HEADS_SINCE, {
        after,
        below: beyond?.message_no ?? Number.MAX_SAFE_INTEGER,
        meeting_ids: meeting_ids ?? null,
        instance_id: instance_id ?? null,
        limit: limit + 1,
        chars_max,
      });
      return pageOfHeads(rows, { limit, chars_max, is_cut: beyond !== undefined }, ids);
    },
  };
}
