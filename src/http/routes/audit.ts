import type { Clock } from '../../delivery/clock.ts';
import type { AuditEntry } from '../../domain/audit.ts';
import type { Store } from '../../store/store.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { AuditEntrySchema, ListAuditQuery } from '../schemas/audit.ts';
import { searchPageOf } from '../schemas/page.ts';
import { SEARCH_MS_MAX, searchOn, wireSearched } from './searches.ts';

export interface AuditContext {
  store: { audit: Pick<Store['audit'], 'list'> };
  clock: Clock;
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
      'Every change, and every refused request for a change. Each entry has the hash of the previous one: docs/audit.md says how to verify them. With action, since or until, and with both key_id and instance_id, the service has to read entries, and one request reads a limited number. When it stops at that limit, `searched_to` says how far it came, and next_cursor continues there.',
    querystring: ListAuditQuery,
    response: responses({ 200: ['A page of entries.', searchPageOf(AuditEntrySchema)], codes: ['invalid_fields'] }),
  },
} satisfies RouteShape;

async function listAudit({ store, clock }: AuditContext, { query }: RequestFor<typeof LIST_AUDIT>) {
  const { order, key_id, since, until, limit = 50, cursor, ...filter } = query;
  const wanted = {
    ...filter,
    newest_first: order !== 'oldest',
    principal: key_id,
    since_ms: since === undefined ? undefined : Date.parse(since),
    until_ms: until === undefined ? undefined : Date.parse(until),
  };
  const found = await searchOn<AuditEntry>(
    { limit, cursor },
    { clock, ms_max: SEARCH_MS_MAX },
    ({ details }) => JSON.stringify(details).length,
    (page, { rows }) => store.audit.list({ ...wanted, ...page }, rows),
  );
  return { data: found.data, ...wireSearched(found) };
}
