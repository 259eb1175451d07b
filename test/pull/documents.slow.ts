/**
 * The commands for people behind a firewall work exactly as the documents show them, each with a new data directory:
 * README.md, docs/behind-a-firewall.md, docs/pull.md, docs/replies.md. The test replaces only addresses and
 * placeholders of secrets.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { Instance, InviteWithLink, Message, Page, Pulled } from '@convoke/sdk';
import { blockOf, blocksOf } from '../support/documents.ts';
import { type Behaviour, pushOf, startReceiver } from '../support/receiver.ts';
import { messagesPath, type Service, startService } from '../support/service.ts';
import { DEADLINE_MS, Terminal } from '../support/terminal.ts';
import { until } from '../support/wait.ts';

const MEETING = 'standup-42';
const timeout = DEADLINE_MS * 3;
const has = (command: string): boolean => spawnSync(command, ['--version']).status === 0;

/** Starts a shell in this clone, with a new home directory. */
function shell(t: TestContext, service: Service, env: Record<string, string> = {}): Terminal {
  const HOME = mkdtempSync(join(tmpdir(), 'convoke-home-'));
  const terminal = new Terminal('sh', [], {
    HOME,
    XDG_CONFIG_HOME: join(HOME, 'config'),
    CONVOKE_URL: service.url,
    ...env,
  });
  t.after(async () => {
    await terminal.end();
    rmSync(HOME, { recursive: true });
  });
  terminal.type('set -e; curl() { command curl -sS --fail "$@"; }; npx() { shift; node src/cli/main.ts "$@"; }');
  return terminal;
}

/** Types a block that runs until the test ends. */
function typeInBackground(terminal: Terminal, block: string): void {
  terminal.type(`{\n${block}\n} &`);
}

const connected = (service: Service, instance_id: string): Promise<Instance[]> =>
  until(
    `${instance_id} to pull`,
    async () => (await service.get<Page<Instance>>('/api/v1/instances/')).body.data,
    (data) => data.some((each) => each.instance_id === instance_id && Boolean(each.connected)),
  );

const history = (service: Service, length: number): Promise<Message[]> =>
  until(
    `${length} messages`,
    // Before the first message the meeting does not exist, so the response has no `data`.
    async () => (await service.get<Partial<Page<Message>>>(messagesPath(MEETING))).body.data ?? [],
    (data) => data.length >= length,
  );

test(
  'README: connect carries pushes to the receiver of the first minute, which verifies them',
  { timeout },
  async (t) => {
    const service = await startService(t);
    const blocks = await blocksOf('README.md');
    const terminal = shell(t, service, { PORT: '0' });
    terminal.type(blockOf(blocks, 'start a receiver'));
    const [, port = ''] = await terminal.shows(/listening on .*port: (\d+)/);
    typeInBackground(terminal, blockOf(blocks, 'connect a receiver').replace('127.0.0.1:9000', `127.0.0.1:${port}`));
    await connected(service, 'ben');
    const sent = await service.send(MEETING, { content: 'Good morning' }, ['ben']);
    await terminal.shows(`${MEETING} #1 for ben: {"content":"Good morning"}`);
    const { state, attempts } = await service.settled(sent);
    assert.deepEqual([state, attempts.length], ['delivered', 1]);
  },
);

test('README: the commands of the third minute, with a server in place of the model', { timeout }, async (t) => {
  const service = await startService(t);
  const answer = { choices: [{ message: { role: 'assistant', content: 'Hello, I am Lena.' } }] };
  const model = await startReceiver(t, { body: JSON.stringify(answer) });
  const blocks = await blocksOf('README.md');
  const terminal = shell(t, service);
  typeInBackground(terminal, blockOf(blocks, 'connect a model').replace('http://127.0.0.1:11434', model.origin));
  await connected(service, 'lena');
  const [send = '', read = ''] = blockOf(blocks, 'ask the model').split('\n');
  terminal.type(send);
  await history(service, 2);
  terminal.type(read);
  await terminal.shows('{"content":"Hello, I am Lena."}');
});

