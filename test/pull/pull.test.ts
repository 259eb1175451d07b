import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import {
  type AuditEntry,
  type Delivery,
  type Page,
  type ProblemDetails,
  type PulledPush,
  type PullResult,
  verify,
} from '@convoke/sdk';
import { systemClock } from '../../src/delivery/clock.ts';
import type { PullContext } from '../../src/http/routes/pull.ts';
import type { InstanceRow } from '../../src/store/contract/instances.ts';
import { PullEndpoint } from '../simulation/pull_endpoint.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { PullingMachine, pullPath, pullsWaiting } from '../support/pulling.ts';
import { RawClient } from '../support/raw_client.ts';
import { post } from '../support/raw_requests.ts';
import { startReceiver } from '../support/receiver.ts';
import { assertProblem, instancePath, type Service, startService, useService } from '../support/service.ts';
import { beforeTimer, until } from '../support/wait.ts';

const service = useService({ retry_schedule: '10ms,20ms,30ms' });

const contentOf = (push: PulledPush): unknown =>
  (JSON.parse(push.body) as { message: { content: unknown } }).message.content;

test('a machine gets exactly what a webhook would, and what it reports is judged as the response of one', async (t) => {
  const meeting_id = service.name('meeting');
  const member = await service.member(t, meeting_id);
  const machine = await PullingMachine.start(service, [meeting_id]);
  const waiting = machine.pull();
  const began_ms = Date.now();
  const sent = await service.send(meeting_id, { content: 'hello', created_at: 'now' });
  const { pushes } = await waiting;
  assert.equal(pushes.length, 1);
  const push = pushes[0]!;
  const [webhook] = await until(
    'the push',
    () => member.receiver.requests,
    ({ length }) => length === 1,
  );
  assert.equal(push.body, webhook!.text);
  const own = new Set(['content-length', 'host', 'connection']);
  const names = Object.keys(webhook!.headers).filter((name) => !own.has(name));
  assert.deepEqual(Object.keys(push.headers).toSorted(), names.toSorted());
  assert.equal(push.headers['webhook-id'], push.delivery_id);
  assert.equal(push.attempt, 1);
  assert.ok(Date.parse(push.deadline_at) > began_ms + 25_000, push.deadline_at);
  await verify(push.body, push.headers, machine.webhook_secret);

  const { results } = await machine.pull({
    results: [{ delivery_id: push.delivery_id, attempt: 1, status_code: 200, body: 'thanks' }],
    wait_s: 0,
  });
  assert.deepEqual(results, [{ delivery_id: push.delivery_id, attempt: 1, became: 'counted', state: null }]);
  const delivery = await service.delivery(push.delivery_id);
  assert.equal(delivery.message_id, sent.message_id);
  const settled = await until(
    'the result',
    () => service.delivery(push.delivery_id),
    ({ state }) => state === 'delivered',
  );
  assert.equal(settled.last_attempt?.response_excerpt, 'thanks');
  assert.equal(settled.last_attempt?.status_code, 200);
});

test('a meeting is pulled in order, one at a time, and meetings side by side', async () => {
  const [first, second] = [service.name('meeting'), service.name('meeting')];
  const machine = await PullingMachine.start(service, [first, second]);
  for (let n = 1; n <= 3; n++) await service.send(first, { content: n });
  await service.send(second, { content: 'other' });
  const seen: unknown[] = [];
  const in_hand: PulledPush[] = [];
  while (seen.length < 4) {
    const push = in_hand.shift();
    const { pushes } = await (push === undefined ? machine.pull() : machine.report(push));
    seen.push(...pushes.map(contentOf));
    in_hand.push(...pushes);
  }
  assert.deepEqual(
    seen.filter((content) => content !== 'other'),
    [1, 2, 3],
  );
});

