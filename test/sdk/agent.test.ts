/** An agent that is a function takes part in meetings by pull and as a webhook receiver, with the same answers. */
import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import {
  type Agent,
  type AgentOptions,
  ConvokeClient,
  ConvokeError,
  createAgentReceiver,
  type Message,
  serveAgent,
} from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { deadUrl } from '../support/command_line.ts';
import { Service } from '../support/service.ts';
import { until } from '../support/wait.ts';

const service = new Service();
let client: ConvokeClient;

before(async () => {
  await service.start();
  client = new ConvokeClient({ base_url: service.url });
});
after(() => service.close());

/** Serves an agent until the test ends. */
function serve(t: TestContext, options: AgentOptions, agent: Agent) {
  const ending = new AbortController();
  const over = serveAgent({ base_url: service.url, signal: ending.signal, ...options }, agent);
  over.catch(() => {});
  t.after(async () => {
    ending.abort();
    await over.catch(() => {});
  });
  return { ending, over };
}

const joined = (meeting_id: string) =>
  until(
    'the agent in the meeting',
    async () => (await client.listMeetingInstances(meeting_id).catch(() => null))?.data.length,
    (length) => length === 1,
  );

const messagesOf = (meeting_id: string, count: number): Promise<Message[]> =>
  until(
    `${count} messages`,
    async () => (await client.listMessages(meeting_id)).data,
    (messages) => messages.length === count,
  );

const said = (messages: readonly Message[]): unknown[] => messages.map(({ message }) => message);

