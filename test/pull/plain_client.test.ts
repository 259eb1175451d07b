/** examples/pull_client.py: with docs/pull.md alone, one can write a client in another language. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, request as sendRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { text as textOf } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { ConvokeClient, type InviteWithLink, type MessagePage, type Pulled } from '@convoke/sdk';
import { pullPath, pullsWaiting } from '../support/pulling.ts';
import { freePort } from '../support/free_port.ts';
import { instancePath, messagesPath, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const EXAMPLES = fileURLToPath(new URL('../../examples/', import.meta.url));
/** Responds at this port as something else than Convoke, until somebody has asked. */
async function pageNotFound(port: number): Promise<void> {
  const { promise: asked, resolve } = Promise.withResolvers<void>();
  const server = createServer((_, response) => void response.writeHead(404).end('404 page not found', resolve));
  server.listen(port, '127.0.0.1');
  await asked;
  server.close().closeAllConnections();
}

const skip = spawnSync('python3', ['--version']).status === 0 ? false : 'there is no python3 here';

test(
  'a client in plain Python gets every message once and in order, and answers, over a restart of the service, a page in its place, and the removal of its instance',
  { skip },
  async (t) => {
    // The service starts again on this port, which the system gives to nobody meanwhile.
    const service = await startService(t, { port: String(await freePort()) });
    await service.endOpenMode();
    const input = { meeting_ids: ['standup', 'retro'], agent_ids: ['anna'], instance_id: 'anna' };
    const { link } = (await service.post<InviteWithLink>('/api/v1/invites/', input)).body;
    const { api_key } = await new ConvokeClient({ base_url: service.url }).redeemInvite(link);
    const { url } = service;
    const client = spawn('python3', ['-B', `${EXAMPLES}pull_client.py`, 'anna', 'standup', 'retro'], {
      env: { ...process.env, CONVOKE_URL: url, CONVOKE_API_KEY: api_key ?? '' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.after(() => client.kill('SIGKILL'));
    const lines: string[] = [];
    const stdout = createInterface({ input: client.stdout });
    stdout.on('line', (line) => lines.push(line));
    await once(stdout, 'line');

    const said = async (meeting_id: string, content: string) =>
      service.settled(await service.send(meeting_id, { content }));
    for (const content of ['one', 'two', 'three']) assert.equal((await said('standup', content)).state, 'delivered');
    assert.equal((await said('retro', 'four')).state, 'delivered');
    await service.stop();
    await pageNotFound(Number(new URL(url).port));
    await service.start();
    assert.equal((await said('standup', 'five')).state, 'delivered');
    const printed = (count: number) =>
      until(
        `${count} lines`,
        () => lines.length,
        (length) => length >= count,
      );
    await printed(6);
    await service.request('DELETE', instancePath('anna'));
    await printed(7);
    assert.equal((await said('standup', 'six')).state, 'delivered');
    await printed(8);
    assert.deepEqual(lines, [
      'anna pulls',
      'standup #1: {"content": "one"}',
      'standup #3: {"content": "two"}',
      'standup #5: {"content": "three"}',
      'retro #1: {"content": "four"}',
      'standup #7: {"content": "five"}',
      'anna pulls',
      'standup #9: {"content": "six"}',
    ]);
    const { data } = (await service.get<MessagePage>(messagesPath('retro'))).body;
    assert.deepEqual(
      data.map(({ from_agent = null, in_reply_to = null, message }) => [from_agent, in_reply_to, message]),
      [
        [null, null, { content: 'four' }],
        ['anna', data[0]?.message_id, { content: 'You said: four' }],
      ],
    );
  },
);

test(
  'a second copy of the client, or one that starts again, makes the first one refuse no push',
  { skip },
  async (t) => {
    const service = await startService(t);
    const WEBHOOK_SECRET = `whsec_${randomBytes(32).toString('base64')}`;
    for (const [agent_id, secret] of [
      ['anna', {}],
      ['ben', { WEBHOOK_SECRET }],
    ] as const) {
      for (let copy = 1; copy <= 2; copy++) {
        const client = spawn('python3', ['-B', `${EXAMPLES}pull_client.py`, agent_id, `of ${agent_id}`], {
          env: { ...process.env, CONVOKE_URL: service.url, ...secret },
          stdio: ['ignore', 'pipe', 'inherit'],
        });
        t.after(() => client.kill('SIGKILL'));
        await once(createInterface({ input: client.stdout }), 'line');
        await until(
          'the client to pull',
          () => pullsWaiting(service),
          (waiting) => waiting === (agent_id === 'anna' ? copy : 2 + copy),
        );
      }
      // The copies take turns.
      for (const content of ['one', 'two', 'three', 'four']) {
        const sent = await service.send(`of ${agent_id}`, { content });
        assert.equal((await service.settled(sent)).attempt_count, 1);
      }
    }
  },
);

test(
  'at Ctrl-C the client gives back a push whose response it never got, and another machine gets it at once',
  { skip },
  async (t) => {
    const service = await startService(t);
    const { port: to_port } = new URL(service.url);
    const holding = Promise.withResolvers<void>();
    const proxy = createServer((request, response) => {
      const { method, url, headers } = request;
      const ahead = sendRequest({ host: '127.0.0.1', port: to_port, method, path: url, headers });
      ahead.on('response', async (answer) => {
        const text = await textOf(answer);
        // Holds back the response that has the push.
        if (text.includes('"delivery_id"')) return holding.resolve();
        response.writeHead(answer.statusCode ?? 502, answer.headers).end(text);
      });
      request.pipe(ahead);
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    t.after(() => proxy.close().closeAllConnections());
    const client = spawn('python3', ['-B', `${EXAMPLES}pull_client.py`, 'anna', 'standup'], {
      env: { ...process.env, CONVOKE_URL: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}` },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.after(() => client.kill('SIGKILL'));
    await once(createInterface({ input: client.stdout }), 'line');
    await service.send('standup', { content: 'hello' });
    await holding.promise;
    client.kill('SIGINT');
    assert.deepEqual(await once(client, 'exit'), [0, null]);
    const { body } = await service.post<Pulled>(pullPath('anna'), { wait_s: 0 });
    assert.deepEqual(
      body.pushes.map(({ attempt }) => attempt),
      [1],
    );
  },
);

/** An agent that works until somebody has written two lines. The second one is its answer. */
const AT_WORK = `
import sys
import pull_client as client
def agent(push, headers):
    print('at work', flush=True)
    sys.stdin.readline()
    print('still at work', flush=True)
    return sys.stdin.readline().strip()
client.serve('anna', ['standup'], agent)
`;

for (const [times, name] of [
  ['once', 'Ctrl-C lets the agent finish, and its answer arrives'],
  ['twice', 'a second Ctrl-C does not wait for the agent, and another machine gets its push at once'],
] as const) {
  test(name, { skip }, async (t) => {
    const service = await startService(t);
    const client = spawn('python3', ['-B', '-c', AT_WORK], {
      cwd: EXAMPLES,
      env: { ...process.env, CONVOKE_URL: service.url },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    t.after(() => client.kill('SIGKILL'));
    const lines = createInterface({ input: client.stdout })[Symbol.asyncIterator]();
    const printed = async (line: string) => assert.equal((await lines.next()).value, line);
    await printed('anna pulls');
    const sent = await service.send('standup', { content: 'hello' });
    await printed('at work');
    client.kill('SIGINT');
    client.stdin.write('\n');
    await printed('still at work');
    const ended = once(client, 'exit');
    if (times === 'once') client.stdin.write('I am done.\n');
    else client.kill('SIGINT');
    assert.deepEqual(await ended, [0, null]);
    if (times === 'once') {
      assert.equal((await service.settled(sent)).state, 'delivered');
      const { data } = (await service.get<MessagePage>(messagesPath('standup'))).body;
      assert.deepEqual(data[1]?.message, { content: 'I am done.' });
    } else {
      const { body } = await service.post<Pulled>(pullPath('anna'), { wait_s: 0 });
      assert.deepEqual(
        body.pushes.map(({ attempt }) => attempt),
        [1],
      );
    }
  });
}

/** Calls the functions of the client one by one. */
const CHECKS = `
import json, sys
import pull_client as client
cases = json.load(sys.stdin)
for case in cases:
    client.time.time = lambda: case['now_s']
    headers = {name.lower(): value for name, value in case['headers'].items()}
    genuine = any(client.is_genuine(secret, headers, case['body'].encode()) for secret in case['secrets'])
    assert genuine == (case['reason'] is None), case['name']
case = next(case for case in cases if case['reason'] is None)
client.time.time = lambda: case['now_s']
push = {'delivery_id': 'd', 'attempt': 1, 'headers': {n.lower(): v for n, v in case['headers'].items()}, 'body': case['body']}
runs, done = [], {}
def agent(*_):
    runs.append(1)
    if len(runs) == 1: raise ValueError('it fails once')
    return 'hello'
results = [client.result_of(dict(push, attempt=n), case['secrets'][0], done, agent) for n in (1, 2, 3)]
assert [r['status_code'] for r in results] == [500, 200, 200] and len(runs) == 2, results
assert results[2] == {'delivery_id': 'd', 'attempt': 3, 'status_code': 200, 'body': '{"reply": "hello"}'}, results
assert client.result_of(dict(push, body=push['body'] + ' '), case['secrets'][0], done, agent)['status_code'] == 401
print(len(cases))
`;

test('it agrees with the test vectors, and wakes the agent again only for a push that failed', { skip }, async () => {
  const vectors = JSON.parse(await readFile(`${EXAMPLES}../vectors/signature.json`, 'utf8')) as {
    verify: { reason: string | null; body: string }[];
  };
  // Leaves out texts that are no secrets: the registration already refuses them.
  const cases = vectors.verify.filter(({ reason }) => reason !== 'invalid_secret');
  const { stdout, stderr } = spawnSync('python3', ['-B', '-c', CHECKS], {
    cwd: EXAMPLES,
    input: JSON.stringify(cases),
    encoding: 'utf8',
  });
  assert.equal(stdout.trim(), String(cases.length), stderr);
});