test('a machine has the next push of each meeting in hand, and beside these one push that went aside, perhaps of the same meeting', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  for (let n = 1; n <= 3; n++) {
    await service.send(meeting_id, { content: n });
    // A 202 is no success, and is not retried.
    await machine.report(await machine.next(), 202);
  }
  const { instance_id } = machine;
  const { body } = await until(
    'the failures',
    () => service.get<Page<Delivery>>(`/api/v1/deliveries/?instance_id=${instance_id}&state=failed`),
    (answer) => answer.body.data.length === 3,
  );
  for (const { delivery_id } of body.data) await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
  const first = await machine.next({ max: 1 });
  for (let n = 4; n <= 5; n++) await service.send(meeting_id, { content: n });
  const { pushes } = await machine.report(first);
  // The node reads deliveries that were queued again, and may be late with that.
  while (pushes.length < 2) pushes.push(...(await machine.pull()).pushes);
  const is_new = (push: PulledPush): boolean => contentOf(push) === 4;
  assert.deepEqual([pushes.length, pushes.filter(is_new).length], [2, 1]);
  assert.deepEqual((await machine.pull({ wait_s: 0 })).pushes, []);
});

test('a push that is dropped and queued again while its machine has it in hand comes again after its result', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  await service.send(meeting_id, { content: 1 });
  const push = await machine.next();
  await service.post('/api/v1/deliveries/drop/', { meeting_id });
  await service.post(`/api/v1/deliveries/${push.delivery_id}/retry/`);
  assert.deepEqual((await machine.pull({ wait_s: 0 })).pushes, []);
  const { pushes } = await machine.report(push);
  assert.deepEqual(
    pushes.map(({ delivery_id }) => delivery_id),
    [push.delivery_id],
  );
  await machine.report(pushes[0]!);
  await until(
    'the second result',
    () => service.delivery(push.delivery_id),
    ({ state }) => state === 'delivered',
  );
});

test('a pull for no pushes hands in results, and takes nothing and waits for nothing', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  for (let n = 1; n <= 2; n++) await service.send(meeting_id, { content: n });
  const { delivery_id, attempt } = await machine.next();
  const ended = await machine.pull({ results: [{ delivery_id, attempt, status_code: 200 }], max: 0, wait_s: 60 });
  assert.deepEqual(ended, { pushes: [], results: [{ delivery_id, attempt, became: 'counted', state: null }] });
  assert.equal(contentOf(await machine.next()), 2);
});

test('while nobody pulls nothing is attempted, no retry is spent and no back-off grows', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  const sent = await service.send(meeting_id, { content: 1 });
  await service.send(meeting_id, { content: 2 });
  const waits = await service.deliveryOf(sent, 'waiting', ({ waiting_for }) => waiting_for === 'connection');
  assert.equal(waits.attempt_count, 0);
  const before = await service.instance(machine.instance_id);
  assert.deepEqual([before.connected ?? null, before.health, before.consecutive_failures], [null, 'unknown', 0]);

  const push = await machine.next();
  assert.equal(contentOf(push), 1);
  await until(
    'the connection',
    () => service.instance(machine.instance_id),
    ({ connected }) => /^(127\.0\.0\.1|::1)$/.test(connected?.address ?? ''),
  );
  const { waiting_for } = await service.delivery(push.delivery_id);
  assert.equal(waiting_for, 'turn');
});

test('what is no success is tried again by the schedule, and a push that was not reached backs off', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  await service.send(meeting_id, { content: 1 });
  const first = await machine.next();
  // Without `max`, the response could already have the next attempt.
  await machine.pull({ results: [{ delivery_id: first.delivery_id, attempt: 1, status_code: 500 }], max: 0 });
  const again = await machine.next();
  assert.deepEqual([again.delivery_id, again.attempt], [first.delivery_id, 2]);
  await machine.pull({
    results: [{ delivery_id: again.delivery_id, attempt: 2, not_reached: 'no runtime' }],
    wait_s: 0,
  });
  const { last_failure } = await until(
    'the failure',
    () => service.instance(machine.instance_id),
    ({ consecutive_failures }) => consecutive_failures === 2,
  );
  assert.deepEqual([last_failure?.outcome, last_failure?.detail], ['unreachable', 'no runtime']);
  await until(
    'the back-off',
    () => service.delivery(first.delivery_id),
    ({ waiting_for }) => waiting_for === 'back_off',
  );
});

