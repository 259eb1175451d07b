/** Checks the rules that the code itself must keep: layers, imports and style. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { glob } from 'node:fs/promises';
import { posix } from 'node:path';
import { test } from 'node:test';

/** The layers, from the outside to the inside. A layer may import itself and the layers after it. */
const LAYERS = [
  'cli',
  'offline.ts',
  'convoke.ts',
  'node',
  'mcp',
  'http',
  'demo',
  'changes',
  'feed',
  'delivery',
  'store',
  'domain',
];
/** Modules that every layer may import: settings are data, the version is a constant, the time of day is for people. */
const FACTS = new Set(['config', 'node_http.ts', 'version.ts', 'wall_clock.ts']);

interface Import {
  from: string;
  to: string;
}

async function importsOf(pattern: string): Promise<Import[]> {
  const imports: Import[] = [];
  for await (const file of glob(pattern, { cwd: new URL('../..', import.meta.url) })) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
    for (const [, to] of text.matchAll(/(?:^|\s|})(?:from|import\() ?'([^']+)'/g))
      imports.push({ from: file, to: to as string });
  }
  return imports;
}

function layerOf(file: string): string {
  return file.split('/')[1] as string;
}

/** Lists the imports that point outwards, or sideways into another part of the repository. */
function againstTheDirection(imports: Import[]): string[] {
  return imports
    .filter(({ from, to }) => {
      if (!to.startsWith('.')) return false;
      const target = posix.join(posix.dirname(from), to);
      if (!target.startsWith('src/')) return target !== 'package.json';
      const [inner, outer] = [layerOf(target), layerOf(from)];
      if (FACTS.has(inner)) return false;
      if (FACTS.has(outer)) return inner !== 'domain';
      return LAYERS.indexOf(inner) < LAYERS.indexOf(outer);
    })
    .map(({ from, to }) => `${from} imports ${to}`);
}

test('imports point one way: cli, offline.ts, convoke.ts, node, mcp, http, demo, changes, feed, delivery, store, domain', async () => {
  const imports = await importsOf('src/**/*.ts');
  assert.ok(imports.length > 100, 'the imports were found');
  assert.deepEqual(againstTheDirection(imports), []);
});

test('control: an import that points outwards is found', () => {
  assert.deepEqual(againstTheDirection([{ from: 'src/domain/instance.ts', to: '../store/store.ts' }]), [
    'src/domain/instance.ts imports ../store/store.ts',
  ]);
});

/** Finds one circle of files that import each other, counting imports of types; empty when there is none. */
function circleIn(imports: Import[]): string[] {
  const imported = new Map<string, string[]>();
  for (const { from, to } of imports) {
    if (!to.startsWith('.')) continue;
    imported.set(from, [...(imported.get(from) ?? []), posix.join(posix.dirname(from), to)]);
  }
  const done = new Set<string>();
  const visit = (file: string, path: string[]): string[] => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return [];
    for (const next of imported.get(file) ?? []) {
      const circle = visit(next, [...path, file]);
      if (circle.length > 0) return circle;
    }
    done.add(file);
    return [];
  };
  for (const file of imported.keys()) {
    const circle = visit(file, []);
    if (circle.length > 0) return circle;
  }
  return [];
}

test('no files import each other in a circle, not even types', async () => {
  assert.deepEqual(circleIn(await importsOf('src/**/*.ts')), []);
});

test('control: a circle is found', () => {
  const imports = [
    { from: 'src/store/a.ts', to: './b.ts' },
    { from: 'src/store/b.ts', to: '../domain/c.ts' },
    { from: 'src/domain/c.ts', to: '../store/a.ts' },
  ];
  assert.deepEqual(circleIn(imports), ['src/store/a.ts', 'src/store/b.ts', 'src/domain/c.ts', 'src/store/a.ts']);
});

/** What the pages may import: their own files and these packages. */
const OF_PAGES = /^(\.|@convoke\/sdk$|preact(\/hooks)?$|uplot(\/|$))/;

function foreignToPages(imports: Import[]): string[] {
  return imports
    .filter(({ from, to }) => {
      if (!OF_PAGES.test(to)) return true;
      return to.startsWith('.') && !posix.join(posix.dirname(from), to).startsWith('web/src/');
    })
    .map(({ from, to }) => `${from} imports ${to}`);
}

test('the pages speak to the service through the SDK only, and make no markup of text', async () => {
  const imports = await importsOf('web/src/**/*.{ts,tsx}');
  assert.ok(imports.length > 100, 'the imports were found');
  assert.deepEqual(foreignToPages(imports), []);
  for await (const file of glob('web/src/**/*.{ts,tsx}', { cwd: new URL('../..', import.meta.url) })) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|XMLHttpRequest/, file);
    if (file !== 'web/src/service.ts') assert.doesNotMatch(text, /\bfetch\(|EventSource|WebSocket/, file);
  }
});

test('control: a page that reaches past the SDK is found', () => {
  const from = 'web/src/views/now.tsx';
  const reaching = ['../../../src/domain/outcome.ts', '@convoke/sdk/node', 'node:fs'];
  assert.equal(foreignToPages(reaching.map((to) => ({ from, to }))).length, 3);
});

