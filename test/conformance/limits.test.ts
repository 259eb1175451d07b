/** Spec section 8: limits. The limits that the design adds are here too. */
import assert from 'node:assert/strict';
import { createServer, type Server, type Socket } from 'node:net';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { Attempt, Diagnosis, Message, MessagePage } from '@convoke/sdk';
import { headerOf, pushOf } from '../support/receiver.ts';
import {
  assertProblem,
  type Member,
  messagesPath,
  type Service,
  startService,
  useService,
} from '../support/service.ts';
import { until } from '../support/wait.ts';

/** A receiver without HTTP. The test decides what it does with a connection when the request has arrived. */
async function startSocketServer(t: TestContext, onRequest: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    socket.once('data', () => onRequest(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

async function attemptAt(service: Service, webhook_url: string) {
  const meeting_id = service.name('meeting');
  const { instance_id } = await service.register({ webhook_url });
  await service.join(meeting_id, instance_id, ['a']);
  const delivery = await service.attempted(await service.send(meeting_id, {}));
  const [attempt] = delivery.attempts;
  assert.ok(attempt !== undefined);
  return { delivery, attempt };
}

/** Five seconds, and the time by which a busy machine is late. */
const LATE_FIVE_SECONDS_MS = 6_500;
/** Measures how long this process stood still: a machine may pause it, and then everything in it is late. */
const stillness = monitorEventLoopDelay();

/** Asserts that a push ended after five seconds, or earlier. */
function assertInTime(duration_ms: number): void {
  const late_ms = LATE_FIVE_SECONDS_MS + stillness.max / 1e6;
  assert.ok(duration_ms <= late_ms, `it took ${duration_ms} ms, and may take ${late_ms} ms`);
}

function assertFiveSeconds(duration_ms: number): void {
  assert.ok(duration_ms >= 4_900, `it took ${duration_ms} ms`);
  assertInTime(duration_ms);
}

/** When an attempt ended. */
const endOf = (attempt: Attempt | undefined): number =>
  Date.parse(String(attempt?.started_at)) + (attempt?.duration_ms ?? Number.NaN);

describe('spec 8, each webhook POST has a timeout of 5 seconds:', { concurrency: true }, () => {
  const service = useService();
  before(() => void stillness.enable());
  after(() => void stillness.disable());

  test('when the recipient takes the request and says nothing; it is logged, and nobody else waits', async (t) => {
    const meeting_id = service.name('meeting');
    const mute = await service.member(t, meeting_id, { behaviour: 'hang' });
    const well = await service.member(t, meeting_id);
    const sent = await service.send(meeting_id, { number: 1 });
    assert.deepEqual(pushOf(await well.receiver.next()).message, { number: 1 });
    await service.send(meeting_id, { number: 2 });
    assert.deepEqual(pushOf(await well.receiver.next()).message, { number: 2 });

    const deliveries = await service.deliveriesOf(sent);
    const deliveryTo = ({ instance_id }: Member): string =>
      deliveries.find((each) => each.instance_id === instance_id)?.delivery_id ?? '';
    const delivery_id = deliveryTo(mute);
    const { attempts } = await until(
      'the end of the attempt',
      () => service.delivery(delivery_id),
      ({ attempt_count }) => attempt_count > 0,
    );
    assert.equal(attempts[0]?.outcome, 'timeout');
    assertFiveSeconds(attempts[0]?.duration_ms ?? 0);
    const told = await service.delivery(deliveryTo(well));
    assert.ok(endOf(told.attempts[0]) < endOf(attempts[0]), 'the others were told while this one was tried');
    const [line] = service.logOf({ delivery_id });
    assert.deepEqual([line?.['level'], line?.msg, line?.['outcome']], [40, 'push failed', 'timeout']);
  });

  test('when the status line arrives byte by byte', async (t) => {
    const url = await startSocketServer(t, (socket) => {
      const bytes = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'.repeat(3).split('');
      const drip = setInterval(() => socket.write(bytes.shift() ?? ' '), 400);
      socket.on('close', () => clearInterval(drip));
    });
    const { attempt } = await attemptAt(service, url);
    assert.equal(attempt.outcome, 'timeout');
    assertFiveSeconds(attempt.duration_ms);
  });

  test('when 1xx responses arrive without end', async (t) => {
    const url = await startSocketServer(t, (socket) => {
      const flood = setInterval(() => socket.write('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'), 100);
      socket.on('close', () => clearInterval(flood));
    });
    const { attempt } = await attemptAt(service, url);
    assert.notEqual(attempt.outcome, 'ok');
    assertInTime(attempt.duration_ms);
  });

  test('a 200 whose body never ends is a success all the same: the verdict is the status line', async (t) => {
    const meeting_id = service.name('meeting');
    const url = await startSocketServer(t, (socket) => {
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nthe beginning');
    });
    const { instance_id } = await service.register({ webhook_url: url });
    await service.join(meeting_id, instance_id, ['a']);
    const delivery = await service.settled(await service.send(meeting_id, {}));
    assert.deepEqual([delivery.state, delivery.attempts[0]?.outcome], ['delivered', 'ok']);
    assertInTime(delivery.attempts[0]?.duration_ms ?? 0);
  });

  test('a webhook test has the same limit, and says what to do', async (t) => {
    const { instance_id } = await service.member(t, service.name('meeting'), { behaviour: 'hang' });
    const { status, body } = await service.post<Diagnosis>('/api/v1/instances/webhook-test/', { instance_id });
    assert.equal(status, 200);
    assert.deepEqual([body.success, body.outcome, body.status_code], [false, 'timeout', null]);
    assertFiveSeconds(body.duration_ms);
    assert.match(body.advice, /no answer within 5 s/);
    const response = body.stages.find(({ stage }) => stage === 'response');
    assert.equal(response?.ok, false);
  });

  test('a response that arrives before the limit counts', async (t) => {
    // Only this timer of the receiver decides the time; the test has no other timer.
    const url = await startSocketServer(t, (socket) => {
      const late = setTimeout(() => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'), 3_000);
      socket.on('close', () => clearTimeout(late));
    });
    const { delivery, attempt } = await attemptAt(service, url);
    assert.deepEqual([delivery.state, attempt.outcome], ['delivered', 'ok']);
    assert.ok(attempt.duration_ms >= 2_900);
  });
});

test('a page of history ends early when it grows too large, and the next one continues there', async (t) => {
  const service = await startService(t);
  const meeting_id = service.name('meeting');
  // Together they have 10 million characters, and a page has 8 MiB at most.
  const messages = 40;
  for (let i = 0; i < messages; i++) await service.send(meeting_id, { s: 'x'.repeat(250_000) });
  const pages: Message[][] = [];
  for (let page: MessagePage | null = null; page === null || page.has_more;) {
    const query: string = `?after_seq=${pages.at(-1)?.at(-1)?.seq ?? 0}&limit=500`;
    page = (await service.get<MessagePage>(messagesPath(meeting_id) + query)).body;
    pages.push(page.data);
  }
  assert.ok(pages.length > 1, 'the limit alone would give one page');
  assert.deepEqual(
    pages.flat().map(({ seq }) => seq),
    Array.from({ length: messages }, (_, i) => i + 1),
  );
});

describe('limits that the contract adds:', { concurrency: true }, () => {
  const service = useService({ max_message_bytes: '2048' });
  const registration = (more: object) => ({
    instance_id: service.name('i'),
    instance_name: 'n',
    agent_ids: ['a'],
    webhook_url: 'http://127.0.0.1:9000/',
    ...more,
  });
  const register = (more: object) => service.post('/api/v1/instances/register/', registration(more));

  test('a message may have max_message_bytes, and not one more', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    const fits = `{"s":"${'x'.repeat(2048 - 8)}"}`;
    await service.sendText(meeting_id, fits);
    assert.match((await receiver.next()).text, new RegExp(`"message":\\{"s":"x{${2048 - 8}}"\\},`));
    const over = `{"s":"${'x'.repeat(2048 - 7)}"}`;
    const problem = assertProblem(
      await service.post(messagesPath(meeting_id), `{"message":${over}}`),
      413,
      'body_too_large',
    );
    assert.match(problem.detail, /2048/);
    // The limit counts bytes, not characters.
    const wide = `{"s":"${'é'.repeat(1021)}"}`;
    assertProblem(await service.post(messagesPath(meeting_id), `{"message":${wide}}`), 413, 'body_too_large');
  });

  test('a body beyond all limits is refused before it is read, and the service continues', async () => {
    const huge = Buffer.alloc(8 << 20, ' ');
    assertProblem(await service.request('POST', messagesPath('m'), { body: huge }), 413, 'body_too_large');
    assert.equal((await service.get('/healthz')).status, 200);
  });

  test('ids have 1 to 200 characters; a character is a code point, however many bytes it has', async (t) => {
    for (const one of ['x', 'é', '😀']) {
      const id = one.repeat(200);
      const { receiver } = await service.member(t, id, {
        agent_ids: [id],
        registration: { instance_id: id, instance_name: id },
      });
      await service.send(id, {}, [id]);
      const push = pushOf(await receiver.next());
      assert.deepEqual([push.meeting_id, push.target_agents], [id, [id]]);
      assert.equal((await service.instance(id)).instance_name, id);

      const over = one.repeat(201);
      for (const field of ['instance_id', 'instance_name']) {
        assertProblem(await register({ [field]: over }), 422, 'invalid_fields');
        assertProblem(await register({ [field]: '' }), 422, 'invalid_fields');
      }
      assertProblem(await register({ agent_ids: [over] }), 422, 'invalid_fields');
      const join = { instance_id: id, meeting_id: over, agent_ids: [] };
      assertProblem(await service.post('/api/v1/instances/join-meeting/', join), 422, 'invalid_fields');
      const send = await service.post(messagesPath(over), { message: {} });
      assert.ok(send.status >= 400 && send.status < 500, `${send.status} ${send.text}`);
      assert.match(String(send.headers['content-type']), /^application\/problem\+json/);
    }
  });

  test('lists of agent ids have at most 1,000', async (t) => {
    const agent_ids = Array.from({ length: 1_000 }, (_, i) => `agent-${i}`);
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { agent_ids });
    await service.send(meeting_id, {}, agent_ids.toReversed());
    assert.deepEqual(pushOf(await receiver.next()).target_agents, agent_ids);
    const over = [...agent_ids, 'one-more'];
    assertProblem(await register({ agent_ids: over }), 422, 'invalid_fields');
    const join = { instance_id, meeting_id, agent_ids: over };
    assertProblem(await service.post('/api/v1/instances/join-meeting/', join), 422, 'invalid_fields');
    const send = { message: {}, target_agents: over };
    assertProblem(await service.post(messagesPath(meeting_id), send), 422, 'invalid_fields');
  });

  test('a webhook_url has at most 2,048 bytes', async () => {
    const url = (bytes: number): string => `http://127.0.0.1:9000/${'x'.repeat(bytes - 22)}`;
    assert.equal((await register({ webhook_url: url(2048) })).status, 201);
    assertProblem(await register({ webhook_url: url(2049) }), 422, 'invalid_fields');
  });

  test('JSON is taken to 100 levels, and refused beyond them', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id);
    const nested = (levels: number): string =>
      `{"message":{"deep":${'['.repeat(levels - 2)}${']'.repeat(levels - 2)}}}`;
    assert.equal((await service.post(messagesPath(meeting_id), nested(100))).status, 201);
    for (const levels of [101, 1_000]) {
      assertProblem(await service.post(messagesPath(meeting_id), nested(levels)), 400, 'malformed_json');
    }
  });

  test('the service keeps an excerpt of the response, and no more of it', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id, { behaviour: { status: 500, body: 'ä'.repeat(1 << 20) } });
    const [attempt] = (await service.attempted(await service.send(meeting_id, {}))).attempts;
    assert.ok((attempt?.response_excerpt ?? '').startsWith('ää'));
    assert.ok((attempt?.response_excerpt ?? '').length < 10_000);
  });

  test('at most four pushes at a time go to one instance', async (t) => {
    const meetings = Array.from({ length: 8 }, () => service.name('meeting'));
    const gate = Promise.withResolvers<void>();
    const behaviour = { after: gate.promise };
    // A slow machine may need longer than five seconds until it opens the gate.
    const registration = { timeout_s: 600 };
    const { instance_id, receiver } = await service.member(t, meetings[0] ?? '', { behaviour, registration });
    for (const meeting_id of meetings.slice(1)) await service.join(meeting_id, instance_id, ['a']);
    const sent = [];
    for (const meeting_id of meetings) sent.push(await service.send(meeting_id, {}));
    await receiver.count(4);
    // When another instance gets a later push, the engine has already passed over the four deliveries that wait.
    const other = await service.member(t, service.name('meeting'));
    const last = meetings.at(-1) ?? '';
    await service.join(last, other.instance_id, ['b']);
    await service.send(last, {});
    await other.receiver.next();
    assert.equal(receiver.requests.length, 4);
    gate.resolve();
    for (const each of sent) await service.settled({ message_id: each.message_id });
    assert.equal(
      new Set(receiver.requests.map((request) => headerOf(request, 'webhook-id'))).size,
      receiver.requests.length,
    );
  });
});