test('a result that is repeated, or of another machine, changes nothing, and the response says what became of it', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  const other = await PullingMachine.start(service, [meeting_id]);
  await service.send(meeting_id, { content: 1 });
  const push = await machine.next();
  const foreign = await other.report(push, 410);
  const made_up = { delivery_id: 'dlv_nothing', attempt: 1, status_code: 200 };
  assert.deepEqual([foreign.results[0]!.became, foreign.results[0]!.state], ['unknown', null]);
  const ahead = await machine.report({ ...push, attempt: 2 });
  assert.deepEqual([ahead.results[0]!.became, ahead.results[0]!.state], ['unknown', 'pending']);
  assert.equal((await machine.report(push)).results[0]!.became, 'counted');
  const { results } = await machine.pull({ results: [{ ...made_up }, { ...made_up, ...pick(push) }], wait_s: 0 });
  assert.deepEqual(
    results.map(({ became, state }) => [became, state]),
    [
      ['unknown', null],
      ['repeated', 'delivered'],
    ],
  );
});

test('without a result by the deadline of the instance the attempt is a timeout, and its result is late', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id], { ack_timeout_s: 1 });
  await service.send(meeting_id, { content: 1 });
  const push = await machine.next();
  // Only the first attempt ends so soon: the second one is in hand for as long as this test needs.
  await service.patch(machine.instance_id, { ack_timeout_s: 600 });
  const again = await machine.next();
  assert.deepEqual([again.delivery_id, again.attempt], [push.delivery_id, 2]);
  const { results } = await machine.report(push);
  assert.deepEqual([results[0]!.became, results[0]!.state], ['late', 'pending']);
  const { attempts } = await service.delivery(push.delivery_id);
  assert.deepEqual(
    attempts.map(({ outcome, detail }) => [outcome, detail]),
    [['timeout', 'no result within 1 s']],
  );
});

test('several pull for one instance: each push goes to one of them, in order', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  const pulls = [machine.pull({ wait_s: 60 }), machine.pull({ wait_s: 60 })];
  await until(
    'both pulls',
    () => pullsWaiting(service),
    (waiting) => waiting === 2,
  );
  await service.send(meeting_id, { content: 1 });
  const second = await service.send(meeting_id, { content: 2 });
  const [push, ...more] = (await Promise.race(pulls)).pushes;
  assert.deepEqual([contentOf(push!), more], [1, []]);
  await service.deliveryOf(second, 'known', ({ waiting_for }) => waiting_for === 'turn');
  assert.equal(await pullsWaiting(service), 1);
  const { delivery_id, attempt } = push!;
  await machine.pull({ results: [{ delivery_id, attempt, status_code: 200 }], max: 0 });
  const pushes = (await Promise.all(pulls)).flatMap((pulled) => pulled.pushes);
  assert.deepEqual(new Set(pushes.map(contentOf)), new Set([1, 2]));
});

test('a client that leaves before it got its push has not had it', async () => {
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id]);
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  socket.write(
    `POST ${pullPath(machine.instance_id)} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}`,
  );
  await until(
    'the pull',
    () => pullsWaiting(service),
    (pulls) => pulls === 1,
  );
  socket.destroy();
  await until(
    'its end',
    () => pullsWaiting(service),
    (pulls) => pulls === 0,
  );
  await service.send(meeting_id, { content: 1 });
  const push = await machine.next();
  assert.equal(push.attempt, 1);
});

test('what a machine has in hand holds up none of its other meetings, however many it has', async () => {
  const meetings = Array.from({ length: 12 }, () => service.name('meeting'));
  const machine = await PullingMachine.start(service, meetings);
  for (const meeting_id of meetings) await service.send(meeting_id, { content: 1 });
  // The limit CONVOKE_INSTANCE_CONCURRENCY does not count pushes in hand. If it did, the service would hand out only
  // four.
  const in_hand: PulledPush[] = [];
  while (in_hand.length < meetings.length) {
    const { pushes } = await machine.pull({ max: 3, wait_s: 10 });
    assert.notEqual(pushes.length, 0, `${in_hand.length} of ${meetings.length} were handed out`);
    in_hand.push(...pushes);
  }
  for (const push of in_hand) await machine.report(push);
});

test('a stop answers waiting pulls at once, empty; what was in hand is handed out again after the start', async (t) => {
  const own = await startService(t);
  const meeting_id = own.name('meeting');
  const machine = await PullingMachine.start(own, [meeting_id]);
  await own.send(meeting_id, { content: 1 });
  const push = await machine.next();
  const waiting = machine.pull({ wait_s: 60 });
  await until(
    'the pull',
    () => pullsWaiting(own),
    (pulls) => pulls === 1,
  );
  const answered = beforeTimer('the answer to the pull', 10_000, waiting);
  await Promise.all([own.restart({}), answered.then(({ pushes }) => assert.deepEqual(pushes, []))]);
  await own.untilItDelivers();
  const { connected } = await own.instance(machine.instance_id);
  assert.equal(connected, null);
  const again = await machine.next();
  assert.deepEqual([again.delivery_id, again.attempt, again.body], [push.delivery_id, 1, push.body]);
});

