/** What machines that watch the service ask for. */
import Type from 'typebox';
import { assertNoMeetingLimit } from '../domain/access.ts';
import { Problem } from '../domain/problem.ts';
import { answers } from './answers.ts';
import type { App, HttpParts } from './parts.ts';

export function serviceRoutes(app: App, { store, engine, metrics }: HttpParts): void {
  app.get(
    '/healthz',
    {
      config: { access: 'public' },
      schema: {
        operationId: 'healthz',
        tags: ['service'],
        summary: 'Whether the process is alive',
        response: answers({ 200: ['It is.', Type.Object({ status: Type.String({ examples: ['ok'] }) })], codes: [] }),
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
        response: answers({
          200: ['They can.', Type.Object({ status: Type.String({ examples: ['ready'] }) })],
          codes: ['shutting_down'],
        }),
      },
    },
    async () => {
      if (engine.is_resting) throw new Problem('shutting_down', undefined, { retry_after_s: 1 });
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
        response: answers({
          200: ['The metrics.', Type.Unsafe<string>({ content: { 'text/plain': { schema: { type: 'string' } } } })],
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
