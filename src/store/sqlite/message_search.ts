import { sql } from 'kysely';
import type { IdCodec } from '../../domain/id.ts';
import type { MessageStore } from '../contract/messages.ts';
import { FOUND_COLUMNS, foundMessageOf, type FoundRow, MESSAGE_BYTES } from '../rows/messages.ts';
import { decodeCursor, pageOf } from '../rows/page.ts';
import { beyondOf, isMessageFound, type Numbers, searched } from '../rows/search.ts';
import type { Database } from './database.ts';
import { DIALECT, numbersOf, seqsOf } from './search.ts';
import type { Sync } from './sync.ts';

const COLUMNS = FOUND_COLUMNS.join(', ');

/** The numbers of the deliveries of a message follow its own number. */
const OF_DELIVERY = `
  SELECT ${COLUMNS} FROM (SELECT * FROM messages WHERE message_no < $delivery_no ORDER BY message_no DESC LIMIT 1)
  WHERE message_no + deliveries_queued >= $delivery_no`;

export function messageSearch(db: Database, ids: IdCodec): Pick<Sync<MessageStore>, 'ofDelivery' | 'search'> {
  const found = (row: unknown) => (row === undefined ? null : foundMessageOf(row as FoundRow, ids));

  return {
    ofDelivery: (delivery_id) =>
      found(db.prepare(OF_DELIVERY).get({ delivery_no: ids.decode('dlv', delivery_id) ?? 0 })),
    search({ limit, cursor, meeting_id, ...search }, reads) {
      const before = cursor === undefined ? Number.MAX_SAFE_INTEGER : (decodeCursor(cursor, ['number'])[0] as number);
      const numbers = numbersOf(db, search, before);
      const to_read = messagesIn(db, meeting_id, search.seq, numbers)
        .select(['m.message_no as number', 'm.accepted_at as made_at'])
        .select(sql<number>`${sql.raw(MESSAGE_BYTES)}`.as('row_bytes'))
        .limit(reads.rows + 1);
      const beyond = beyondOf(db.each(to_read), reads);
      const read = beyond === null ? numbers : { ...numbers, from: beyond.number + 1 };
      const query = messagesIn(db, meeting_id, search.seq, read)
        .select(FOUND_COLUMNS)
        .select(sql<number>`${sql.raw(MESSAGE_BYTES)}`.as('row_bytes'))
        .where(isMessageFound(search, DIALECT))
        .limit(limit + 1);
      const page = pageOf(
        db.each(query),
        limit,
        (row) => [row.message_no],
        (row) => foundMessageOf(row, ids),
      );
      return searched(page, beyond);
    },
  };
}

/** The messages with these numbers, newest first. */
function messagesIn(db: Database, meeting_id: string | undefined, seq: number | undefined, { from, below }: Numbers) {
  const query = db.build.selectFrom('messages as m').where('m.message_no', '<', below);
  if (meeting_id === undefined) return query.where('m.message_no', '>=', from).orderBy('m.message_no', 'desc');
  const of_meeting = query.where('m.meeting_id', '=', meeting_id);
  if (seq !== undefined) return of_meeting.where('m.seq', '=', seq).orderBy('m.seq', 'desc');
  const { above, up_to } = seqsOf(db, meeting_id, { from, below });
  return of_meeting.where('m.seq', '>', above).where('m.seq', '<=', up_to).orderBy('m.seq', 'desc');
}
