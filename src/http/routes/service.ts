/** The routes for supervisors, load balancers and Prometheus. */
import type { FastifyReply } from 'fastify';
import type { Engine } from '../../delivery/engine.ts';
import { assertNoMeetingLimit } from '../../domain/access.ts';
import { Problem } from '../../domain/problem.ts';
import type { Store } from '../../store/store.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { MetricsText, ServiceStatusSchema } from '../schemas/service.ts';

export interface ServiceContext {
  store: Pick<Store, 'ping'>;
  engine: Pick<Engine, 'is_draining'>;
  /** Makes the text of /metrics. */
  metrics: () => Promise<{ content_type: string; text: string }>;
}

export function serviceRoutes(app: App, context: ServiceContext): void {
  app.get('/healthz', HEALTHZ, healthz);
  app.get('/readyz', READYZ, () => readyz(context));
  app.get('/metrics', METRICS, (request, reply) => metricsText(context, request, reply));
}

const HEALTHZ = {
  config: { access: 'public' },
  schema: {
    operationId: 'healthz',
    tags: ['service'],
    summary: 'Whether the process is alive',
    description: 'For a supervisor that restarts a process that hangs. It checks nothing else.',
    response: responses({ 200: ['It is.', ServiceStatusSchema], codes: [] }),
  },
} satisfies RouteShape;

async function healthz() {
  return { status: 'ok' };
}

const READYZ = {
  config: { access: 'public' },
  schema: {
    operationId: 'readyz',
    tags: ['service'],
    summary: 'Whether messages can be accepted',
    description: 'For a load balancer: 503 while the store does not respond, or while the service shuts down.',
    response: responses({
      200: ['They can.', ServiceStatusSchema],
      codes: ['shutting_down'],
    }),
  },
} satisfies RouteShape;

async function readyz({ store, engine }: ServiceContext) {
  if (engine.is_draining) throw new Problem('shutting_down', undefined, { retry_after_s: 1 });
  try {
    await store.ping();
  } catch {
    throw new Problem('storage_unavailable', 'The store does not respond.', { retry_after_s: 2 });
  }
  return { status: 'ready' };
}

const METRICS = {
  config: { access: ['read'] },
  schema: {
    operationId: 'metrics',
    tags: ['service'],
    summary: 'Metrics as Prometheus text',
    description: 'For Prometheus. docs/alerts.md says what each of them means.',
    response: responses({
      200: ['The metrics.', MetricsText],
      codes: [],
    }),
  },
} satisfies RouteShape;

async function metricsText(
  { metrics }: ServiceContext,
  { principal }: RequestFor<typeof METRICS>,
  reply: FastifyReply,
) {
  assertNoMeetingLimit(principal);
  const { content_type, text } = await metrics();
  return reply
    .type(content_type)
    .serializer((body: string) => body)
    .send(text);
}
