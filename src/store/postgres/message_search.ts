import { sql } from 'kysely';
import type { IdCodec } from '../../domain/id.ts';
import type { MessageStore } from '../contract/messages.ts';
import { FOUND_COLUMNS, foundMessageOf, type FoundRow, MESSAGE_BYTES } from '../rows/messages.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import { isMessageFound, type Numbers, searched } from '../rows/search.ts';
import { build, type Session, statement } from './database.ts';
import { rowsOfPage } from './page.ts';
import { beyondOf, DIALECT, LAST_OF_MESSAGE, numbersOf, seqsOf } from './search.ts';

const COLUMNS = FOUND_COLUMNS.join(', ');

/** The numbers of the deliveries of a message follow its own number. */
const OF_DELIVERY = statement(`
  SELECT ${COLUMNS} FROM (
    SELECT ${COLUMNS} FROM messages WHERE message_no < $delivery_no ORDER BY message_no DESC LIMIT 1) m
  WHERE ${LAST_OF_MESSAGE} >= $delivery_no`);

export function messageSearch(session: Session, ids: IdCodec): Pick<MessageStore, 'ofDelivery' | 'search'> {
  const found = (row: FoundRow | undefined) => (row === undefined ? null : foundMessageOf(row, ids));

  return {
    ofDelivery: async (delivery_id) =>
      found(await session.one<FoundRow>(OF_DELIVERY, { delivery_no: ids.decode('dlv', delivery_id) ?? 0 })),
    async search({ limit, cursor, meeting_id, ...search }, reads) {
      const before = cursor === undefined ? Number.MAX_SAFE_INTEGER : (decodeCursor(cursor, ['number'])[0] as number);
      const numbers = await numbersOf(session, search, before);
      const to_read = (await messagesIn(session, meeting_id, search.seq, numbers))
        .select(['m.message_no as number', 'm.accepted_at as made_at'])
        .select(sql<number>`${sql.raw(MESSAGE_BYTES)}`.as('row_bytes'))
        .limit(reads.rows + 1);
      const beyond = await beyondOf(session, to_read, reads);
      const read = beyond === null ? numbers : { ...numbers, from: beyond.number + 1 };
      const query = (await messagesIn(session, meeting_id, search.seq, read))
        .select(FOUND_COLUMNS)
        .select(sql<number>`${sql.raw(MESSAGE_BYTES)}`.as('row_bytes'))
        .where(isMessageFound(search, DIALECT))
        .limit(limit + 1);
      const page = pageOf(
        await rowsOfPage(session, query, 'message_no DESC'),
        limit,
        (row) => [row.message_no],
        (row) => foundMessageOf(row, ids),
      );
      return searched(page, beyond);
    },
  };
}

/** The messages with these numbers, newest first. */
async function messagesIn(
  session: Session,
  meeting_id: string | undefined,
  seq: number | undefined,
  { from, below }: Numbers,
) {
  const query = build.selectFrom('messages as m').where('m.message_no', '<', below);
  if (meeting_id === undefined) return query.where('m.message_no', '>=', from).orderBy('m.message_no', 'desc');
  const of_meeting = query.where('m.meeting_id', '=', meeting_id);
  if (seq !== undefined) return of_meeting.where('m.seq', '=', seq).orderBy('m.seq', 'desc');
  const [{ above, up_to } = { above: 0, up_to: 0 }] = await seqsOf(session, [meeting_id], { from, below });
  return of_meeting.where('m.seq', '>', above).where('m.seq', '<=', up_to).orderBy('m.seq', 'desc');
}
