/**
 * The examples in the documents work. The test types their marked blocks into a real shell, or compares the blocks with
 * programs that run here, with a service on a free port. A comment before a block marks it: `<!-- test: NAME -->`.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { glob, mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { runInNewContext } from 'node:vm';
import { ConvokeClient } from '@convoke/sdk';
import { pino } from 'pino';
import { readConfig } from '../../src/config/read_config.ts';
import { type Convoke, createConvoke } from '../../src/convoke.ts';
import { signingKey, signPush } from '../../src/domain/signature.ts';
import { blockOf, blocksOf } from '../support/documents.ts';
import { DEADLINE_MS, Terminal } from '../support/terminal.ts';
import { until } from '../support/wait.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const SECRET = 'whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o=';
const timeout = DEADLINE_MS * 1.5;

let data: string;
let convoke: Convoke;
let client: ConvokeClient;

before(async () => {
  data = await mkdtemp(join(tmpdir(), 'convoke-readme-'));
  const { config } = readConfig({ flags: { port: '0', data } });
  convoke = await createConvoke(config, { log: pino({ level: 'silent' }) });
  client = new ConvokeClient({ base_url: convoke.url });
});

after(async () => {
  await convoke.close();
  await rm(data, { recursive: true });
});

test(
  'the README leads from nothing to a delivered message, with curl and with the command line',
  { timeout },
  async (t) => {
    if (spawnSync('curl', ['--version']).status !== 0) return t.skip('there is no curl here');
    const blocks = await blocksOf('README.md');
    const terminal = new Terminal('sh', [], { PORT: '0', CONVOKE_URL: convoke.url });
    t.after(() => terminal.end());
    terminal.type('set -e; curl() { command curl -sS --fail "$@"; }');
    terminal.type('npx() { shift; node src/cli/main.ts "$@"; }');

    terminal.type(blockOf(blocks, 'start a receiver'));
    const [, port = ''] = await terminal.shows(/listening on .*port: (\d+)/);
    const here = (block: string): string =>
      block.replaceAll('127.0.0.1:9000', `127.0.0.1:${port}`).replaceAll('http://127.0.0.1:8080', convoke.url);

    for (const block of blocks.get('curl') ?? []) terminal.type(here(block));
    await terminal.shows(blockOf(blocks, 'heard with curl'));

    const [act, look] = blocks.get('cli') ?? [];
    assert(act !== undefined && look !== undefined, 'one block acts, one looks');
    terminal.type(here(act));
    await terminal.shows('standup-42 #2 for anna-planner: {"content":"Good morning again"');
    terminal.type(here(look));
    await terminal.shows(/^DELIVERY .*\n.*standup-42 .*delivered/m);
    await terminal.shows(/^INSTANCE .*\nlaptop-anna .*up/m);
    await terminal.shows('answered 200');
  },
);

test(
  'the second minute of the README: an agent that nobody can call answers in the meeting',
  { timeout },
  async (t) => {
    const blocks = await blocksOf('README.md');
    const terminal = new Terminal('sh', [], { CONVOKE_URL: convoke.url });
    t.after(() => terminal.end());
    terminal.type('set -e; npx() { shift; node src/cli/main.ts "$@"; }');
    terminal.type(blockOf(blocks, 'start an agent'));
    await until(
      'the agent in the meeting',
      async () => (await client.listInstances({ agent_id: 'anna', meeting_id: 'standup-42' })).data.length,
      (length) => length === 1,
    );
    terminal.type(blockOf(blocks, 'ask the agent'));
    await terminal.shows('{"content":"You said: What is next?"}');
  },
);

test('after each curl command of a document the prompt begins on a line of its own', async () => {
  let lines = 0;
  for await (const file of glob('{README.md,docs/*.md}', { cwd: ROOT })) {
    const text = await readFile(join(ROOT, file), 'utf8');
    // The live feed (-N) and the metrics are text of lines.
    for (const [line] of text.matchAll(/^curl (?!-N |.*\/metrics\b).*/gm)) {
      assert.match(line, /^curl -w '\\n' /, file);
      lines++;
    }
  }
  assert.ok(lines > 0);
});