test('a revoked key ends its pull within a second, and the audit log says so', async (t) => {
  const own = await startService(t);
  await own.endOpenMode();
  const key = await own.createKey({ scopes: ['instance'] });
  const admin = own.token;
  own.token = key.token;
  const machine = await PullingMachine.start(own, []);
  own.token = admin;
  const authorization = `Bearer ${key.token}`;
  const waiting = machine.ask({ wait_s: 60 }, { authorization });
  await until(
    'the pull',
    () => pullsWaiting(own),
    (pulls) => pulls === 1,
  );
  await own.request('DELETE', `/api/v1/keys/${key.key_id}/`);
  assertProblem(await beforeTimer('the end of the pull', 1_000, waiting), 401, 'api_key_revoked');
  const refused = await until(
    'the entry',
    async () =>
      (await own.get<Page<AuditEntry>>('/api/v1/audit/')).body.data.filter(({ outcome }) => outcome === 'refused'),
    (entries) => entries.length > 0,
  );
  assert.deepEqual(
    refused.map(({ action, code, details }) => [action, code, details.claimed_key_id]),
    [['authenticate', 'api_key_revoked', key.key_id]],
  );
});

test('a stop ends the pulls that wait, and their responses close their connections', async (t) => {
  const own = await startService(t);
  const machine = await PullingMachine.start(own, []);
  const waiting = machine.ask({ wait_s: 60 });
  await until(
    'the pull',
    () => pullsWaiting(own),
    (pulls) => pulls === 1,
  );
  const closed = own.close(1_000);
  const { status, body, headers } = await waiting;
  assert.deepEqual([status, body.pushes, headers['connection']], [200, [], 'close']);
  await closed;
});

test('a pull that waits behind another one on its connection ends with the connection', async (t) => {
  const own = await startService(t);
  const machines = [await PullingMachine.start(own, []), await PullingMachine.start(own, [])];
  const client = new RawClient(own.url);
  t.after(() => client.destroy());
  for (const { instance_id } of machines) client.write(post(pullPath(instance_id), '{"wait_s":60}'));
  await until(
    'both pulls',
    () => pullsWaiting(own),
    (pulls) => pulls === 2,
  );
  client.destroy();
  await until(
    'their end',
    () => pullsWaiting(own),
    (pulls) => pulls === 0,
  );
});

/** The parts that a pull needs, without a service. */
function pullParts(calls: string[], given: Partial<PullContext> = {}): PullContext {
  return {
    store: { instances: { find: () => Promise.resolve(PULLED_ROW) }, deliveries: { get: () => Promise.resolve(null) } },
    engine: { written: () => Promise.resolve(), isFullOfReplies: false },
    pull_transport: {
      changes: 0,
      permitOf: () => null,
      take: () => calls.push('take') > 0,
      takeBack: () => void calls.push('take back'),
      pull: (request) => {
        calls.push('pull');
        request.onEnd({ pushes: [] });
        return null as never;
      },
    } as Partial<PullContext['pull_transport']> as PullContext['pull_transport'],
    clock: systemClock(),
    limits: { addressOf: () => null },
    audit_trail: { standingEnded() {} },
    takesPullsOf: () => true,
    pull_forwarder: null,
    ...given,
  };
}

const PULLED_ROW = { transport: 'pull', owner_key_id: null, updated_at: 1 } as InstanceRow;

