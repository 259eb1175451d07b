/** What machines that watch the service ask for. */
import { assertNoMeetingLimit } from '../../domain/access.ts';
import { Problem } from '../../domain/problem.ts';
import { responses } from '../responses.ts';
import type { App, HttpContext } from '../context.ts';
import { MetricsText, ServiceStatusSchema } from '../schemas/service.ts';

export function serviceRoutes(app: App, { store, engine, metrics }: HttpContext): void {
  app.get(
    '/healthz',
    {
      config: { access: 'public' },
      schema: {
        operationId: 'healthz',
        tags: ['service'],
        summary: 'Whether the process is alive',
        description: 'For a supervisor that restarts a process that hangs. It looks at nothing else.',
        response: responses({ 200: ['It is.', ServiceStatusSchema], codes: [] }),
      },
    },
    async () => ({ status: 'ok' }),
  );

  app.get(
    '/readyz',
    {
      config: { access: 'public' },
      schema: {
        operationId: 'readyz',
        tags: ['service'],
        summary: 'Whether messages can be accepted',
        description: 'For a load balancer: 503 while the store does not answer, or the service is shutting down.',
        response: responses({
          200: ['They can.', ServiceStatusSchema],
          codes: ['shutting_down'],
        }),
      },
    },
    async () => {
      if (engine.is_draining) throw new Problem('shutting_down', undefined, { retry_after_s: 1 });
      try {
        await store.ping();
      } catch {
        throw new Problem('storage_unavailable', 'The store does not answer.', { retry_after_s: 2 });
      }
      return { status: 'ready' };
    },
  );

  app.get(
    '/metrics',
    {
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
    },
    async ({ principal }, reply) => {
      assertNoMeetingLimit(principal);
      const { content_type, text } = await metrics();
      return reply
        .type(content_type)
        .serializer((body: string) => body)
        .send(text);
    },
  );
}
