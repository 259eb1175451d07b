/** How the service serves the pages: with a strict policy, with caching, and never for paths of the API. */
import assert from 'node:assert/strict';
import { mkdtemp, mkdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, test, type TestContext } from 'node:test';
import Fastify from 'fastify';
import { buildIfStale } from '../../scripts/web.ts';
import { addUnknownRoutes } from '../../src/http/intake/intake.ts';
import { Pages } from '../../src/http/pages.ts';
import type { App } from '../../src/http/context.ts';
import { startService } from '../support/service.ts';

const NAVIGATION = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' };
const INDEX = '<!doctype html><title>Convoke</title>';

before(async () => void (await buildIfStale()));

async function built(t: TestContext, files: Record<string, string> = {}): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'convoke-pages-'));
  t.after(() => rm(directory, { recursive: true, force: true }));
  await mkdir(join(directory, 'assets'));
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
  return directory;
}

const FILES = {
  'index.html': INDEX,
  'favicon.svg': '<svg/>',
  'assets/index-4f2a.js': 'plain',
  'assets/index-4f2a.js.br': 'brotli',
  'assets/index-4f2a.js.gz': 'gzip',
  'assets/notes.secret': 'not for anybody',
};

/** A server with one route of the API, and the pages. */
async function serve(t: TestContext, directory: string): Promise<App> {
  const app: App = Fastify();
  app.setErrorHandler((error, _request, reply) => reply.code((error as { status?: number }).status ?? 500).send(error));
  addUnknownRoutes(app, new Pages([], directory));
  app.get('/api/v1/meetings/', async () => ({ data: [] }));
  t.after(() => app.close());
  return app;
}

test('every view is the index for a browser; a program gets the 404 as before', async (t) => {
  const app = await serve(t, await built(t, FILES));
  const views = [
    '/',
    '/meetings',
    '/meetings/',
    '/meetings/stand.up%2F1',
    '/instances/a?tab=b',
    '/deliveries/',
    '/keys/',
  ];
  for (const url of [...views, '/audit/', '/nodes/']) {
    const page = await app.inject({ url, headers: NAVIGATION });
    assert.deepEqual([page.statusCode, page.body], [200, INDEX], url);
    assert.equal(page.headers['content-type'], 'text/html; charset=utf-8');
    assert.equal(page.headers['cache-control'], 'no-cache');
    if (url !== '/') {
      assert.equal((await app.inject({ url, headers: { accept: 'application/json' } })).statusCode, 404, url);
      assert.equal((await app.inject({ url })).statusCode, 404, url);
    }
    assert.equal((await app.inject({ method: 'POST', url, headers: NAVIGATION })).statusCode, 404, url);
  }
  for (const url of ['/nothing', '/meetingsx', '/meetingsx/a/b', '/none.svg', '/apis/']) {
    const page = await app.inject({ url, headers: NAVIGATION });
    assert.deepEqual([page.statusCode, page.body], [404, INDEX], url);
    const answer = await app.inject({ url, headers: { accept: 'application/json' } });
    assert.deepEqual([answer.statusCode, answer.body === INDEX], [404, false], url);
  }
  for (const url of ['/api/v1/nothing/', '/api/v2/', '/api', '/assets/none.js', '/docs/x', '/invite/', '/mcp/x']) {
    const answer = await app.inject({ url, headers: NAVIGATION });
    assert.deepEqual([answer.statusCode, answer.body === INDEX], [404, false], url);
  }
  assert.deepEqual((await app.inject({ url: '/api/v1/meetings/', headers: NAVIGATION })).json(), { data: [] });
});

test('an address that cannot be decoded is a page for a browser, and a problem for a program', async (t) => {
  const service = await startService(t);
  for (const path of ['/instances/100%', '/meetings/%ff', '/nothing/%E0%A4%A', '/instances?q=%ff', '/nothing?100%']) {
    const page = await service.request('GET', path, { headers: NAVIGATION });
    assert.equal(page.headers['content-type'], 'text/html; charset=utf-8', path);
    const answer = await service.get(path);
    assert.deepEqual([answer.status, answer.headers['content-type']], [400, 'application/problem+json'], path);
  }
  for (const path of ['/api/v1/instances/%ff/', '/api/v1/instances/?q=%ff', '/api/v1/nothing/?q=%ff']) {
    const api = await service.request('GET', path, { headers: NAVIGATION });
    assert.deepEqual([api.status, api.headers['content-type']], [400, 'application/problem+json'], path);
  }
});

test('a file that a proxy has compressed by itself is not sent again either', async (t) => {
  const app = await serve(t, await built(t, FILES));
  const url = '/assets/index-4f2a.js';
  const { etag } = (await app.inject({ url })).headers;
  // The proxy has changed the bytes, so it has marked the tag as weak.
  for (const known of [`W/${String(etag)}`, '*']) {
    const again = await app.inject({ url, headers: { 'if-none-match': known } });
    assert.deepEqual([again.statusCode, again.body], [304, ''], known);
  }
});