describe('a pull whose registration is read slowly', () => {
  /** The calls of the transport for a pull, whose client may leave while the registration is read. */
  async function callsOf({ client_leaves }: { client_leaves: boolean }): Promise<string[]> {
    const calls: string[] = [];
    const read = Promise.withResolvers<InstanceRow>();
    const store = { instances: { find: () => read.promise }, deliveries: { get: () => Promise.resolve(null) } };
    const endpoint = new PullEndpoint(pullParts(calls, { store }));
    const exchange = endpoint.pull('i', { results: [], max: 1, wait_s: 0, pull_id: 'x' }, false);
    if (client_leaves) exchange.end(false);
    read.resolve(PULLED_ROW);
    if (!client_leaves) await exchange.answered;
    await new Promise((resolve) => setImmediate(resolve));
    return calls;
  }

  test('takes nothing back and waits for nothing when its client has left: the next pull may have its name', async () => {
    assert.deepEqual(await callsOf({ client_leaves: true }), []);
  });

  test('control: otherwise it does', async () => {
    assert.deepEqual(await callsOf({ client_leaves: false }), ['take back', 'pull']);
  });

  const RESULT = { delivery_id: 'd', attempt: 1, status_code: 200 };

  test('counts no result here when another node delivers by then: it is forwarded', async () => {
    const calls: string[] = [];
    let is_here = true;
    const store = {
      instances: {
        find: async () => {
          is_here = false;
          return PULLED_ROW;
        },
      },
      deliveries: { get: () => Promise.resolve(null) },
    };
    const pull_forwarder: PullContext['pull_forwarder'] = {
      async forward() {
        calls.push('forward');
        return null;
      },
      addressIn: async () => null,
      is_draining: false,
    };
    const endpoint = new PullEndpoint(pullParts(calls, { store, takesPullsOf: () => is_here, pull_forwarder }));
    const { answered } = endpoint.pull('i', { results: [RESULT], max: 1, wait_s: 0, pull_id: 'x' }, false);
    assert.equal((await answered).status, 503);
    assert.deepEqual(calls, ['forward']);
  });

  test('does not wait here when another node delivers since its results were taken', async () => {
    const calls: string[] = [];
    let is_here = true;
    const take = (): boolean => {
      calls.push('take');
      is_here = false;
      return true;
    };
    const { pull_transport, ...parts } = pullParts(calls, { takesPullsOf: () => is_here });
    const endpoint = new PullEndpoint({ ...parts, pull_transport: { ...pull_transport, take } });
    const { answered } = endpoint.pull('i', { results: [RESULT], max: 1, wait_s: 30, pull_id: 'x' }, false);
    const { status, body } = await answered;
    assert.deepEqual([status, body?.pushes, body?.results.map(({ became }) => became)], [200, [], ['counted']]);
    assert.ok(!calls.includes('pull'));
  });

  /** The status of a pull whose key ends while a call of the store is in progress, and the calls of the transport. */
  async function endedDuring(call: 'find' | 'get', max: number): Promise<[status: number, calls: string[]]> {
    const calls: string[] = [];
    let has_ended = false;
    const during = (each: 'find' | 'get'): void => void (has_ended ||= each === call);
    const store: PullContext['store'] = {
      instances: { find: async () => (during('find'), PULLED_ROW) },
      deliveries: { get: async () => (during('get'), null) },
    };
    const { pull_transport, ...parts } = pullParts(calls, { store });
    const take = (): boolean => (calls.push('take'), call === 'find');
    const endpoint = new PullEndpoint({ ...parts, pull_transport: { ...pull_transport, take } });
    const standing = { revocationReason: () => (has_ended ? ('api_key_revoked' as const) : null) };
    const asked = { results: [RESULT], max, wait_s: 0, pull_id: 'x' };
    const { status } = await endpoint.pull('i', asked, false, standing).answered;
    return [status, calls];
  }

  test('counts no result and gets no push when its key was revoked meanwhile', async () => {
    assert.deepEqual(await endedDuring('find', 1), [401, []]);
  });

  for (const max of [0, 1]) {
    test(`takes nothing back and gets no push when its key was revoked while it took results, with max ${max}`, async () => {
      assert.deepEqual(await endedDuring('get', max), [401, ['take']]);
    });
  }
});

for (const client_leaves of [true, false]) {
  const name = 'a pull that is forwarded ends at the other node when its client leaves while that node is looked for';
  test(client_leaves ? name : 'control: a pull whose client waits does not end', async () => {
    const looked_for = Promise.withResolvers<void>();
    let cancelled = false;
    const forward: NonNullable<PullContext['pull_forwarder']>['forward'] = async (_pull, onRequest) => {
      await looked_for.promise;
      onRequest(() => (cancelled = true));
      return null;
    };
    const pull_forwarder = { forward, addressIn: async () => null, is_draining: false };
    const endpoint = new PullEndpoint(pullParts([], { takesPullsOf: () => false, pull_forwarder }));
    const exchange = endpoint.pull('i', { results: [], max: 1, wait_s: 30, pull_id: 'x' }, false);
    if (client_leaves) exchange.end(false);
    looked_for.resolve();
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(cancelled, client_leaves);
  });
}

