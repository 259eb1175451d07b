import type { FileSpace, FileStore } from '../../contract/file.ts';
import type { Database } from '../database.ts';
import type { Sync } from '../sync.ts';

/** How many pages are moved before the clock is read again. To move them takes a fifth of a millisecond. */
const PAGES_AT_ONCE = 8;

/** The value of `PRAGMA auto_vacuum` with which free pages can be given back in pieces. */
const INCREMENTAL = 2;

/** Counts the pages of the file, and gives free pages back to the disk. */
export function fileOperations(db: Database): Sync<FileStore> {
  const pragma = (name: string): number => Number(Object.values(db.prepare(`PRAGMA ${name}`).get()!)[0]);
  const space = (): FileSpace => ({
    page_bytes: pragma('page_size'),
    pages: pragma('page_count'),
    free_pages: pragma('freelist_count'),
    gives_back: pragma('auto_vacuum') === INCREMENTAL,
  });
  return {
    space,
    giveBack(pages_max: number, ms_max: number) {
      const before = pragma('page_count');
      const until_ms = performance.now() + ms_max;
      for (let pages = 0; pages < pages_max && !db.is_copied; pages += PAGES_AT_ONCE) {
        db.exec(`PRAGMA incremental_vacuum(${PAGES_AT_ONCE})`);
        if (performance.now() > until_ms) break;
      }
      const after = space();
      return { ...after, given_back: before - after.pages };
    },
    cutOff: () => db.checkpointAfterCommit(),
  };
}
