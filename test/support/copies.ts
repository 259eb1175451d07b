/** The backups of a new data file, made in this thread. */
import type { TestContext } from 'node:test';
import { MessageChannel } from 'node:worker_threads';
import { Backups, CopyMaker } from '../../src/store/sqlite/file/backups.ts';
import { GroupCommit } from '../../src/store/sqlite/group_commit.ts';
import { temporaryFile } from './node.ts';
import { until } from './wait.ts';

export interface Copies {
  file: string;
  backups: Backups;
  /** Makes a copy, and leaves it to be taken. Returns its id. */
  makeCopy: () => Promise<string>;
}

/** @param forgotten_ms see Backups */
export function startCopies(t: TestContext, forgotten_ms?: number): Copies {
  const file = temporaryFile(t);
  const group_commit = new GroupCommit(file, { kind: 'memory' }, Date.now);
  const { port1, port2 } = new MessageChannel();
  const maker = new CopyMaker(port2, file, group_commit);
  const backups = new Backups(port1, file, forgotten_ms);
  t.after(async () => {
    await maker.close();
    group_commit.close();
  });
  const makeCopy = async (): Promise<string> => {
    const { backup_id } = await backups.begin();
    await until(
      'a whole copy',
      () => backups.wait(backup_id, 1_000),
      (backup) => backup?.is_whole === true,
    );
    return backup_id;
  };
  return { file, backups, makeCopy };
}