describe('while too many replies wait to be stored', () => {
  for (const [what, body, status, calls] of [
    ['the response of a runtime has to be brought again, and nothing of the pull is taken', '{"reply":"yes"}', 503, []],
    ['a result without a body counts', '', 200, ['take', 'take back', 'pull']],
  ] as const) {
    test(what, async () => {
      const made: string[] = [];
      const engine = { written: () => Promise.resolve(), isFullOfReplies: true };
      const endpoint = new PullEndpoint(pullParts(made, { engine }));
      const result = { delivery_id: 'd', attempt: 1, status_code: 200, body };
      const answer = await endpoint.pull('i', { results: [result], max: 1, wait_s: 0, pull_id: 'x' }, false).answered;
      assert.deepEqual([answer?.status, made], [status, calls]);
    });
  }
});

test('a change of the registration decides at once who may pull: a new owner, a webhook, a deletion', async (t) => {
  const own = await startService(t);
  await own.endOpenMode();
  const anna = await own.createKey({ scopes: ['instance'] });
  const ben = await own.createKey({ scopes: ['instance'] });
  const admin = own.token;
  own.token = anna.token;
  const machine = await PullingMachine.start(own, []);
  own.token = admin;
  const pull = ({ token }: { token: string }) => machine.ask({ wait_s: 0 }, { authorization: `Bearer ${token}` });

  assert.deepEqual([(await pull(anna)).status, (await pull(anna)).status], [200, 200]);
  assertProblem(await pull(ben), 404, 'instance_does_not_exist');
  await own.patch(machine.instance_id, { owner_key_id: ben.key_id });
  assertProblem(await pull(anna), 404, 'instance_does_not_exist');
  assert.deepEqual([(await pull(ben)).status, (await pull(ben)).status], [200, 200]);
  own.token = ben.token;
  const { instance_id } = machine;
  const webhook = { instance_id, instance_name: 'A server', agent_ids: ['a'], webhook_url: 'http://127.0.0.1:9/' };
  assert.equal((await own.post('/api/v1/instances/register/', webhook)).status, 200);
  assertProblem(await pull(ben), 422, 'invalid_fields');
  assert.equal((await own.post('/api/v1/instances/register/', { ...webhook, transport: 'pull' })).status, 200);
  assert.deepEqual([(await pull(ben)).status, (await pull(ben)).status], [200, 200]);
  assert.equal((await own.request('DELETE', instancePath(instance_id))).status, 204);
  assertProblem(await pull(ben), 404, 'instance_does_not_exist');
});

test('a registration that pulls needs no webhook_url; one that does not, does', async (t) => {
  const body = { instance_id: service.name('x'), instance_name: 'x', agent_ids: ['a'] };
  const path = '/api/v1/instances/register/';
  const { errors } = assertProblem(await service.post<ProblemDetails>(path, body), 422, 'invalid_fields');
  assert.deepEqual(errors, [{ path: 'webhook_url', message: 'is required' }]);
  const pulls = await service.post<{ webhook_url: string; transport: string }>(path, { ...body, transport: 'pull' });
  assert.deepEqual([pulls.status, pulls.body.webhook_url, pulls.body.transport], [201, '', 'pull']);

  // The API shows this address, and the service never calls it.
  const receiver = await startReceiver(t);
  const meeting_id = service.name('meeting');
  const machine = await PullingMachine.start(service, [meeting_id], { webhook_url: receiver.url });
  await service.send(meeting_id, { content: 1 });
  await machine.report(await machine.next());
  assert.equal((await service.instance(machine.instance_id)).webhook_url, receiver.url);
  assert.equal(receiver.requests.length, 0);
  const tested = await service.post('/api/v1/instances/webhook-test/', { instance_id: machine.instance_id });
  assertProblem(tested, 422, 'invalid_fields');

  // Without the field, the instance is as the specification describes it.
  const pushed = await service.register({ instance_id: machine.instance_id, webhook_url: receiver.url });
  assert.equal(pushed.transport, undefined);
  assertProblem(await machine.ask({ wait_s: 0 }), 422, 'invalid_fields');
  await service.send(meeting_id, { content: 2 });
  await until(
    'the push',
    () => receiver.requests.length,
    (length) => length === 1,
  );
});

