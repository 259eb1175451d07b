/** What machines that watch the service ask for. */
import { Problem } from '../domain/problem.ts';
import type { App, HttpParts } from './parts.ts';

export function serviceRoutes(app: App, { store, metrics }: HttpParts): void {
  app.get(
    '/healthz',
    { schema: { operationId: 'healthz', tags: ['service'], summary: 'Whether the process is alive' } },
    async () => ({ status: 'ok' }),
  );

  app.get(
    '/readyz',
    { schema: { operationId: 'readyz', tags: ['service'], summary: 'Whether messages can be accepted' } },
    async () => {
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
    { schema: { operationId: 'metrics', tags: ['service'], summary: 'Metrics as Prometheus text' } },
    async (_, reply) => {
      const { content_type, text } = await metrics();
      return reply
        .type(content_type)
        .serializer((body: string) => body)
        .send(text);
    },
  );
}
