import type { Reads } from '../contract/search.ts';
import { endOf, type IdList, partOf } from '../rows/part.ts';
import { build, type Session } from './database.ts';

/** The last id that one call reads; null when it reads the whole list. Reads none of the long columns. */
export async function lastRead(session: Session, list: IdList, reads: Reads): Promise<string | null> {
  for (let { rows: rows_max } = reads; ;) {
    const [part] = await session.built(build.selectFrom(partOf(list, rows_max).as('part')).selectAll());
    const end = endOf(part!, rows_max, reads);
    if (end.last !== undefined) return end.last;
    ({ rows_max } = end);
  }
}