test('what is wrong with a result is named', async () => {
  const machine = await PullingMachine.start(service, []);
  const one = { delivery_id: 'dlv_x', attempt: 1 };
  const wrong: [result: object, path: string, said: RegExp][] = [
    [one, 'results.0', /^results\.0 /],
    [{ ...one, status_code: 200, not_reached: 'x' }, 'results.0', /^results\.0 /],
    [
      { ...one, status_code: 200, body: 'é'.repeat(40_000) },
      'results.0.body',
      /^results\.0\.body must be a string of at most/,
    ],
    [{ ...one, status_code: 99 }, 'results.0.status_code', /^results\.0\.status_code must be a whole number/],
    [{ ...one, statuscode: 200 }, 'results.0.statuscode', /^unknown field statuscode; did you mean status_code\?/],
    [{ ...one, status_code: 200, 'a/b': 1 }, 'results.0.a/b', /^unknown field a\/b; known are delivery_id, attempt, /],
  ];
  for (const [result, path, said] of wrong) {
    const { errors, detail } = assertProblem(
      await machine.ask({ results: [result as PullResult] }),
      422,
      'invalid_fields',
    );
    assert.deepEqual(
      errors?.map((error) => error.path),
      [path],
    );
    assert.match(detail, said);
  }
});

function pick({ delivery_id, attempt }: PulledPush) {
  return { delivery_id, attempt };
}

test('a pull that is made again under its name gets at once what its lost response had, and spends no attempt', async (t) => {
  const service = await startService(t);
  const meetings = ['one', 'two'];
  const machine = await PullingMachine.start(service, meetings, { ack_timeout_s: 600 });
  const proxy = await CuttingProxy.start(Number(new URL(service.url).port));
  t.after(() => proxy.close());
  proxy.onAnswer = () => 'swallow';
  const lost = askOver(proxy, machine, { pull_id: 'first', wait_s: 60 });
  await until(
    'the pull to wait',
    () => pullsWaiting(service),
    (waiting) => waiting >= 1,
  );
  const sent = await service.send(meetings[0]!, { content: 'on its way' });
  await until(
    'the push to be in the lost response',
    () => inHand(service),
    (in_hand) => in_hand === 1,
  );
  // Another request, or the same request with another name, gets no push, because the push is in hand.
  assert.deepEqual((await machine.pull({ pull_id: 'second', wait_s: 0 })).pushes, []);
  const again = await machine.next({ pull_id: 'first', wait_s: 60 });
  assert.equal(again.attempt, 1);
  assert.equal(contentOf(again), 'on its way');
  await machine.report(again);
  assert.equal((await service.settled(sent)).attempt_count, 1);

  // Now the same without a push in hand: the request on the dead connection still waits, and would get the next push.
  const dead = askOver(proxy, machine, { pull_id: 'third', wait_s: 60 });
  await until(
    'the pull to wait',
    () => pullsWaiting(service),
    (waiting) => waiting >= 1,
  );
  const waiting = machine.next({ pull_id: 'third', wait_s: 60 });
  await until(
    'the one to wait that was made again',
    () => pullsWaiting(service),
    (count) => count === 1,
  );
  await service.send(meetings[1]!, { content: 'the next one' });
  assert.equal(contentOf(await waiting), 'the next one');
  proxy.cutAll();
  await Promise.all([lost, dead]);
});

test('the name of a pull is short and plain', async () => {
  const machine = await PullingMachine.start(service, []);
  for (const pull_id of ['', 'x'.repeat(65), 'a b', 7 as never])
    assertProblem(await machine.ask({ pull_id, wait_s: 0 }), 422, 'invalid_fields');
});

/** Makes a pull over a proxy that loses the response. Resolves when the proxy has cut the connection. */
async function askOver(proxy: CuttingProxy, machine: PullingMachine, body: object): Promise<void> {
  const url = `http://127.0.0.1:${proxy.port}${pullPath(machine.instance_id)}`;
  const headers = { 'content-type': 'application/json' };
  await assert.rejects(fetch(url, { method: 'POST', headers, body: JSON.stringify(body) }));
}

async function inHand(of: Service): Promise<number> {
  return Number(/^convoke_pushes_in_hand (\d+)$/m.exec((await of.get('/metrics')).text)?.[1]);
}
