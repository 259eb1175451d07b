import swagger from '@fastify/swagger';
import { SECURITY_SCHEME } from '../src/http/auth/access.ts';
import type { App, HttpContext } from '../src/http/context.ts';
import { allRoutes, type RoutesContext } from '../src/http/routes/routes.ts';
import { WEBHOOKS } from '../src/http/schemas/push.ts';
import { createServer } from '../src/http/server.ts';
import { VERSION } from '../src/version.ts';
import { finished } from './openapi_document.ts';

/**
 * Makes the OpenAPI 3.1 document from the schemas that validate requests. The file openapi.json and the route
 * /openapi.json have this document.
 */
export async function openapiDocument(): Promise<object> {
  // No handler is called, so the routes need no real context.
  const routes = allRoutes({ max_message_bytes: 0 } as RoutesContext);
  const app = await createServer({} as HttpContext, routes, collect);
  try {
    await app.ready();
    return app.swagger();
  } finally {
    await app.close();
  }
}

async function collect(app: App): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Convoke',
        version: VERSION,
        description:
          'Pushes every message of a meeting, in order and signed, to the machines whose agents take part in it.',
        license: { name: 'MIT', identifier: 'MIT' },
      },
      // Relative, so that a client calls the service from which it got the document.
      servers: [{ url: '/' }],
      webhooks: WEBHOOKS,
      components: {
        securitySchemes: {
          [SECURITY_SCHEME]: {
            type: 'http',
            scheme: 'bearer',
            bearerFormat: 'cvk_…',
            description:
              'An API key. Each operation names the scopes that are enough. None is needed while no key was made and the service listens on loopback. Pages use a session instead: POST /api/v1/session/.',
          },
        },
      },
      tags: [
        { name: 'instances', description: 'Machines that run agents.' },
        { name: 'meetings', description: 'Who takes part in what.' },
        { name: 'messages', description: 'What is said.' },
        { name: 'deliveries', description: 'What became of it.' },
        { name: 'events', description: 'What happens, as it happens.' },
        { name: 'keys', description: 'Who may do what.' },
        { name: 'audit', description: 'Who did what.' },
        { name: 'session', description: 'Signing in on a page.' },
        { name: 'service', description: 'For those who watch the service.' },
      ],
    },
    transformObject: (document) => ('openapiObject' in document ? finished(document.openapiObject) : {}),
  });
}
