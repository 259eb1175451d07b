import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import type { App } from '../context.ts';
import { type File, sendFile, variantOf } from '../files.ts';
import { loadedOnce } from '../loaded_once.ts';

/** In a clone, the file is at the root; in the package, beside the bundle. */
const FILE = new URL(import.meta.url.endsWith('.ts') ? '../../../openapi.json' : './openapi.json', import.meta.url);

/**
 * Serves the OpenAPI document, which `npm run generate` writes from the schemas of the routes. The document is not made
 * here, because that takes a library that the running service does not need.
 */
export function documentRoute(app: App): void {
  const document = loadedOnce(readDocument);
  app.get('/openapi.json', { config: { access: 'public' }, schema: { hide: true } }, async (request, reply) =>
    sendFile(request, reply, await document()),
  );
}

/** Removes the white space, nearly half of the document, and compresses the rest, because anybody may ask for it. */
async function readDocument(): Promise<File> {
  const bytes = Buffer.from(JSON.stringify(JSON.parse(await readFile(FILE, 'utf8'))));
  return {
    type: 'application/json; charset=utf-8',
    headers: {},
    cache_control: 'no-cache',
    plain: variantOf(bytes),
    encoded: [{ name: 'gzip', variant: variantOf(gzipSync(bytes)) }],
  };
}
