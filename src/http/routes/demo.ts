import type { FastifyReply } from 'fastify';
import type { DemoMeeting } from '../../demo/meeting.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { DemoSchema } from '../schemas/demo.ts';

export interface DemoContext {
  demo: DemoMeeting;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
}

export function demoRoutes(app: App, context: DemoContext): void {
  app.get('/api/v1/demo/', GET_DEMO, () => getDemo(context));
  app.post('/api/v1/demo/', START_DEMO, (request, reply) => startDemo(context, request, reply));
  app.delete('/api/v1/demo/', STOP_DEMO, (request, reply) => stopDemo(context, request, reply));
}

const GET_DEMO = {
  config: { access: ['admin'] },
  schema: {
    operationId: 'getDemo',
    tags: ['service'],
    summary: 'Whether the demo runs',
    description: 'The state of the demo, and its meeting.',
    response: responses({ 200: ['The demo.', DemoSchema], codes: [] }),
  },
} satisfies RouteShape;

async function getDemo({ demo }: DemoContext) {
  return demo.status;
}

const START_DEMO = {
  config: { access: ['admin'], audit: { action: 'demo.start', target: 'service' } },
  schema: {
    operationId: 'startDemo',
    tags: ['service'],
    summary: 'Let two agents inside the service talk in a meeting',
    description:
      'They are ordinary instances, on 127.0.0.1. They take 20 turns, one a second, and then answer the messages of others in the meeting. The demo ends with the service.',
    response: responses({
      201: ['It was started.', DemoSchema],
      200: ['It runs already.', DemoSchema],
      codes: ['demo_not_possible', 'quota_exceeded', 'shutting_down'],
    }),
  },
} satisfies RouteShape;

async function startDemo(
  { demo, audit_trail }: DemoContext,
  request: RequestFor<typeof START_DEMO>,
  reply: FastifyReply,
) {
  const started = await demo.start(audit_trail.authorOf(request));
  return reply.code(started ? 201 : 200).send(demo.status);
}

const STOP_DEMO = {
  config: { access: ['admin'], audit: { action: 'demo.stop', target: 'service' } },
  schema: {
    operationId: 'stopDemo',
    tags: ['service'],
    summary: 'Stop the demo and remove its instances',
    description: 'The messages stay until their retention ends. Stopping the demo when it does not run is no error.',
    response: responses({ 204: ['It does not run.'], codes: [] }),
  },
} satisfies RouteShape;

async function stopDemo(
  { demo, audit_trail }: DemoContext,
  request: RequestFor<typeof STOP_DEMO>,
  reply: FastifyReply,
) {
  await demo.stop(audit_trail.authorOf(request));
  return reply.code(204).send();
}
