/** The packed service, run without any file of this repository. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, readFile, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { buffer, text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { PostgresServer } from '../support/postgres_server.ts';
import { environment, run, SYSTEM_PATH } from './run.ts';
import type { Runtime } from './runtimes.ts';

/** A PATH in which `node` is this runtime, and `npx` is that of the system. */
const pathOf = ({ command: [program = ''] }: Runtime): string => [dirname(program), SYSTEM_PATH].join(delimiter);

/** Runs the demo: two agents talk, and every push arrives. */
export async function demo(runtime: Runtime, cwd: string, command = ['npx', 'convoke']): Promise<string> {
  const shown = await run([...command, 'demo'], { cwd, path: pathOf(runtime) });
  const done = /^done .*$/m.exec(shown)?.[0] ?? '';
  if (!/\b6 of 6 pushes/.test(done)) throw new Error(`the demo ends otherwise:\n${shown}`);
  return done.replace(/^done +/, '');
}

/**
 * The limit of memory. An idle service takes 103 MiB with Node 24, and 97 MiB with Node 22. It takes 115 MiB when its
 * start loads more than it needs, or frees nothing.
 */
const IDLE_MIB_MAX = 110;

/** How often the memory is read at most. A slow machine needs some pauses until the service has freed its memory. */
const READS_MAX = 10;

/** The resident memory of a process after a pause; 0 when the system does not report it. */
async function idleMib(pid: number): Promise<number> {
  let mib = Infinity;
  for (let reads = 0; reads < READS_MAX && mib > IDLE_MIB_MAX; reads++) {
    await sleep(2_000);
    const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
    mib = Math.round(Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) / 1024);
  }
  return mib;
}