test('at / a program gets a text that says what is where, also while there are no pages', async (t) => {
  for (const files of [FILES, {}]) {
    const app = await serve(t, await built(t, files));
    for (const headers of [{}, { accept: '*/*' }, { accept: 'application/json' }]) {
      const { statusCode, body, headers: answered } = await app.inject({ url: '/', headers });
      assert.equal(statusCode, 200);
      assert.equal(answered['content-type'], 'text/plain; charset=utf-8');
      for (const path of ['/docs/', '/openapi.json', '/healthz', '/api/v1/']) assert.ok(body.includes(path), path);
    }
    assert.equal((await app.inject({ method: 'HEAD', url: '/' })).statusCode, 200);
    assert.equal((await app.inject({ method: 'POST', url: '/' })).statusCode, 404);
  }
});

test('the addresses that / names exist', async (t) => {
  const service = await startService(t);
  const { text } = await service.get('/');
  const paths = [...text.matchAll(/^ {2}(\S+)/gm)].map(([, path]) => path as string);
  assert.ok(paths.length > 4, text);
  for (const path of paths) assert.equal((await service.get(path)).status, 200, path);
  assert.equal((await service.get('/api/v1/instances/')).status, 200);
});

test('nothing inline, from elsewhere, or in a frame of others is let into a page', async (t) => {
  const app = await serve(t, await built(t, FILES));
  for (const url of ['/', '/assets/index-4f2a.js', '/favicon.svg']) {
    const { headers } = await app.inject({ url, headers: NAVIGATION });
    const policy = String(headers['content-security-policy']).split('; ');
    for (const directive of [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "connect-src 'self'",
      "frame-ancestors 'none'",
      "base-uri 'none'",
      "form-action 'none'",
      "require-trusted-types-for 'script'",
    ])
      assert.ok(policy.includes(directive), directive);
    assert.ok(!/unsafe|\*|https?:/.test(policy.join()), policy.join());
    assert.equal(headers['x-content-type-options'], 'nosniff');
    assert.equal(headers['referrer-policy'], 'no-referrer');
    assert.equal(headers['cross-origin-opener-policy'], 'same-origin');
    assert.equal(headers['cross-origin-resource-policy'], 'same-origin');
  }
});

test('files with a hash in their name are cached for ever, compressed where the client accepts it, and not sent twice', async (t) => {
  const app = await serve(t, await built(t, FILES));
  const get = (headers: Record<string, string>) => app.inject({ url: '/assets/index-4f2a.js', headers });
  const answers = [
    [{ 'accept-encoding': 'gzip, deflate, br' }, 'br', 'brotli'],
    [{ 'accept-encoding': 'gzip;q=1.0, br;q=0' }, 'gzip', 'gzip'],
    [{ 'accept-encoding': 'identity' }, undefined, 'plain'],
    [{}, undefined, 'plain'],
  ] as const;
  const etags = new Set<string>();
  for (const [headers, encoding, body] of answers) {
    const answer = await get({ ...headers });
    assert.deepEqual([answer.headers['content-encoding'], answer.body], [encoding, body]);
    assert.equal(answer.headers['cache-control'], 'public, max-age=31536000, immutable');
    assert.equal(answer.headers.vary, 'accept-encoding');
    const etag = String(answer.headers.etag);
    etags.add(etag);
    const again = await get({ ...headers, 'if-none-match': `"other", ${etag}` });
    assert.deepEqual([again.statusCode, again.body], [304, '']);
  }
  assert.equal(etags.size, 3);
});

test('no path leads out of what was built, or to files that are no pages', async (t) => {
  const directory = await built(t, FILES);
  await writeFile(join(directory, '..', 'convoke-outside.js'), 'outside');
  t.after(() => rm(join(directory, '..', 'convoke-outside.js')));
  const app = await serve(t, directory);
  for (const url of [
    '/assets/../../convoke-outside.js',
    '/assets/%2e%2e/%2e%2e/convoke-outside.js',
    '/assets/..%2f..%2fconvoke-outside.js',
    '/assets/notes.secret',
    '/assets/',
    '/assets/index-4f2a.js/',
  ])
    assert.equal((await app.inject({ url, headers: NAVIGATION })).statusCode, 404, url);
});

test('without pages a sentence says how to build them; once built, they are there, and after a new build the new ones', async (t) => {
  const directory = await built(t);
  const app = await serve(t, directory);
  const none = await app.inject({ url: '/', headers: NAVIGATION });
  assert.equal(none.statusCode, 503);
  assert.match(none.body, /npm run build/);
  await writeFile(join(directory, 'index.html'), INDEX);
  assert.equal((await app.inject({ url: '/', headers: NAVIGATION })).body, INDEX);
  await writeFile(join(directory, 'index.html'), 'another');
  await utimes(join(directory, 'index.html'), 1, 1);
  assert.equal((await app.inject({ url: '/meetings/', headers: NAVIGATION })).body, 'another');
});
