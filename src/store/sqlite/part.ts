import type { Reads } from '../contract/search.ts';
import { endOf, type IdList, partOf } from '../rows/part.ts';
import type { Database } from './database.ts';

/** The last id that one call reads; null when it reads the whole list. Reads none of the long columns. */
export function lastRead(db: Database, list: IdList, reads: Reads): string | null {
  for (let { rows: rows_max } = reads; ;) {
    const [part] = db.all(db.build.selectFrom(partOf(list, rows_max).as('part')).selectAll());
    const end = endOf(part!, rows_max, reads);
    if (end.last !== undefined) return end.last;
    ({ rows_max } = end);
  }
}