describe('serveAgent', () => {
  test('refuses an option that does not exist: a mistyped `meetings` would leave the agent silent', async () => {
    const mistyped = { agent_id: 'anna', base_url: service.url, meeting: 'm' } as AgentOptions;
    await assert.rejects(
      serveAgent(mistyped, () => null),
      /serveAgent has no option meeting; it has agent_id, meetings/,
    );
    const no_list = { agent_id: 'anna', base_url: service.url, meetings: 'm' } as unknown as AgentOptions;
    await assert.rejects(
      serveAgent(no_list, () => null),
      /meetings must be a list/,
    );
  });

  test('refuses a number that is no limit before it asks the service for anything', async () => {
    let requests = 0;
    const fetch = async () => {
      requests++;
      return Response.json({});
    };
    for (const options of [{ concurrency: 0 }, { turn_s: NaN }, { max_age_s: NaN }]) {
      const over = serveAgent({ agent_id: 'anna', base_url: service.url, ...options, fetch }, () => null);
      await assert.rejects(over, { name: 'RangeError' });
    }
    assert.equal(requests, 0);
  });

  test('ends at once when fetch refuses the port of the service, which no further try would change', async () => {
    const said: string[] = [];
    const onConnection = (state: string) => void said.push(state);
    const over = serveAgent({ agent_id: 'lost', base_url: 'http://127.0.0.1:6000', onConnection }, () => null);
    await assert.rejects(over, { code: 'port_refused', message: /port 6000 .* let Convoke listen on another port$/ });
    assert.deepEqual(said, []);
    // Control: a fetch that refuses no port finds that nobody listens there, and the agent waits.
    const causes = { cause: Object.assign(new Error(), { code: 'ECONNREFUSED' }) };
    const other = () => Promise.reject(new TypeError('fetch failed', causes));
    const client = new ConvokeClient({ base_url: 'http://127.0.0.1:6000', fetch: other });
    await assert.rejects(client.listInstances(), { code: 'unreachable' });
  });

  test('waits while something else responds in place of Convoke; warns once for each reason, and when it is over; onConnection takes the place of that', async (t) => {
    const warned: unknown[] = [];
    t.mock.method(console, 'warn', (text: unknown) => void warned.push(text));
    const faulty = (): typeof fetch => {
      const page = { status: 404, headers: { 'content-type': 'text/plain' } };
      const failures = [null, null, new Response('404 page not found', page), null];
      return async (...request) => {
        if (failures.length === 0) return fetch(...request);
        const failure = failures.shift();
        if (failure) return failure;
        throw new TypeError('fetch failed', { cause: Object.assign(new Error(), { code: 'ECONNREFUSED' }) });
      };
    };
    const sleep = () => Promise.resolve();
    serve(t, { agent_id: 'wary', meetings: ['wary'], fetch: faulty(), sleep }, () => null);
    await until(
      'that it is over',
      () => warned,
      ({ length }) => length === 3,
    );
    const [unreachable, unexpected, over] = warned as string[];
    assert.match(unreachable!, /^cannot reach http:\S+ nothing listens there; .*; trying again$/);
    assert.match(
      unexpected!,
      /^http:\S+ responded 404 with text\/plain, which is no response of Convoke; check base_url, .*; trying again$/,
    );
    assert.equal(over, 'Convoke responds again');
    const states: string[] = [];
    const onConnection = (state: string) => void states.push(state);
    serve(t, { agent_id: 'wary-2', fetch: faulty(), sleep, onConnection }, () => null);
    await until(
      'a connection',
      () => states,
      (all) => all.at(-1) === 'connected',
    );
    assert.equal(warned.length, 3);
  });

  test('registers, joins, and says in the meeting what the agent answers', async (t) => {
    serve(t, { agent_id: 'anna', meetings: ['five-lines'] }, async ({ message }) => ({
      content: `You said: ${String(message['content'])}`,
    }));
    await joined('five-lines');
    await client.sendMessage('five-lines', { content: 'Good morning' });
    const messages = await messagesOf('five-lines', 2);
    assert.deepEqual(said(messages), [{ content: 'Good morning' }, { content: 'You said: Good morning' }]);
    assert.equal(messages[1]!.from_agent, 'anna');
    assert.equal(messages[1]!.in_reply_to, messages[0]!.message_id);
  });

  test('joins with the rules that it was given', async (t) => {
    const rules = { wake: 'targeted', catch_up: 'latest', max_age_s: 3_600 } as const;
    serve(t, { agent_id: 'rita', meetings: ['ruled'], ...rules }, () => null);
    await joined('ruled');
    const [member] = (await client.listMeetingInstances('ruled')).data;
    assert.deepEqual([member?.wake, member?.catch_up, member?.max_age_s], ['targeted', 'latest', 3_600]);
  });

  test('learns how many messages its rules kept from it', async (t) => {
    const { promise: heard, resolve } = Promise.withResolvers<number>();
    serve(t, { agent_id: 'mina', meetings: ['missed'], wake: 'targeted' }, ({ missed }) => resolve(missed));
    await joined('missed');
    for (let count = 1; count <= 2; count++) await client.sendMessage('missed', { content: 'to all' });
    await client.sendMessage('missed', { content: 'to you' }, { target_agents: ['mina'] });
    assert.equal(await heard, 2);
  });

  test('a text, several messages, or nothing: the replies have the order of the answer', async (t) => {
    const answers = ['a text', [{ content: 'one' }, 'two'], null];
    serve(t, { agent_id: 'ben', meetings: ['shapes'] }, ({ seq }) => answers[(seq ?? 0) % 2 === 1 ? 0 : 1]);
    await joined('shapes');
    await client.sendMessage('shapes', { content: 'first' });
    assert.deepEqual(said(await messagesOf('shapes', 2)).at(-1), { content: 'a text' });
  });

  test('an agent that throws runs again; what it threw is reported', async (t) => {
    const errors: unknown[] = [];
    let runs = 0;
    const onError = (error: unknown) => void errors.push(error);
    serve(t, { agent_id: 'carl', meetings: ['throws'], onError }, () => {
      runs++;
      if (runs === 1) throw new Error('no model');
      return 'now';
    });
    await joined('throws');
    const { message_id } = await client.sendMessage('throws', { content: 'try' });
    const [delivery] = await until(
      'the attempt',
      async () => (await client.listDeliveries({ message_id })).data,
      ([each]) => each?.attempt_count === 1,
    );
    await client.retryDelivery(delivery!.delivery_id);
    assert.deepEqual(said(await messagesOf('throws', 2)).at(-1), { content: 'now' });
    assert.deepEqual(errors.map(String), ['Error: no model']);
  });

  test('when it is ended it finishes the answer in progress, and takes no more', async (t) => {
    const release = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const { ending, over } = serve(t, { agent_id: 'dora', meetings: ['ends'] }, async () => {
      begun.resolve();
      await release.promise;
      return 'the last word';
    });
    await joined('ends');
    await client.sendMessage('ends', { content: 'begin' });
    await begun.promise;
    ending.abort();
    release.resolve();
    await over;
    assert.deepEqual(said(await messagesOf('ends', 2)).at(-1), { content: 'the last word' });
  });

  test('one Ctrl-C that arrives as two signals lets the answer in progress end; later signals are for the process again', async (t) => {
    const release = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const listeners = () => ['SIGINT', 'SIGTERM'].map((signal) => process.listenerCount(signal));
    const before = listeners();
    const { over } = serve(t, { agent_id: 'dina', meetings: ['twice'], signal: undefined }, async () => {
      begun.resolve();
      await release.promise;
      return 'the last word';
    });
    await joined('twice');
    await client.sendMessage('twice', { content: 'begin' });
    await begun.promise;
    // A second signal ends a process that does not listen.
    for (let count = 1; count <= 2; count++) process.kill(process.pid, 'SIGINT');
    await until('the end of its listeners', listeners, (now) => now.join() === before.join());
    release.resolve();
    await over;
    assert.deepEqual(said(await messagesOf('twice', 2)).at(-1), { content: 'the last word' });
  });

  test('registers and joins again when its instance was deleted, and ends when that happens twice within a minute', async (t) => {
    let now_ms = 0;
    const losses: string[] = [];
    const onConnection = (_: string, error: ConvokeError | null) => void (error && losses.push(error.code));
    const options = { agent_id: 'gone', meetings: ['gone'], now: () => now_ms, onConnection };
    const { over } = serve(t, options, () => 'still here');
    await joined('gone');
    for (let count = 2; count <= 4; count += 2) {
      await client.deleteInstance('gone');
      await joined('gone');
      await client.sendMessage('gone', { content: 'Who is there?' });
      assert.equal((await messagesOf('gone', count)).at(-1)?.from_agent, 'gone');
      now_ms += count === 2 ? 60_000 : 59_999;
    }
    await client.deleteInstance('gone');
    await assert.rejects(over, { code: 'instance_does_not_exist' });
    assert.deepEqual(losses, ['instance_does_not_exist', 'instance_does_not_exist']);
    assert.deepEqual((await client.listInstances({ q: 'gone' })).data, []);
  });

  test('registers nothing again when its instance is deleted while it ends', async (t) => {
    const release = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const losses: string[] = [];
    const onConnection = (_: string, error: ConvokeError | null) => void (error && losses.push(error.code));
    const { ending, over } = serve(t, { agent_id: 'left', meetings: ['left'], onConnection }, async () => {
      begun.resolve();
      await release.promise;
    });
    await joined('left');
    await client.sendMessage('left', { content: 'begin' });
    await begun.promise;
    ending.abort();
    await client.deleteInstance('left');
    release.resolve();
    await over;
    assert.deepEqual(losses, []);
    assert.deepEqual((await client.listInstances({ q: 'left' })).data, []);
  });

  test('waits for a service that is not there yet, and says what the service refuses', async (t) => {
    const pauses_ms: number[] = [];
    const ending = new AbortController();
    const sleep = async (ms: number): Promise<void> => {
      pauses_ms.push(ms);
      if (pauses_ms.length === 8) ending.abort();
    };
    const options = { agent_id: 'emil', sleep, signal: ending.signal };
    await serveAgent({ ...options, base_url: await deadUrl() }, () => null);
    assert(pauses_ms.every((ms) => ms >= 50 && ms <= 5_000));
    const { over } = serve(t, { agent_id: 'emil\n' }, () => null);
    await assert.rejects(over, (error) => error instanceof ConvokeError && error.code === 'invalid_fields');
  });
});

describe('the same agent as a receiver', () => {
  test('says what it answers in the response', async (t) => {
    const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
    const receive = createAgentReceiver({ secret }, ({ message }) => `You said: ${String(message['content'])}`);
    const server = createServer(toNodeListener(receive)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close().closeAllConnections());
    const webhook_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const agent = { instance_id: 'fred', instance_name: 'Fred', agent_ids: ['fred'] };
    await client.register({ ...agent, webhook_url, webhook_secret: secret, replies: true });
    await client.joinMeeting({ instance_id: 'fred', meeting_id: 'received', agent_ids: ['fred'] });
    await client.sendMessage('received', { content: 'Good morning' });
    assert.deepEqual(said(await messagesOf('received', 2)).at(-1), { content: 'You said: Good morning' });
  });
});