for (const file of ['examples/receiver.ts', 'examples/receiver.mjs']) {
  test(`${file} without a secret names the variable that is missing`, () => {
    const { WEBHOOK_SECRET: _, ...env } = process.env;
    const { status, stderr } = spawnSync(process.execPath, [file], { cwd: ROOT, env, encoding: 'utf8' });
    assert.equal(status, 1);
    assert.match(stderr, /Error: set WEBHOOK_SECRET to/);
  });

  test(`${file} accepts a genuine push, once, and refuses a forged one`, { timeout }, async (t) => {
    const receiver = new Terminal('node', [file], { PORT: '0', WEBHOOK_SECRET: SECRET });
    t.after(() => receiver.end());
    const [, port] = await receiver.shows(/listening on .*port: (\d+)/);
    const webhook_url = `http://127.0.0.1:${port}/convoke`;
    const instance_id = file;
    const agent_ids = ['anna-planner'];
    const meeting_id = `meeting of ${file}`;
    await client.register({ instance_id, instance_name: file, agent_ids, webhook_url, webhook_secret: SECRET });
    await client.joinMeeting({ instance_id, meeting_id, agent_ids });
    await client.sendMessage(meeting_id, { content: 'Good morning' });
    await receiver.shows(`${meeting_id} #1 for anna-planner: {"content":"Good morning"}`);
    assert.equal((await client.testWebhook(instance_id)).success, true);

    const body = Buffer.from(
      JSON.stringify({ event: 'new_message', meeting_id, message: {}, target_agents: agent_ids, timestamp: '' }),
    );
    const post = async (headers: Record<string, string>): Promise<number> =>
      (await fetch(webhook_url, { method: 'POST', body, headers })).status;
    const genuine = signed('dlv_repeated', body);
    assert.equal(await post({ ...genuine, 'convoke-seq': '2' }), 200);
    assert.equal(await post({ ...genuine, 'convoke-seq': '3' }), 200);
    assert.equal(await post({ ...genuine, 'webhook-id': 'dlv_other' }), 401);
    assert.equal(await post({}), 401);
    assert.equal(await post({ ...signed('dlv_last', body), 'convoke-seq': '4' }), 200);
    await receiver.shows('#4 for');
    assert.match(receiver.output, /#2 for/);
    assert.doesNotMatch(receiver.output, /#3 for|webhook-test/);
  });
}

test('the documents show the examples as they are', async () => {
  for (const document of ['README.md', 'docs/receivers.md', 'docs/openclaw.md']) {
    for (const [name, [block = '']] of await blocksOf(document)) {
      const [, part, file] = /^(part of )?(examples\/.+)$/.exec(name) ?? [];
      if (file === undefined) continue;
      const example = await readFile(join(ROOT, file), 'utf8');
      if (part === undefined) assert.equal(`${block}\n`, example, `${document}: ${file}`);
      else assert(example.includes(`${block}\n`), `${document}: part of ${file}`);
    }
  }
});

test('the Python of docs/receivers.md takes a real push, and decides every vector right', { timeout }, async (t) => {
  if (spawnSync('python3', ['--version']).status !== 0) return t.skip('there is no python3 here');
  const pushes: { headers: IncomingHttpHeaders; body: string }[] = [];
  const { promise: pushed, resolve } = Promise.withResolvers<void>();
  const port = await listen(t, ({ headers }, body) => {
    pushes.push({ headers, body });
    resolve();
    return 200;
  });
  await client.register({
    instance_id: 'python',
    instance_name: 'Python',
    agent_ids: ['a'],
    webhook_url: `http://127.0.0.1:${port}/`,
    webhook_secret: SECRET,
  });
  await client.joinMeeting({ instance_id: 'python', meeting_id: 'python', agent_ids: ['a'] });
  await client.sendMessage('python', { content: 'Grüß Gott' });
  await pushed;

  interface Case {
    name: string;
    secrets: string[];
    headers: IncomingHttpHeaders;
    body: string;
    now_s: number;
    reason: string | null;
  }
  const vectors = JSON.parse(await readFile(join(ROOT, 'vectors/signature.json'), 'utf8')) as { verify: Case[] };
  const now_s = Math.floor(Date.now() / 1000);
  const real = pushes.map((push) => ({ ...push, name: 'a real push', secrets: [SECRET], now_s, reason: null }));
  // The function takes one secret at a time. So this leaves out cases with a bad secret beside a good secret.
  const fitting = vectors.verify.filter(({ secrets, reason }) => secrets.length === 1 || reason !== 'invalid_secret');
  const cases: Case[] = [...real, ...fitting].map(({ headers, ...rest }) => ({
    ...rest,
    headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])),
  }));

  const code = `${blockOf(await blocksOf('docs/receivers.md'), 'python')}
import json, sys
for case in json.load(sys.stdin):
    time.time = lambda: case["now_s"]
    body = case["body"].encode()
    try:
        print(json.dumps(any(is_genuine(secret, case["headers"], body) for secret in case["secrets"])))
    except ValueError:
        print("false")
`;
  const { stdout, stderr } = spawnSync('python3', ['-c', code], { input: JSON.stringify(cases), encoding: 'utf8' });
  assert.equal(stderr, '');
  const verdicts = stdout.trim().split('\n');
  assert.equal(verdicts.length, cases.length);
  for (const [i, { name, reason }] of cases.entries()) {
    assert.equal(verdicts[i], String(reason === null), `${name}: ${reason ?? 'genuine'}`);
  }
});