test('the domain does no I/O and asks no clock', async () => {
  const pure = new Set(['node:buffer', 'node:crypto', 'node:url', 'node:net', 'node:zlib']);
  const outside = (await importsOf('src/domain/*.ts')).filter(({ to }) => to.startsWith('node:') && !pure.has(to));
  assert.deepEqual(outside, []);
  assert.deepEqual(
    (await importsOf('src/domain/*.ts')).filter(({ to }) => to.endsWith('clock.ts')),
    [],
  );
  for await (const file of glob('src/domain/*.ts', { cwd: new URL('../..', import.meta.url) })) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
    assert.doesNotMatch(text, /Date\.now|new Date\(\)|Math\.random|performance\.now/, file);
  }
});

/** The files of src/ with their texts. */
async function sources(): Promise<{ file: string; text: string }[]> {
  const found = [];
  for await (const file of glob('src/**/*.ts', { cwd: new URL('../..', import.meta.url) })) {
    found.push({ file, text: readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8') });
  }
  assert.ok(found.length > 100, 'the files were found');
  return found;
}

/** Lists the files that read the time of day themselves. */
function askingTheTime(files: { file: string; text: string }[]): string[] {
  return files.filter(({ text }) => /Date\.now|new Date\(\)|\bDate\(\)/.test(text)).map(({ file }) => file);
}

test('only one module asks for the time of day', async () => {
  assert.deepEqual(askingTheTime(await sources()), ['src/wall_clock.ts']);
});

test('control: a file that asks for the time of day is found', () => {
  const file = 'src/cli/program/meetings.ts';
  for (const text of ['const now_ms = Date.now();', 'new Date().toISOString()', 'wall: Date.now,']) {
    assert.deepEqual(askingTheTime([{ file, text }]), [file]);
  }
  assert.deepEqual(askingTheTime([{ file, text: 'new Date(now_ms).toISOString()' }]), []);
});

const LINES_MAX = 400;

function longerThanAllowed(files: { file: string; text: string }[]): string[] {
  return files.filter(({ text }) => text.trimEnd().split('\n').length > LINES_MAX).map(({ file }) => file);
}

test('no file of src/ has more than 400 lines', async () => {
  assert.deepEqual(longerThanAllowed(await sources()), []);
});

test('control: a file of 401 lines is found, one of 400 is not', () => {
  const of = (lines: number) => ({ file: 'src/domain/id.ts', text: 'x\n'.repeat(lines) });
  assert.deepEqual(longerThanAllowed([of(400)]), []);
  assert.deepEqual(longerThanAllowed([of(401)]), ['src/domain/id.ts']);
});

test('only the webhook transport opens outgoing sockets, and what forwards pulls to other nodes', async () => {
  const clients = /^(undici(\/.*)?|node:(net|tls|http|https|http2|dgram))$/;
  const types_only = new Set([
    'src/node/identity.ts',
    'src/http/context.ts',
    'src/http/server.ts',
    'src/http/intake/connection.ts',
    'src/http/intake/connections.ts',
    'src/http/intake/ignore_rest.ts',
    'src/http/routes/events.ts',
    'src/http/stream_room.ts',
    'src/http/routes/pull.ts',
    'src/http/late_responses.ts',
    'src/http/on_closed.ts',
    'src/http/routes/subscriptions.ts',
    'src/http/test_pushes.ts',
    'src/http/intake/body.ts',
    'src/http/intake/slow_readers.ts',
    'src/http/intake/waiting_requests.ts',
    'src/http/intake/framing.ts',
    'src/http/intake/intake.ts',
    // These files make requests and responses without a socket.
    'src/http/inside_fetch.ts',
    'src/http/problems.ts',
    'src/convoke.ts',
    'src/delivery/transport/undici_parts.d.ts',
    'src/delivery/transport/push_attempt.ts',
    'src/delivery/transport/connection_pools.ts',
    // This file describes the errors of undici.
    'src/delivery/transport/failures.ts',
    // The demo listens, as a machine does.
    'src/demo/conversation.ts',
  ]);
  const users = (await importsOf('src/{node,mcp,http,demo,changes,feed,delivery,store,domain}/**/*.ts')).filter(
    ({ from, to }) => clients.test(to) && !types_only.has(from),
  );
  assert.deepEqual([...new Set(users.map(({ from }) => from))].toSorted(), [
    'src/delivery/cluster/pull_forwarder.ts',
    'src/delivery/transport/connector.ts',
    'src/delivery/transport/pooled_connection.ts',
    'src/delivery/transport/webhook_transport.ts',
  ]);
});

test('only one module opens connections to PostgreSQL', async () => {
  const users = (await importsOf('src/**/*.ts')).filter(({ to }) => to === 'pg');
  assert.deepEqual([...new Set(users.map(({ from }) => from))], ['src/store/postgres/connection/connection.ts']);
});

test('only the command line touches the process', async () => {
  for await (const file of glob('src/{node,mcp,http,demo,changes,feed,delivery,store,domain}/**/*.ts', {
    cwd: new URL('../..', import.meta.url),
  })) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8');
    // `kill` is allowed with signal 0, which only asks whether a process exists.
    assert.doesNotMatch(text, /process\.(exit|env|argv|on|once|std|chdir|kill(?!\(pid, NO_SIGNAL\)))/, file);
  }
});
