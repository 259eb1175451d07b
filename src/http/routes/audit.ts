import type { Store } from '../../store/store.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { AuditEntrySchema, ListAuditQuery } from '../schemas/audit.ts';
import { pageOf } from '../schemas/page.ts';

export interface AuditContext {
  store: { audit: Pick<Store['audit'], 'list'> };
}

export function auditRoutes(app: App, context: AuditContext): void {
  app.get('/api/v1/audit/', LIST_AUDIT, (request) => listAudit(context, request));
}

const LIST_AUDIT = {
  config: { access: ['admin'] },
  schema: {
    operationId: 'listAudit',
    tags: ['audit'],
    summary: 'Who changed what, from where and when',
    description:
      'Every change, and every refused request for a change. Each entry has the hash of the previous one: docs/audit.md says how to verify them.',
    querystring: ListAuditQuery,
    response: responses({ 200: ['A page of entries.', pageOf(AuditEntrySchema)], codes: ['invalid_fields'] }),
  },
} satisfies RouteShape;

async function listAudit({ store }: AuditContext, { query }: RequestFor<typeof LIST_AUDIT>) {
  const { order, key_id, since, until, limit = 50, ...filter } = query;
  return store.audit.list({
    ...filter,
    limit,
    newest_first: order !== 'oldest',
    principal: key_id,
    since_ms: since === undefined ? undefined : Date.parse(since),
    until_ms: until === undefined ? undefined : Date.parse(until),
  });
}
