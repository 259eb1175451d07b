import { responses } from '../responses.ts';
import type { App, HttpContext } from '../context.ts';
import { AuditEntrySchema, ListAuditQuery } from '../schemas/audit.ts';
import { pageOf } from '../schemas/page.ts';

export function auditRoutes(app: App, { store }: HttpContext): void {
  app.get(
    '/api/v1/audit/',
    {
      config: { access: ['admin'] },
      schema: {
        operationId: 'listAudit',
        tags: ['audit'],
        summary: 'Who did what to what, from where and when',
        description:
          'Every change, and every request for one that was refused. Each entry carries the hash of the one before it: docs/audit.md says how to verify them.',
        querystring: ListAuditQuery,
        response: responses({ 200: ['A page of entries.', pageOf(AuditEntrySchema)], codes: ['invalid_fields'] }),
      },
    },
    ({ query }) => {
      const { order, key_id, since, until, limit = 50, ...filter } = query;
      return store.audit.list({
        ...filter,
        limit,
        newest_first: order !== 'oldest',
        principal: key_id,
        since_ms: since === undefined ? undefined : Date.parse(since),
        until_ms: until === undefined ? undefined : Date.parse(until),
      });
    },
  );
}