/** Starts the service. `ready` resolves with its URL, or rejects with what it printed. */
function start(runtime: Runtime, cwd: string, args: string[], env: Record<string, string>) {
  const child = spawn(join(cwd, 'node_modules/.bin/convoke'), ['serve', '--port', '0', ...args], {
    cwd,
    env: environment({ path: pathOf(runtime), env }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const errors = text(child.stderr);
  const ready = async (): Promise<string> => {
    const lines = createInterface({ input: child.stdout });
    const [line] = (await Promise.race([once(lines, 'line'), once(child, 'close')])) as [unknown];
    const url = /^convoke ready (http:\S+)/.exec(String(line))?.[1];
    if (url === undefined) throw new Error(`it is not ready: ${await errors}`);
    return url;
  };
  return { child, errors, ready };
}

/** The service serves its pages and the page of the API, tests a webhook, makes a backup, and stops with 0. */
export async function serve(runtime: Runtime, cwd: string, database: 'SQLite' | 'PostgreSQL'): Promise<string> {
  const data = join(cwd, 'data');
  const server = database === 'PostgreSQL' ? await PostgresServer.start() : null;
  const env = server === null ? {} : { CONVOKE_DATABASE_URL: server.urlOf('postgres') };
  const path = pathOf(runtime);
  const program = join(cwd, 'node_modules/.bin/convoke');
  const { child, errors, ready } = start(runtime, cwd, ['--data', data, '--log-format', 'pretty'], env);
  try {
    const url = await ready();
    const idle_mib = await idleMib(child.pid!);
    if (idle_mib > IDLE_MIB_MAX) throw new Error(`when idle it takes ${idle_mib} MiB`);
    const bytes = await pagesOf(url);
    const tools = await toolsOf(url, program, path);
    const env_of_client = { CONVOKE_URL: url };
    await run([program, 'instances'], { cwd, path, env: env_of_client });
    if (server === null) await run([program, 'backup', join(cwd, 'copy.db')], { cwd, path, env: env_of_client });
    child.kill('SIGTERM');
    await once(child, 'close');
    const log = await errors;
    if (child.exitCode !== 0) throw new Error(`SIGTERM ends it with ${child.exitCode}: ${log}`);
    if (/warning/i.test(log)) throw new Error(`it warns: ${log}`);
    return `ready, ${idle_mib || '?'} MiB when idle, ${bytes} bytes of pages, ${tools} tools for models, stopped with 0`;
  } finally {
    child.kill('SIGKILL');
    await server?.stop();
    await rm(data, { recursive: true, force: true });
    await rm(join(cwd, 'copy.db'), { force: true });
  }
}

/** The service sends its spans to a collector, at the latest when it stops. */
export async function traces(runtime: Runtime, cwd: string): Promise<string> {
  const bodies: Promise<Buffer>[] = [];
  const collector = createServer((request, response) => {
    if (request.url === '/v1/traces') bodies.push(buffer(request));
    response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
  });
  collector.listen(0, '127.0.0.1');
  await once(collector, 'listening');
  const endpoint = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
  const data = join(cwd, 'data-of-traces');
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint };
  const { child, errors, ready } = start(runtime, cwd, ['--data', data], env);
  try {
    const url = await ready();
    const headers = { 'content-type': 'application/json' };
    await fetch(`${url}/api/v1/meetings/m/messages/`, { method: 'POST', headers, body: '{"message":{}}' });
    child.kill('SIGTERM');
    await once(child, 'close');
    const sent = Buffer.concat(await Promise.all(bodies)).toString('latin1');
    const named = ['messaging.system', 'send', 'commit'].filter((name) => sent.includes(name));
    if (named.length < 3) throw new Error(`the collector got ${bodies.length} requests: ${await errors}`);
    return `sent ${sent.length} bytes of spans`;
  } finally {
    child.kill('SIGKILL');
    collector.close();
    await rm(data, { recursive: true, force: true });
  }
}

/** The id of a user who owns no files. */
const NOBODY = 65_534;

/**
 * Runs the package as in an image or under a service manager: root unpacked it, there is no npm, and the user of the
 * service may write only to the data directory.
 */
export async function unpacked(runtime: Runtime, tarball: string, cwd: string): Promise<string> {
  await chmod(dirname(cwd), 0o755);
  await mkdir(cwd);
  await run(['tar', '-xzf', tarball, '-C', cwd, '--strip-components=1', '--no-same-owner'], { cwd: dirname(cwd) });
  const data = `${cwd}-data`;
  await mkdir(data, { mode: 0o700 });
  const is_root = process.getuid?.() === 0;
  if (is_root) await chown(data, NOBODY, NOBODY);
  const [node = ''] = runtime.command;
  const child = spawn(node, ['dist/convoke.cjs', 'serve', '--port', '0', '--data', data], {
    cwd,
    env: { PATH: '/usr/bin:/bin' },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(is_root ? { uid: NOBODY, gid: NOBODY } : {}),
  });
  const errors = text(child.stderr);
  try {
    const [line] = (await Promise.race([
      once(createInterface({ input: child.stdout }), 'line'),
      once(child, 'close'),
    ])) as [unknown];
    if (!String(line).startsWith('convoke ready ')) throw new Error(`it is not ready: ${await errors}`);
    child.kill('SIGTERM');
    await once(child, 'close');
    if (child.exitCode !== 0) throw new Error(`SIGTERM ends it with ${child.exitCode}: ${await errors}`);
    return is_root
      ? 'ready as nobody, stopped with 0'
      : 'ready, stopped with 0; not tried as another user: this one is not root';
  } finally {
    child.kill('SIGKILL');
  }
}

/** Requests everything that the pages load, and fails when something is missing. */
async function pagesOf(url: string): Promise<number> {
  let bytes = 0;
  for (const start of ['/', '/docs/']) {
    const page = await fetch(url + start, { headers: { accept: 'text/html' } });
    const html = await page.text();
    const loaded = [...html.matchAll(/(?:src|href)="([^"#]+)"/g)].map(([, link = '']) => new URL(link, page.url));
    if (!page.ok || loaded.length < 3) throw new Error(`${start} is answered ${page.status}:\n${html}`);
    for (const link of loaded) {
      const answer = await fetch(link);
      if (!answer.ok) throw new Error(`${start} loads ${link}, which is answered ${answer.status}`);
      bytes += (await answer.bytes()).length;
    }
  }
  const { openapi } = (await (await fetch(`${url}/openapi.json`)).json()) as { openapi?: string };
  if (openapi !== '3.1.0') throw new Error('/openapi.json is no document');
  return bytes;
}

const LIST_TOOLS = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' });

/** The number of tools that models get, over HTTP and from the command. The library loads only for this. */
async function toolsOf(url: string, program: string, path: string): Promise<number> {
  const countIn = (message: string): number =>
    (JSON.parse(message) as { result: { tools: object[] } }).result.tools.length;
  const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
  const answer = await (await fetch(`${url}/mcp`, { method: 'POST', headers, body: LIST_TOOLS })).text();
  const over_http = countIn(/^data: (.*)$/m.exec(answer)?.[1] ?? answer);
  const child = spawn(program, ['mcp', '--url', url], {
    env: environment({ path }),
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  try {
    child.stdin.write(`${LIST_TOOLS}\n`);
    const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
    if (over_http !== countIn(line)) throw new Error(`${over_http} tools over HTTP, and by the command: ${line}`);
    return over_http;
  } finally {
    child.stdin.end();
    await once(child, 'close');
  }
}

/** On a Node that is too old, the program says which Node it needs, and does not fail with a syntax error. */
export async function tooOld(runtime: Runtime, cwd: string): Promise<string> {
  const refused = await run(['npx', 'convoke', 'demo'], { cwd, path: pathOf(runtime) }).then(
    () => 'it runs',
    (error: Error) => error.message,
  );
  const said = /^convoke: .*$/m.exec(refused)?.[0];
  if (said === undefined || said.includes('npm ci')) throw new Error(refused);
  return said;
}

/** Follows every relative link of every document in an installed package. */
export async function links(directory: string): Promise<string> {
  const entries = await readdir(directory, { recursive: true });
  let count = 0;
  for (const document of entries.filter((path) => path.endsWith('.md'))) {
    const markdown = (await readFile(join(directory, document), 'utf8')).replaceAll(/^```[^]*?^```$/gm, '');
    const images = [...markdown.matchAll(/(?:src|srcset)="([^"]+)"/g)];
    for (const [, link = ''] of [...markdown.matchAll(/\]\(([^)]+)\)/g), ...images]) {
      if (/^https?:|^#/.test(link)) continue;
      count += 1;
      const target = join(directory, dirname(document), link.split('#')[0]!);
      if (!existsSync(target)) throw new Error(`${document} links to ${link}, which is not in the package`);
    }
  }
  if (count < 20) throw new Error(`only ${count} links were found`);
  return `${count} links lead to files of the package`;
}
