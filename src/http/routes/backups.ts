import { createReadStream } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { Problem } from '../../domain/problem.ts';
import type { BackupStore } from '../../store/contract/backups.ts';
import type { Store } from '../../store/store.ts';
import { responses } from '../responses.ts';
import type { App, HttpContext } from '../context.ts';
import { BACKUP_TYPE, BackupFile, BackupParams, BackupProgressSchema, BackupSchema } from '../schemas/backups.ts';
import { type Standing, watchStanding } from '../auth/standing.ts';

/** A call answers after about this time, well before a client or a proxy gives up. */
const CALL_MS_MAX = 2_000;

export function backupRoutes(app: App, { store, clock, audit_trail }: HttpContext): void {
  app.post(
    '/api/v1/backups/',
    {
      config: { access: ['admin'], audit: { action: 'service.backup', target: 'service' } },
      schema: {
        operationId: 'beginBackup',
        tags: ['service'],
        summary: 'Begin a copy of all data, while everything goes on',
        description: 'It holds everything that was answered before this call. Ask for it until it is whole.',
        response: responses({
          201: ['It is being made.', BackupSchema],
          codes: ['backup_under_way', 'backup_no_room', 'backup_not_made_here'],
        }),
      },
    },
    async (request, reply) => {
      const backup = await backupsOf(store).begin();
      await audit_trail.done(request);
      return reply.code(201).send(backup);
    },
  );

  app.get(
    '/api/v1/backups/:backup_id/',
    {
      config: { access: ['admin'] },
      schema: {
        operationId: 'fetchBackup',
        tags: ['service'],
        summary: 'The copy, once',
        description:
          'A SQLite file when it is whole; until then how far it is. It is handed over once, and removed when nobody asks for it for a minute.',
        params: BackupParams,
        response: responses({
          200: ['The file.', BackupFile],
          202: ['It is not whole yet: ask again.', BackupProgressSchema],
          codes: ['backup_does_not_exist', 'backup_not_made_here'],
        }),
      },
    },
    async ({ params, standing }, reply) => {
      const backup = await backupsOf(store).wait(params.backup_id, CALL_MS_MAX);
      if (backup === null) throw new Problem('backup_does_not_exist');
      const { path, ...progress } = backup;
      const code = (standing as Standing).revocationReason();
      if (code !== null) {
        if (path !== null) await rm(path, { force: true });
        throw new Problem(code);
      }
      if (path === null) return reply.code(202).send(progress);
      const file = await open(path, 'r');
      // From here on it is nobody's: however the answer ends, nothing of it stays.
      await rm(path, { force: true });
      const { size } = await file.stat();
      const copy = createReadStream('', { fd: file, highWaterMark: 1 << 20 });
      // It takes as long as its reader likes.
      copy.once(
        'close',
        watchStanding(standing as Standing, clock, (ended) => copy.destroy(new Problem(ended))),
      );
      return reply
        .type(BACKUP_TYPE)
        .header('content-length', size)
        .send(copy as never);
    },
  );
}

function backupsOf({ backups }: Store): BackupStore {
  if (backups === undefined) throw new Problem('backup_not_made_here');
  return backups;
}