test('the recipe for OpenClaw: path, bearer token and templates fit what is pushed', { timeout }, async (t) => {
  if (spawnSync('curl', ['--version']).status !== 0) return t.skip('there is no curl here');
  const { hooks } = runInNewContext(`(${await readFile(join(ROOT, 'examples/openclaw.json5'), 'utf8')})`) as Gateway;
  const { promise: taken, resolve } = Promise.withResolvers<GatewayRun>();
  const port = await listen(t, (request, body) => {
    const run = runOf(hooks, request, body);
    resolve(run);
    return run.status;
  });

  const terminal = new Terminal('sh', [], {});
  t.after(() => terminal.end());
  terminal.type('set -e; curl() { command curl -sS --fail "$@"; }');
  terminal.type(
    blockOf(await blocksOf('docs/openclaw.md'), 'openclaw')
      .replaceAll('http://127.0.0.1:8080', convoke.url)
      .replaceAll('127.0.0.1:18789', `127.0.0.1:${port}`),
  );
  const [, message_id = ''] = await terminal.shows(/"message_id":"(\w+)"/);
  assert.deepEqual(await taken, {
    status: 200,
    message: 'In the meeting standup-42, for ["main"]:\n\nGood morning',
  });
  assert.equal((await client.testWebhook('openclaw-anna')).status_code, 200);
  const query = { message_id, instance_id: 'openclaw-anna' };
  let state: string | undefined;
  do state = (await client.listDeliveries(query)).data[0]?.state;
  while (state === 'pending' && !t.signal.aborted);
  assert.equal(state, 'delivered');
});

