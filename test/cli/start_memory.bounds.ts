/** A start loads only the modules that it needs, because loaded modules are most of the memory of an idle service. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';

const url = (path: string): string => JSON.stringify(new URL(path, import.meta.url).href);

/** Starts a service on the directory in its argument. Prints the modules that its main thread loaded, and Node's. */
const PROGRAM = `
  import { registerHooks } from 'node:module';
  const loaded = [];
  registerHooks({ load: (url, context, next) => (loaded.push(url), next(url, context)) });
  const { readConfig } = await import(${url('../../src/config/read_config.ts')});
  const { readTraces } = await import(${url('../../src/config/traces.ts')});
  const { createConvoke } = await import(${url('../../src/convoke.ts')});
  const { pino } = await import('pino');
  const { config } = readConfig({ flags: { port: '0', data: process.argv[1] } });
  const service = await createConvoke(config, { log: pino({ level: 'silent' }), traces: readTraces(process.env).settings });
  await service.close(0);
  console.log(JSON.stringify({ loaded, of_node: process.moduleLoadList }));
`;

/** The modules that a start loads: those of packages, and those of Node. */
async function startWith(
  t: TestContext,
  env: Record<string, string> = {},
): Promise<{ of_packages: string[]; of_node: string[] }> {
  const data = await mkdtemp(join(tmpdir(), 'convoke-start-memory-'));
  t.after(() => rm(data, { recursive: true, force: true }));
  const args = ['--no-warnings', '--input-type=module', '--eval', PROGRAM, data];
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith('OTEL_'));
  const { stdout } = await promisify(execFile)(process.execPath, args, { env: { ...Object.fromEntries(own), ...env } });
  const { loaded, of_node } = JSON.parse(stdout) as { loaded: string[]; of_node: string[] };
  return { of_packages: loaded.flatMap((module) => module.split('/node_modules/').slice(1)), of_node };
}

const loadedBy = async (t: TestContext, env?: Record<string, string>): Promise<string[]> =>
  (await startWith(t, env)).of_packages;

test('a start on a data file loads no driver of PostgreSQL, no query builder, no second validator, no fetch and no MCP', async (t) => {
  const loaded = await loadedBy(t);
  const of = (names: RegExp): string[] => loaded.filter((path) => names.test(path));
  assert.notDeepEqual(of(/^fastify\//), [], 'control: what it needs is seen');
  assert.notDeepEqual(of(/^undici\//), [], 'control: what it needs is seen');
  assert.deepEqual(of(/^(kysely|pg|pg-[^/]*|ajv|@fastify\/ajv-compiler)\/|^fast-json-stringify\/index/), []);
  assert.deepEqual(of(/^(@modelcontextprotocol|zod)\//), []);
  assert.deepEqual(of(/^undici\/(index\.js|lib\/(web\/(fetch\/index|websocket)|cache|mock))/), []);
});

test("a start loads Node's HTTP without the fetch of Node, which an import of node:http would load", async (t) => {
  const { of_node } = await startWith(t);
  const isThere = (name: RegExp, list: string[]): boolean => list.some((module) => name.test(module));
  assert.ok(isThere(/NativeModule _http_server$/, of_node), 'control: what it needs is seen');
  assert.equal(isThere(/undici/, of_node), false);
  const importing = `await import('node:http'); console.log(JSON.stringify(process.moduleLoadList));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', importing]);
  assert.ok(isThere(/undici/, JSON.parse(stdout) as string[]), 'control: an import loads it');
});

test('the commands make no Intl.Segmenter before they print a table with more than ASCII: it takes 3.5 MiB', async () => {
  const program = `
    let made = 0;
    Intl.Segmenter = class extends Intl.Segmenter { constructor() { super(); made++; } };
    await import(${url('../../src/cli/program/program.ts')});
    const { printTable } = await import(${url('../../src/cli/program/terminal.ts')});
    const print = (text) => printTable([text], [{ title: 'id', text: (row) => row }]);
    print('a');
    const before = made;
    print('é');
    console.log(JSON.stringify({ before, made }));
  `;
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--no-warnings',
    '--input-type=module',
    '--eval',
    program,
  ]);
  assert.deepEqual(JSON.parse(stdout.trim().split('\n').at(-1) as string), { before: 0, made: 1 });
});

test('OpenTelemetry is loaded only when its variables switch traces on', async (t) => {
  // prom-client loads `@opentelemetry/api`, which does nothing by itself.
  const of = (loaded: string[]): string[] => loaded.filter((path) => /^@opentelemetry\/(?!api\/)/.test(path));
  const on = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' };
  assert.deepEqual(of(await loadedBy(t)), []);
  assert.deepEqual(of(await loadedBy(t, { ...on, OTEL_SDK_DISABLED: 'true' })), []);
  assert.deepEqual(of(await loadedBy(t, { ...on, OTEL_TRACES_EXPORTER: 'none' })), []);
  assert.notDeepEqual(of(await loadedBy(t, on)), [], 'control: switched on, it is seen');
});

test('the threads of a service give memory back at the same time: V8 has its flags once for all of them', async () => {
  const program = `
    import(${url('../../src/store/thread/start_memory.ts')}).then(({ releaseStartMemory }) => {
      for (let i = 0; i < 100; i++) releaseStartMemory();
    });
  `;
  const exits = [1, 2, 3].map(async () => {
    const worker = new Worker(program, { eval: true });
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    worker.once('error', reject).once('exit', resolve);
    return promise;
  });
  assert.deepEqual(await Promise.all(exits), [0, 0, 0]);
});
