import type { FastifyRequest } from 'fastify';
import { responses } from '../responses.ts';
import type { DemoActor } from '../demo_meeting.ts';
import type { App, HttpContext } from '../context.ts';
import { DemoSchema } from '../schemas/demo.ts';

export function demoRoutes(app: App, { demo, audit_trail }: HttpContext): void {
  const actorOf = (request: FastifyRequest): DemoActor => ({
    key_id: request.principal.key_id,
    audited: (subject) => audit_trail.storeFor(request, subject),
  });

  app.get(
    '/api/v1/demo/',
    {
      config: { access: ['admin'] },
      schema: {
        operationId: 'getDemo',
        tags: ['service'],
        summary: 'Whether the demo runs',
        description: 'What the demo does now, and where.',
        response: responses({ 200: ['The demo.', DemoSchema], codes: [] }),
      },
    },
    async () => demo.status,
  );

  app.post(
    '/api/v1/demo/',
    {
      config: { access: ['admin'], audit: { action: 'demo.start', target: 'service' } },
      schema: {
        operationId: 'startDemo',
        tags: ['service'],
        summary: 'Let two agents within the service talk in a meeting',
        description:
          'They are instances as any other, on 127.0.0.1. They take a turn a second for 20 turns, and then answer what others say in the meeting. The demo ends with the service.',
        response: responses({
          201: ['It was started.', DemoSchema],
          200: ['It runs already.', DemoSchema],
          codes: ['demo_not_possible', 'quota_exceeded', 'shutting_down'],
        }),
      },
    },
    async (request, reply) => {
      const started = await demo.start(actorOf(request));
      if (started) await audit_trail.done(request);
      return reply.code(started ? 201 : 200).send(demo.status);
    },
  );

  app.delete(
    '/api/v1/demo/',
    {
      config: { access: ['admin'], audit: { action: 'demo.stop', target: 'service' } },
      schema: {
        operationId: 'stopDemo',
        tags: ['service'],
        summary: 'Stop the demo and remove its instances',
        description: 'What was said stays until its retention ends. Stopping what does not run is no error.',
        response: responses({ 204: ['It does not run.'], codes: [] }),
      },
    },
    async (request, reply) => {
      if (await demo.stop(actorOf(request))) await audit_trail.done(request);
      return reply.code(204).send();
    },
  );
}
