import type { Counts } from '../../delivery/counts.ts';
import type { History } from '../../delivery/history.ts';
import type { InstanceHistory } from '../../delivery/instance_history.ts';
import { assertNoMeetingLimit } from '../../domain/access.ts';
import { isoTime, isoTimeOrNull } from '../../domain/time.ts';
import type { InstanceStore } from '../../store/contract/instances.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { CountsSchema, HistoryQuery, HistorySchema, InstanceHistorySchema } from '../schemas/figures.ts';
import { InstanceParams } from '../schemas/instances.ts';
import { existing } from './instances.ts';

export interface FigureContext {
  counts: Pick<Counts, 'of'>;
  history: Pick<History, 'read'>;
  instance_history: Pick<InstanceHistory, 'read'>;
  store: { instances: Pick<InstanceStore, 'find'> };
}

export function figureRoutes(app: App, context: FigureContext): void {
  app.get('/api/v1/counts/', GET_COUNTS, (request) => getCounts(context, request));
  app.get('/api/v1/history/', GET_HISTORY, (request) => getHistory(context, request));
  app.get('/api/v1/instances/:instance_id/history/', GET_INSTANCE_HISTORY, (request) =>
    getInstanceHistory(context, request),
  );
}

const GET_COUNTS = {
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'getCounts',
    tags: ['service'],
    summary: 'How many instances are in each state, and how many deliveries are pending',
    description:
      'Counts the rows that the lists of instances and deliveries would show to this key. A service with many instances counts again only after a while, so that counting takes at most 5 % of its time; `counted_at` says when it counted.',
    response: responses({ 200: ['The counts.', CountsSchema], codes: [] }),
  },
} satisfies RouteShape;

async function getCounts({ counts }: FigureContext, { principal }: RequestFor<typeof GET_COUNTS>) {
  const { counted_at, instances, pending, oldest_pending_at } = await counts.of(principal.visibility);
  return {
    counted_at: isoTime(counted_at),
    instances,
    deliveries: { pending, oldest_pending_at: isoTimeOrNull(oldest_pending_at) },
  };
}

const GET_HISTORY = {
  config: { access: ['read'] },
  schema: {
    operationId: 'getHistory',
    tags: ['service'],
    summary: 'The counts of the service in the last five minutes, hour, or day',
    description:
      'Counts and latencies in steps, of all nodes together. They are kept in memory, and begin with the start of the node that responds: `counting_since`. Counts of another node belong to the second in which they arrive at this node.',
    querystring: HistoryQuery,
    response: responses({ 200: ['The steps that have ended.', HistorySchema], codes: [] }),
  },
} satisfies RouteShape;

async function getHistory({ history }: FigureContext, { principal, query }: RequestFor<typeof GET_HISTORY>) {
  assertNoMeetingLimit(principal);
  const since_ms = query.since === undefined ? null : Date.parse(query.since);
  const { counting_since, complete_since, starts_at, ends_at, ...columns } = history.read(query.span ?? '5m', since_ms);
  return {
    counting_since: isoTime(counting_since),
    complete_since: isoTime(complete_since),
    starts_at: isoTime(starts_at),
    ends_at: isoTime(ends_at),
    ...columns,
  };
}

const GET_INSTANCE_HISTORY = {
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'getInstanceHistory',
    tags: ['instances'],
    summary: 'The results of the pushes of an instance in the last day',
    description:
      'Deliveries, failed attempts and latencies in steps of ten minutes, kept in memory for the 4,096 instances with the latest attempts. In a cluster, the counts of another node arrive after 10 s.',
    params: InstanceParams,
    response: responses({
      200: ['The steps, the present one included.', InstanceHistorySchema],
      codes: ['instance_does_not_exist'],
    }),
  },
} satisfies RouteShape;

async function getInstanceHistory(
  { store, instance_history }: FigureContext,
  { params: { instance_id }, principal }: RequestFor<typeof GET_INSTANCE_HISTORY>,
) {
  const { created_at } = existing(await store.instances.find(instance_id, principal.visibility), instance_id);
  const { counting_since, starts_at, ends_at, ...columns } = instance_history.read(instance_id, created_at);
  return {
    counting_since: isoTime(counting_since),
    starts_at: isoTime(starts_at),
    ends_at: isoTime(ends_at),
    ...columns,
  };
}
