import type { FastifyReply } from 'fastify';
import { createReadStream, fstatSync } from 'node:fs';
import type { Changes } from '../../changes/changes.ts';
import type { Clock } from '../../delivery/clock.ts';
import { Problem } from '../../domain/problem.ts';
import type { Store } from '../../store/store.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import { isAwaited } from '../on_closed.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { BACKUP_TYPE, BackupFile, BackupParams, BackupProgressSchema, BackupSchema } from '../schemas/backups.ts';
import { assertStanding, type Standing, watchStanding } from '../auth/standing.ts';

/** How long a call waits for the copy at most, so that it responds well before a client or a proxy gives up. */
const CALL_MS_MAX = 2_000;

export interface BackupContext {
  store: Pick<Store, 'backups'>;
  changes: Pick<Changes, 'service'>;
  clock: Clock;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
}

export function backupRoutes(app: App, context: BackupContext): void {
  app.post('/api/v1/backups/', BEGIN_BACKUP, (request, reply) => beginBackup(context, request, reply));
  app.get('/api/v1/backups/:backup_id/', FETCH_BACKUP, (request, reply) => fetchBackup(context, request, reply));
}

const BEGIN_BACKUP = {
  config: { access: ['admin'], audit: { action: 'service.backup', target: 'service' } },
  schema: {
    operationId: 'beginBackup',
    tags: ['service'],
    summary: 'Begin a copy of all data, while the service runs',
    description: 'The copy contains everything that was accepted before this call. Ask for it until it is complete.',
    response: responses({
      201: ['It is being made.', BackupSchema],
      codes: ['backup_under_way', 'backup_no_room', 'backup_not_made_here'],
    }),
  },
} satisfies RouteShape;

async function beginBackup(
  { changes, audit_trail }: BackupContext,
  request: RequestFor<typeof BEGIN_BACKUP>,
  reply: FastifyReply,
) {
  const backup = await changes.service.beginBackup(audit_trail.authorOf(request));
  return reply.code(201).send(backup);
}

const FETCH_BACKUP = {
  // A HEAD request must not remove the file.
  exposeHeadRoute: false,
  config: { access: ['admin'] },
  schema: {
    operationId: 'fetchBackup',
    tags: ['service'],
    summary: 'The copy, once',
    description:
      'A SQLite file when the copy is complete; until then its progress. You can fetch it once. It is removed when no call asks for it for a minute.',
    params: BackupParams,
    response: responses({
      200: ['The file.', BackupFile],
      202: ['The copy is not complete yet: ask again.', BackupProgressSchema],
      codes: ['backup_does_not_exist', 'backup_not_made_here'],
    }),
  },
} satisfies RouteShape;

async function fetchBackup(
  { store, clock }: BackupContext,
  { params, standing }: RequestFor<typeof FETCH_BACKUP>,
  reply: FastifyReply,
) {
  const { backups } = store;
  if (backups === undefined) throw new Problem('backup_not_made_here');
  const backup = await backups.wait(params.backup_id, CALL_MS_MAX);
  if (backup === null) throw new Problem('backup_does_not_exist');
  assertStanding(standing);
  const { is_whole, ...progress } = backup;
  if (!is_whole) return reply.code(202).send(progress);
  // The copy stays for the next call of a client that has left, or that got a response because the storage stalled.
  if (!isAwaited(reply.raw)) return reply.hijack();
  // No other code may run until the headers are written. Otherwise the storage could stall after the copy was taken,
  // and the client would get 503 instead of the copy.
  const fd = backups.take(params.backup_id);
  if (fd === null) throw new Problem('backup_does_not_exist');
  const { size } = fstatSync(fd);
  const copy = createReadStream('', { fd, highWaterMark: 1 << 20 });
  // A download can take long. It ends when its key or session ends.
  copy.once(
    'close',
    watchStanding(standing as Standing, clock, (ended) => copy.destroy(new Problem(ended))),
  );
  reply.type(BACKUP_TYPE).header('content-length', size).send(copy);
  reply.raw.flushHeaders();
  return reply;
}