test('docs/dependencies.md gives a reason for every dependency, and names no other', async () => {
  type Packages = Record<string, string>;
  const manifest = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8')) as Record<string, Packages>;
  const { dependencies = {}, devDependencies, optionalDependencies } = manifest;
  const tables = await readFile(join(ROOT, 'docs/dependencies.md'), 'utf8');
  const [runtime = '', development = ''] = tables.split('Development needs these:');
  for (const [table, packages] of [
    [runtime, dependencies],
    [development, { ...devDependencies, ...optionalDependencies }],
  ] as const) {
    const cells = [...table.matchAll(/^\| (`.+?) \|/gm)].map(([, cell]) => cell ?? '');
    const named = cells.flatMap((cell) => [...cell.matchAll(/`(.+?)`/g)].map(([, name = '']) => name));
    assert.deepEqual(named.toSorted(), Object.keys(packages).toSorted());
  }
});

test('docs/alerts.md lists every metric of ours, with its type', async () => {
  const metrics = await (await fetch(`${convoke.url}/metrics`)).text();
  const exported = [...metrics.matchAll(/^# TYPE (convoke_(?!process_|nodejs_)\w+) (\w+)$/gm)];
  const markdown = await readFile(join(ROOT, 'docs/alerts.md'), 'utf8');
  const listed = [...markdown.matchAll(/^\| `(convoke_\w+)` +\| (\w+)/gm)];
  const pairs = (matches: RegExpExecArray[]): string[] => matches.map(([, name, type]) => `${name} ${type}`).toSorted();
  assert.deepEqual(pairs(listed), pairs(exported));
});

test('a metric of ours that ends in _total is a counter, and every counter ends so', async () => {
  const metrics = await (await fetch(`${convoke.url}/metrics`)).text();
  const types = [...metrics.matchAll(/^# TYPE (\w+) (\w+)$/gm)];
  assert(types.some(([, , type]) => type === 'counter') && types.some(([, , type]) => type === 'gauge'));
  // The library of Node's figures has gauges with such names. Our changelog says that Convoke 1.0 removes them.
  const ours = types.filter(([, name = '']) => !/^convoke_nodejs_active_\w+_total$/.test(name));
  for (const [, name = '', type] of ours)
    assert.equal(name.endsWith('_total'), type === 'counter', `${name} is a ${type}`);
});

test('the documents type their commands as they work in a clone, with its Node', async () => {
  const commands: { document: string; line: string }[] = [];
  for await (const document of glob(['*.md', 'docs/*.md'], { cwd: ROOT })) {
    const markdown = await readFile(join(ROOT, document), 'utf8');
    for (const [, block = ''] of markdown.matchAll(/^```(?:sh|bash|shell|console)\n([^]*?)^```/gm)) {
      commands.push(...block.split('\n').map((line) => ({ document, line: line.trim() })));
    }
  }
  assert(commands.some(({ line }) => line.startsWith('npx convoke ')));
  const bare = commands.filter(({ line }) => /^(\$ )?(convoke|node -e) /.test(line));
  assert.deepEqual(bare, []);
});

/** Files that a run or a build writes, so they need not exist here. */
const MADE = /^(dist|bench\/results)\//;
const DOCUMENTS = ['*.md', 'docs/*.md', 'bench/*.md', 'sdk/*/*.md', 'vectors/*.md'];

test('every link between the documents leads to a file and a heading that are there', async () => {
  for await (const document of glob(DOCUMENTS, { cwd: ROOT })) {
    const prose = (await readFile(join(ROOT, document), 'utf8')).replaceAll(/^```[^]*?^```$/gm, '');
    for (const [, link = ''] of prose.matchAll(/\]\(([^)]+)\)/g)) {
      if (link.startsWith('https://')) continue;
      const [path = '', heading] = link.split('#');
      const target = path === '' ? join(ROOT, document) : join(ROOT, dirname(document), path);
      assert(existsSync(target), `${document}: ${link}`);
      if (heading === undefined) continue;
      const headings = [...(await readFile(target, 'utf8')).matchAll(/^#+ (.+)$/gm)].map(([, words = '']) =>
        words
          .toLowerCase()
          .replaceAll(/[^\w -]/g, '')
          .replaceAll(' ', '-'),
      );
      assert(headings.includes(heading), `${document}: ${link}`);
    }
  }
});

test('every file that a document names is there', async () => {
  let named = 0;
  for await (const document of glob(DOCUMENTS, { cwd: ROOT })) {
    const markdown = await readFile(join(ROOT, document), 'utf8');
    for (const [, path = ''] of markdown.matchAll(
      /`([\w.-]+(?:\/[\w.-]+)+\.(?:[mc]?[jt]sx?|json5?|toml|yaml|sql|md))`/g,
    )) {
      // ARCHITECTURE.md names files of a layer by their path below src/. The result of a build need not exist.
      const is_there = existsSync(join(ROOT, path)) || existsSync(join(ROOT, 'src', path)) || MADE.test(path);
      assert(is_there, `${document}: ${path}`);
      named++;
    }
  }
  assert(named > 50, 'the names were found');
});

/** The part of the gateway's configuration that its stand-in reads. */
interface Gateway {
  hooks: {
    path: string;
    token: string;
    mappings: { match: { path: string }; action: string; messageTemplate: string }[];
  };
}

interface GatewayRun {
  status: number;
  message?: string;
}

/** The run that the gateway starts for a request. */
function runOf(hooks: Gateway['hooks'], { url, headers }: IncomingMessage, body: string): GatewayRun {
  if (headers.authorization !== `Bearer ${hooks.token}`) return { status: 401 };
  const mapping = hooks.mappings.find(({ match }) => url === `${hooks.path}/${match.path}`);
  if (mapping === undefined) return { status: 404 };
  if (mapping.action !== 'agent') return { status: 400 };
  return { status: 200, message: render(mapping.messageTemplate, JSON.parse(body)) };
}

/**
 * Fills a template as the gateway does. A placeholder is a path into the body, with dots. A text stays text, another
 * value becomes JSON, and a missing value becomes nothing.
 */
function render(template: string, payload: unknown): string {
  return template.replaceAll(/\{\{([^}]+)\}\}/g, (_, path: string) => {
    let value = payload;
    for (const key of path.trim().split('.')) value = (value as Record<string, unknown> | undefined)?.[key];
    return typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value);
  });
}

function signed(id: string, body: Uint8Array): Record<string, string> {
  const timestamp_s = Math.floor(Date.now() / 1000);
  return {
    'webhook-id': id,
    'webhook-timestamp': String(timestamp_s),
    'webhook-signature': signPush([signingKey(SECRET)], id, timestamp_s, body),
  };
}

/** Listens until the test ends; resolves with the port. `answer` returns the status. */
async function listen(
  t: { after: (end: () => void) => void },
  answer: (request: IncomingMessage, body: string) => number,
): Promise<number> {
  const server = createServer((request, response) => {
    text(request).then(
      (body) => response.writeHead(answer(request, body)).end(),
      (error: Error) => response.destroy(error),
    );
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => server.close().closeAllConnections());
  return (server.address() as AddressInfo).port;
}