test(
  'Behind a firewall: connect carries the bytes and the headers of a webhook to a local address',
  { timeout },
  async (t) => {
    const service = await startService(t);
    const receiver = await startReceiver(t);
    const block = blockOf(await blocksOf('docs/behind-a-firewall.md'), 'connect');
    const terminal = shell(t, service, { CONVOKE_URL: 'http://127.0.0.1:1' });
    typeInBackground(
      terminal,
      block.replace('http://127.0.0.1:9000', receiver.origin).replace('https://convoke.example.com', service.url),
    );
    await connected(service, 'anna');
    await service.settled(await service.send(MEETING, { content: 'Good morning' }));
    const received = await receiver.next();
    assert.deepEqual([received.path, pushOf(received).target_agents], ['/convoke', ['anna']]);
    assert.ok(received.headers['webhook-signature']);
    await terminal.shows(new RegExp(`${MEETING} #1 +200`));
  },
);

test('Behind a firewall: the link of an invite is all that a machine needs', { timeout }, async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const invite = { meeting_ids: [MEETING], agent_ids: ['anna'] };
  const { link } = (await service.post<InviteWithLink>('/api/v1/invites/', invite)).body;
  const receiver = await startReceiver(t);
  const block = blockOf(await blocksOf('docs/behind-a-firewall.md'), 'invite');
  const terminal = shell(t, service, { CONVOKE_URL: 'http://127.0.0.1:1' });
  typeInBackground(
    terminal,
    block.replace('https://convoke.example.com/invite/…', link).replace('http://127.0.0.1:9000', receiver.origin),
  );
  await terminal.shows('anna takes part in standup-42');
  await service.send(MEETING, { content: 'Good morning' });
  assert.deepEqual(pushOf(await receiver.next()).message, { content: 'Good morning' });
});

test('Behind a firewall: the client in plain Python answers', { timeout }, async (t) => {
  if (!has('python3')) return t.skip('there is no python3 here');
  const service = await startService(t);
  await service.endOpenMode();
  const { token } = await service.createKey({ scopes: ['instance'] });
  const block = blockOf(await blocksOf('docs/behind-a-firewall.md'), 'plain python');
  const terminal = shell(t, service, { PYTHONDONTWRITEBYTECODE: '1' });
  typeInBackground(terminal, block.replace('https://convoke.example.com', service.url).replace('cvk_…', token));
  await terminal.shows('anna pulls');
  await service.send(MEETING, { content: 'What is next?' });
  const [, reply] = await history(service, 2);
  assert.deepEqual([reply?.from_agent, reply?.message], ['anna', { content: 'You said: What is next?' }]);
});

/** Starts an instance behind `connect --replies`, as the document says. Its runtime responds as `behaviour` says. */
async function withReplies(t: TestContext, service: Service, behaviour: Behaviour): Promise<Terminal> {
  const runtime = await startReceiver(t, behaviour);
  const terminal = shell(t, service);
  typeInBackground(terminal, `npx convoke connect --agent anna --meeting ${MEETING} --to ${runtime.url} --replies`);
  await connected(service, 'anna');
  return terminal;
}

test('How an agent answers: both responses become the messages that the document says', { timeout }, async (t) => {
  const service = await startService(t);
  const [one, several, ...more] = (await blocksOf('docs/replies.md')).get('in the response') ?? [];
  assert.ok(one !== undefined && several !== undefined && more.length === 0);
  await withReplies(t, service, (_, number) => ({ body: number === 1 ? one : several }));
  const asked = [await service.send(MEETING, { content: 'Good morning' })];
  await history(service, 2);
  asked.push(await service.send(MEETING, { content: 'What is new?' }));
  const said = (await history(service, 5)).filter(({ from_agent }) => from_agent !== undefined);
  assert.deepEqual(
    said.map((each) => [each.in_reply_to, each.from_agent, each.target_agents, each.message]),
    [
      [asked[0]?.message_id, 'anna', null, { content: 'Good morning! I have two things today.' }],
      [asked[1]?.message_id, 'anna', null, { content: 'First, to everybody.' }],
      [asked[1]?.message_id, 'anna', ['ben'], { content: 'And this only to Ben.', mood: 'curious' }],
    ],
  );
});

