import { readFile } from 'node:fs/promises';
import type { App } from '../context.ts';

/** In a clone, at its root; in the package, beside the bundle. */
const FILE = new URL(import.meta.url.endsWith('.ts') ? '../../../openapi.json' : './openapi.json', import.meta.url);

/**
 * Serves the OpenAPI document, which `npm run generate` writes from the schemas of the routes. It is not made here:
 * that takes a library which a service that only delivers messages does not need.
 */
export function documentRoute(app: App): void {
  let document: Promise<Buffer> | null = null;
  app.get('/openapi.json', { config: { access: 'public' }, schema: { hide: true } }, async (_request, reply) =>
    reply.type('application/json; charset=utf-8').send(await (document ??= readFile(FILE))),
  );
}