test('How an agent answers: later, with nothing but the two headers of the push', { timeout }, async (t) => {
  if (!has('curl')) return t.skip('there is no curl here');
  const service = await startService(t);
  const headers = Promise.withResolvers<Record<string, unknown>>();
  const terminal = await withReplies(t, service, (received) => {
    headers.resolve(received.headers);
    return {};
  });
  const { message_id } = await service.send(MEETING, { content: 'Is the build green?' });
  const { 'convoke-reply-url': url, 'convoke-reply-token': token } = await headers.promise;
  terminal.type(`CONVOKE_REPLY_URL='${String(url)}' CONVOKE_REPLY_TOKEN='${String(token)}'`);
  terminal.type(blockOf(await blocksOf('docs/replies.md'), 'later'));
  const [, reply] = await history(service, 2);
  assert.deepEqual(
    [reply?.in_reply_to, reply?.from_agent, reply?.message],
    [message_id, 'anna', { content: 'It took a while: the build is green.' }],
  );
});

test('How an agent answers: a send of its own has its name', { timeout }, async (t) => {
  const service = await startService(t);
  const terminal = shell(t, service);
  terminal.type(blockOf(await blocksOf('docs/replies.md'), 'a send of its own'));
  const [said] = await history(service, 1);
  assert.equal(said?.from_agent, 'anna');
  assert.equal(said.message['content'], 'The build is red again');
});

test('Pull: the steps by hand, with curl', { timeout }, async (t) => {
  if (!has('curl')) return t.skip('there is no curl here');
  const service = await startService(t);
  const blocks = await blocksOf('docs/pull.md');
  const terminal = shell(t, service);
  const here = (block: string): string => block.replaceAll('http://127.0.0.1:8080', service.url);
  terminal.type(here(blockOf(blocks, 'by hand')));
  const [, delivery_id = ''] = await terminal.shows(/"pushes":\[\{"delivery_id":"(dlv_\w+)"/);
  terminal.type(here(blockOf(blocks, 'the result by hand')).replace('dlv_…', delivery_id));
  await terminal.shows('"became":"counted"');
  await terminal.shows('{"content":"It is me."}');
  const [, reply] = await history(service, 2);
  assert.equal(reply?.from_agent, 'cora');
});

test('Pull: the service takes the registration of the page, and its response has the fields of the page', async (t) => {
  const service = await startService(t);
  const blocks = await blocksOf('docs/pull.md');
  const secret = `whsec_${Buffer.alloc(32, 'k').toString('base64')}`;
  const registration = JSON.parse(blockOf(blocks, 'registration').replace('whsec_…', secret)) as Instance;
  assert.equal((await service.post('/api/v1/instances/register/', registration)).status, 201);
  const { instance_id, agent_ids } = registration;
  await service.post('/api/v1/instances/join-meeting/', { instance_id, meeting_id: MEETING, agent_ids });
  await service.send(MEETING, { content: 'Good morning' });
  const path = `/api/v1/instances/${instance_id}/pull/`;
  const first = (await service.post<Pulled>(path, { wait_s: 5 })).body;
  const [push] = first.pushes;
  const result = { delivery_id: push?.delivery_id, attempt: push?.attempt, status_code: 200 };
  const second = (await service.post<Pulled>(path, { results: [result], max: 0 })).body;
  const shown = JSON.parse(blockOf(blocks, 'response')) as Pulled;
  const [shown_push] = shown.pushes;
  assert.deepEqual(Object.keys(first), Object.keys(shown));
  assert.deepEqual(Object.keys(push ?? {}), Object.keys(shown_push ?? {}));
  for (const name of Object.keys(shown_push?.headers ?? {})) assert.ok(push?.headers[name], name);
  const about = { delivery_id: '', attempt: 0 };
  assert.deepEqual(
    second.results.map((each) => ({ ...each, ...about })),
    shown.results.map((each) => ({ ...each, ...about })),
  );
});
