/** What happens to a delivery, and what callers can do about it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Delivery, DeliveryWithAttempts, Page, Recovered, SentMessage } from '@convoke/sdk';
import { headerOf, pushOf, startReceiver } from '../support/receiver.ts';
import { assertProblem, instancePath, membersPath, type Service, useService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { SlowClock } from '../support/slow_clock.ts';
import { until } from '../support/wait.ts';

const retry = (service: Service, delivery_id: string) =>
  service.post<DeliveryWithAttempts>(`/api/v1/deliveries/${delivery_id}/retry/`);

const recover = (service: Service, instance_id: string, since: Date) =>
  service.post<Recovered>(`${instancePath(instance_id)}recover/`, { since: since.toISOString() });

const numbers = (requests: readonly { text: string }[]): unknown[] =>
  requests.map(({ text }) => (JSON.parse(text) as { message: { number: unknown } }).message.number);

/** The shortest back-off, and the shortest pause before the first retry. */
const PAUSE_MS_MIN = 8_000;

/** How many times longer the pauses are where a test ends them: a slow machine needs seconds for some requests. */
const LONGER = 20;

/** Asserts that the retry came early, because something ended the pause before its time. */
function assertAtOnce({ attempts }: DeliveryWithAttempts): void {
  const [first, second] = attempts.map(({ started_at }) => Date.parse(started_at));
  assert.ok(first !== undefined && second !== undefined, 'two attempts');
  assert.ok(second - first < LONGER * PAUSE_MS_MIN, `${second - first} ms between two attempts`);
}

/** The pause between the end of the first attempt and the next attempt, in milliseconds. */
function pauseOf({ attempts, next_attempt_at }: DeliveryWithAttempts): number {
  const [attempt] = attempts;
  assert.ok(attempt !== undefined);
  return Date.parse(String(next_attempt_at)) - Date.parse(attempt.started_at) - attempt.duration_ms;
}

describe('what becomes of a delivery:', { concurrency: true }, () => {
  const service = useService();

  test('200: delivered, with everything on record', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id, { behaviour: { body: 'thank you' } });
    const sent = await service.send(meeting_id, {});
    const delivery = await service.settled(sent);
    const { attempts, last_attempt, delivery_id, created_at, settled_at, ...rest } = delivery;
    assert.deepEqual(rest, {
      message_id: sent.message_id,
      meeting_id,
      seq: 1,
      instance_id,
      target_agents: ['a'],
      state: 'delivered',
      reason: null,
      waiting_for: null,
      attempt_count: 1,
      next_attempt_at: null,
    });
    assert.match(delivery_id, /^dlv_[0-9a-v]{19}$/);
    assert.equal(created_at, sent.accepted_at);
    assert.ok(Date.parse(String(settled_at)) >= Date.parse(created_at));
    assert.deepEqual(last_attempt, attempts.at(-1));
    const [attempt] = attempts;
    assert.deepEqual(Object.keys(attempt ?? {}), [
      'attempt',
      'started_at',
      'duration_ms',
      'outcome',
      'status_code',
      'detail',
      'response_excerpt',
    ]);
    assert.deepEqual([attempt?.detail, attempt?.response_excerpt], ['', 'thank you']);
  });

  for (const status of [201, 202, 204]) {
    test(`${status}: failed, not_200, and never retried: the agent is running already`, async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id, { behaviour: { status } });
      const delivery = await service.settled(await service.send(meeting_id, {}));
      assert.deepEqual([delivery.state, delivery.reason, delivery.next_attempt_at], ['failed', 'not_200', null]);
      assert.equal(receiver.requests.length, 1);
    });

    test(`${status} where success_statuses is 2xx: delivered`, async (t) => {
      const meeting_id = service.name('meeting');
      const { instance_id } = await service.member(t, meeting_id, {
        behaviour: { status },
        registration: { success_statuses: '2xx' },
      });
      const delivery = await service.settled(await service.send(meeting_id, {}));
      assert.deepEqual([delivery.state, delivery.attempts[0]?.outcome], ['delivered', 'ok']);
      assert.equal((await service.instance(instance_id)).health, 'up');
    });
  }

  test('410: failed, gone, and the webhook of the instance goes off until it registers again', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { behaviour: { status: 410 } });
    const delivery = await service.settled(await service.send(meeting_id, {}));
    assert.deepEqual([delivery.state, delivery.reason], ['failed', 'gone']);
    const { webhook_enabled, is_active } = await service.instance(instance_id);
    assert.deepEqual([webhook_enabled, is_active], [false, true]);
    assert.equal((await service.send(meeting_id, {})).deliveries_queued, 0);
    receiver.behaviour = {};
    await service.register({ instance_id, webhook_url: receiver.url });
    assert.equal((await service.settled(await service.send(meeting_id, {}))).state, 'delivered');
  });

  for (const [what, behaviour] of [
    ['another status', { status: 500 }],
    ['a redirect', { status: 307, headers: { location: '/elsewhere' } }],
    ['a broken response', 'reset'],
  ] as const) {
    test(`${what}: again, but not within 8 s`, async (t) => {
      const meeting_id = service.name('meeting');
      await service.member(t, meeting_id, { behaviour });
      const delivery = await service.attempted(await service.send(meeting_id, {}));
      assert.deepEqual([delivery.state, delivery.waiting_for], ['pending', 'retry']);
      const pause_ms = pauseOf(delivery);
      assert.ok(pause_ms >= 7_990 && pause_ms <= 13_000, `${pause_ms} ms`);
    });
  }

  for (const [retry_after, low_s, high_s] of [
    ['60', 60, 61],
    ['1', 8, 13],
    ['999999', 3600, 3601],
    ['1e99', 8, 13],
    ['-5', 8, 13],
    ['soon', 8, 13],
    [new Date(Date.now() + 600_000).toUTCString(), 500, 601],
  ] as const) {
    test(`503 with Retry-After ${retry_after}: held between the schedule and an hour`, async (t) => {
      const meeting_id = service.name('meeting');
      await service.member(t, meeting_id, { behaviour: { status: 503, headers: { 'retry-after': retry_after } } });
      const delivery = await service.attempted(await service.send(meeting_id, {}));
      const pause_s = pauseOf(delivery) / 1000;
      // The API rounds to whole milliseconds.
      assert.ok(pause_s >= low_s - 0.01 && pause_s <= high_s, `${pause_s} s`);
    });
  }

  test('one probe at a time goes to an instance that is down', async (t) => {
    const meetings = Array.from({ length: 6 }, () => service.name('meeting'));
    const { instance_id, receiver } = await service.member(t, meetings[0] ?? '', { behaviour: 'reset' });
    for (const meeting_id of meetings.slice(1)) await service.join(meeting_id, instance_id, ['a']);
    for (const meeting_id of meetings) await service.send(meeting_id, {});
    await until(
      'an instance that is down',
      () => service.instance(instance_id),
      ({ health }) => health === 'down',
    );
    const gate = Promise.withResolvers<void>();
    receiver.behaviour = { after: gate.promise };
    const before = receiver.requests.length;
    // Each message is alone in its lane, so that only the instance can delay it.
    const fresh = Array.from({ length: 6 }, () => service.name('meeting'));
    for (const meeting_id of fresh) {
      await service.join(meeting_id, instance_id, ['a']);
      await service.send(meeting_id, {});
    }
    await service.heartbeat(instance_id);
    await receiver.count(before + 1);
    const other = await service.member(t, fresh[5] ?? '', { agent_ids: ['b'] });
    await service.send(fresh[5] ?? '', {});
    await other.receiver.next();
    assert.equal(receiver.requests.length, before + 1);
    gate.resolve();
  });

  for (const flag of ['is_active', 'webhook_enabled']) {
    test(`switched off by ${flag} with deliveries pending: they wait, and go out when it is on again`, async (t) => {
      const meeting_id = service.name('meeting');
      const { instance_id, receiver } = await service.member(t, meeting_id);
      await receiver.down();
      const sent = await service.send(meeting_id, { number: 1 });
      await service.attempted(sent);
      await service.patch(instance_id, { [flag]: false });
      await receiver.up();
      await service.heartbeat(instance_id);
      assert.equal((await service.deliveriesOf(sent))[0]?.waiting_for, 'switched_off');
      // When another instance gets a later push, the engine has already passed over this delivery.
      const other = await service.member(t, meeting_id);
      await service.send(meeting_id, { number: 2 });
      await other.receiver.next();
      assert.equal(receiver.requests.length, 0);
      await service.patch(instance_id, { [flag]: true });
      assert.deepEqual(numbers([await receiver.next()]), [1]);
      assert.equal((await service.settled(sent)).state, 'delivered');
    });
  }

  test('deleted: cancelled, and the memberships are gone', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    const delivered = await service.send(meeting_id, { number: 0 });
    await service.settled(delivered);
    await receiver.down();
    const sent = [await service.send(meeting_id, { number: 1 }), await service.send(meeting_id, { number: 2 })];
    await service.attempted(sent[0] as SentMessage);
    const answer = await service.request('DELETE', instancePath(instance_id));
    assert.deepEqual([answer.status, answer.text], [204, '']);
    for (const each of sent) {
      const [delivery] = await service.deliveriesOf(each);
      assert.deepEqual([delivery?.state, delivery?.reason], ['cancelled', 'instance_deleted']);
      assert.equal(delivery?.waiting_for, null);
      const problem = assertProblem(await retry(service, delivery?.delivery_id ?? ''), 409, 'delivery_not_retryable');
      assert.match(problem.detail, /cancelled when its instance was deleted/);
    }
    assert.equal((await service.deliveriesOf(delivered))[0]?.state, 'delivered', 'what is settled stays as it was');
    assertProblem(await service.get(instancePath(instance_id)), 404, 'instance_does_not_exist');
    assertProblem(await service.request('DELETE', instancePath(instance_id)), 404, 'instance_does_not_exist');
    const { body } = await service.get<Page<unknown>>(`${membersPath(meeting_id)}?include_left=true`);
    assert.deepEqual(body.data, []);
  });

  test('a machine gets the messages of a meeting in their order, and meetings do not wait for each other', async (t) => {
    const meetings = [service.name('meeting'), service.name('meeting'), service.name('meeting')];
    const { instance_id, receiver } = await service.member(t, meetings[0] ?? '');
    for (const meeting_id of meetings.slice(1)) await service.join(meeting_id, instance_id, ['a']);
    await Promise.all(
      meetings.map(async (meeting_id) => {
        for (let number = 1; number <= 30; number++) await service.send(meeting_id, { number });
      }),
    );
    const requests = await receiver.count(90);
    for (const meeting_id of meetings) {
      const here = requests.filter((request) => pushOf(request).meeting_id === meeting_id);
      assert.deepEqual(
        numbers(here),
        Array.from({ length: 30 }, (_, i) => i + 1),
      );
      assert.deepEqual(
        here.map((request) => headerOf(request, 'convoke-seq')),
        here.map((_, i) => String(i + 1)),
      );
    }
  });

  test('one attempt in a lane at a time', async (t) => {
    const meeting_id = service.name('meeting');
    const gate = Promise.withResolvers<void>();
    const { receiver } = await service.member(t, meeting_id, {
      behaviour: { after: gate.promise },
      // A slow machine may need longer than five seconds until it opens the gate.
      registration: { timeout_s: 600 },
    });
    const other = await service.member(t, meeting_id);
    for (let number = 1; number <= 10; number++) await service.send(meeting_id, { number });
    await other.receiver.count(10);
    assert.equal(receiver.requests.length, 1);
    gate.resolve();
    assert.deepEqual(numbers(await receiver.count(10)), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });

  test('messages sent at once get numbers without gaps, and arrive in the order of their numbers', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    const sent = await Promise.all(Array.from({ length: 50 }, (_, number) => service.send(meeting_id, { number })));
    const spoken = new Map(sent.map(({ seq }, number) => [seq, number]));
    assert.deepEqual(
      [...spoken.keys()].toSorted((a, b) => a - b),
      Array.from({ length: 50 }, (_, i) => i + 1),
    );
    const received = numbers(await receiver.count(50));
    assert.deepEqual(
      received,
      Array.from({ length: 50 }, (_, i) => spoken.get(i + 1)),
    );
  });
});

describe('the pause of an instance or a delivery:', { concurrency: true }, () => {
  const service = useService({}, new SlowClock(LONGER));

  test('not reached: the instance backs off, and its deliveries keep their place and spend no retry', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    await receiver.down();
    const first = await service.send(meeting_id, { number: 1 });
    const delivery = await service.attempted(first);
    assert.deepEqual([delivery.state, delivery.next_attempt_at], ['pending', null]);
    assert.equal(delivery.waiting_for, 'back_off');
    const second = await service.send(meeting_id, { number: 2 });
    assert.equal((await service.deliveriesOf(second))[0]?.waiting_for, 'back_off');
    const instance = await service.instance(instance_id);
    assert.deepEqual(
      [instance.health, instance.consecutive_failures, instance.pending_deliveries, instance.last_failure?.outcome],
      ['failing', 1, 2, 'connect_refused'],
    );

    await receiver.up();
    await service.heartbeat(instance_id);
    assert.deepEqual(numbers(await receiver.count(2)), [1, 2]);
    assert.equal((await service.settled(second)).state, 'delivered');
    assertAtOnce(await service.settled(first));
    const after = await service.instance(instance_id);
    assert.deepEqual([after.health, after.consecutive_failures, after.pending_deliveries], ['up', 0, 0]);
    // The instance still shows its last failure.
    assert.equal(after.last_failure?.outcome, 'connect_refused');
  });

  const lifts: Record<string, (instance_id: string, webhook_url: string) => Promise<unknown>> = {
    'a heartbeat': (instance_id) => service.heartbeat(instance_id),
    'a registration': (instance_id, webhook_url) => service.register({ instance_id, webhook_url }),
    'a PATCH that sets webhook_enabled': (instance_id) => service.patch(instance_id, { webhook_enabled: true }),
    'a PATCH that sets is_active': (instance_id) => service.patch(instance_id, { is_active: true }),
  };
  for (const [what, lift] of Object.entries(lifts)) {
    test(`${what} lifts the back-off at once, and the backlog flows in order`, async (t) => {
      const meeting_id = service.name('meeting');
      const { instance_id, receiver } = await service.member(t, meeting_id);
      await receiver.down();
      const first = await service.send(meeting_id, { number: 1 });
      await service.attempted(first);
      for (let number = 2; number <= 20; number++) await service.send(meeting_id, { number });
      await receiver.up();
      await lift(instance_id, receiver.url);
      assert.deepEqual(
        numbers(await receiver.count(20)),
        Array.from({ length: 20 }, (_, i) => i + 1),
      );
      assertAtOnce(await service.settled(first));
    });
  }

  test('a registration at another URL takes the backlog there', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    await receiver.down();
    const first = await service.send(meeting_id, { number: 1 });
    await service.attempted(first);
    await service.send(meeting_id, { number: 2 });
    const moved = await startReceiver(t);
    await service.register({ instance_id, webhook_url: moved.url });
    assert.deepEqual(numbers(await moved.count(2)), [1, 2]);
    assertAtOnce(await service.settled(first));
  });

  test('retry of a pending one that waits for its time: brought forward', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, {
      behaviour: (_, number) => ({ status: number === 1 ? 500 : 200 }),
    });
    const sent = await service.send(meeting_id, { number: 1 });
    const after = await service.send(meeting_id, { number: 2 });
    const waiting = await service.attempted(sent);
    assert.equal((await retry(service, waiting.delivery_id)).status, 200);
    assertAtOnce(await service.settled(sent));
    assert.equal((await service.settled(after)).state, 'delivered');
    assert.deepEqual(numbers(receiver.requests), [1, 1, 2]);
  });

  test('retry of a pending one whose instance backs off: tried at once', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    await receiver.down();
    const sent = await service.send(meeting_id, {});
    const { delivery_id } = await service.attempted(sent);
    await receiver.up();
    assert.equal((await retry(service, delivery_id)).status, 200);
    assertAtOnce(await service.settled(sent));
  });
});

describe('the retries of a delivery, on a schedule of milliseconds:', { concurrency: true }, () => {
  const clock = new SetClock();
  const service = useService({ retry_schedule: '5ms,5ms,5ms,5ms,5ms' });
  const expiring = useService({ retry_schedule: '5ms,5ms,5ms,5ms,5ms', expire_after: '1h' }, clock);

  test('a head that fails holds its lane through its third attempt, then steps aside', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, {
      behaviour: (request) => ({ status: pushOf(request).message['number'] === 1 ? 500 : 200 }),
    });
    const poisoned = await service.send(meeting_id, { number: 1 });
    const others = [await service.send(meeting_id, { number: 2 }), await service.send(meeting_id, { number: 3 })];
    const delivery = await service.settled(poisoned);
    for (const each of others) await service.settled(each);
    assert.deepEqual([delivery.state, delivery.reason, delivery.attempt_count], ['failed', 'exhausted', 6]);
    const received = numbers(receiver.requests);
    assert.deepEqual(received.slice(0, 3), [1, 1, 1]);
    assert.deepEqual(
      received.filter((number) => number !== 1),
      [2, 3],
    );
    assert.equal(received.filter((number) => number === 1).length, 6);
  });

  test('every attempt has the same webhook-id and a number of its own', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, {
      behaviour: (_, number) => ({ status: number < 4 ? 503 : 200 }),
    });
    const delivery = await service.settled(await service.send(meeting_id, {}));
    assert.deepEqual([delivery.state, delivery.attempt_count], ['delivered', 4]);
    const requests = receiver.requests;
    assert.deepEqual(
      requests.map((request) => headerOf(request, 'convoke-attempt')),
      ['1', '2', '3', '4'],
    );
    assert.deepEqual(
      new Set(requests.map((request) => headerOf(request, 'webhook-id'))),
      new Set([delivery.delivery_id]),
    );
    assert.deepEqual(
      delivery.attempts.map(({ attempt, outcome }) => [attempt, outcome]),
      [
        [1, 'bad_status'],
        [2, 'bad_status'],
        [3, 'bad_status'],
        [4, 'ok'],
      ],
    );
  });

  test('never reached: failed, expired, when its time is up', async (t) => {
    const meeting_id = expiring.name('meeting');
    const { instance_id, receiver } = await expiring.member(t, meeting_id);
    await receiver.down();
    const sent = await expiring.send(meeting_id, {});
    await expiring.attempted(sent);
    clock.jump(3_600_000);
    await until(
      'a delivery that expired',
      async () => {
        await expiring.heartbeat(instance_id);
        return (await expiring.deliveriesOf(sent))[0];
      },
      (delivery) => delivery?.state !== 'pending',
    );
    const [delivery] = await expiring.deliveriesOf(sent);
    assert.deepEqual([delivery?.state, delivery?.reason], ['failed', 'expired']);
  });
});

describe('what callers can do about a delivery:', { concurrency: true }, () => {
  const service = useService();

  test('retry of a failed one: queued again at once, delivered with the same webhook-id', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, {
      behaviour: (_, number) => ({ status: number === 1 ? 202 : 200 }),
    });
    const sent = await service.send(meeting_id, {});
    const failed = await service.settled(sent);
    const answer = await retry(service, failed.delivery_id);
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual([answer.body.state, answer.body.reason, answer.body.settled_at], ['pending', null, null]);
    assert.equal(answer.body.attempts.length, 1);
    assert.equal((await service.settled(sent)).state, 'delivered');
    const ids = receiver.requests.map((request) => headerOf(request, 'webhook-id'));
    assert.deepEqual(ids, [failed.delivery_id, failed.delivery_id]);
  });

  test('retry of a delivered one: 409', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    const { delivery_id } = await service.settled(await service.send(meeting_id, {}));
    const problem = assertProblem(await retry(service, delivery_id), 409, 'delivery_not_retryable');
    assert.match(problem.detail, /is delivered; only a pending, failed or cancelled delivery/);
    assert.equal(receiver.requests.length, 1);
  });

  test('retry of one that is not there: 404', async () => {
    assertProblem(await retry(service, 'dlv_00000000000000000000000000'), 404, 'delivery_does_not_exist');
    assertProblem(await service.get('/api/v1/deliveries/dlv_x/'), 404, 'delivery_does_not_exist');
  });

  test('recover: what failed since a time is queued again, and only that', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, { behaviour: { status: 202 } });
    const bystander = await service.member(t, meeting_id, { agent_ids: ['b'], behaviour: { status: 202 } });
    const failed: Delivery[] = [];
    for (let number = 1; number <= 3; number++) {
      const sent = await service.send(meeting_id, { number });
      const all = await until(
        'both to fail',
        () => service.deliveriesOf(sent),
        (deliveries) => deliveries.every(({ state }) => state === 'failed'),
      );
      failed.push(...all.filter((delivery) => delivery.instance_id === instance_id));
    }
    assert.equal((await recover(service, instance_id, new Date(Date.now() + 60_000))).body.recovered, 0);
    receiver.behaviour = {};
    const since = new Date(String(failed[1]?.settled_at));
    const expected = failed.filter(({ settled_at }) => String(settled_at) >= since.toISOString()).length;
    const answer = await recover(service, instance_id, since);
    assert.deepEqual([answer.status, answer.body.recovered, answer.body.done], [200, expected, true]);
    await until(
      'all that was recovered to be delivered',
      () => service.get<Page<Delivery>>(`/api/v1/deliveries/?instance_id=${instance_id}&state=delivered`),
      ({ body }) => body.data.length === expected,
    );
    assert.equal(bystander.receiver.requests.length, 3);
    assert.equal((await recover(service, instance_id, new Date(0))).body.recovered, 3 - expected);
  });

  test('recover wants a registered instance and an RFC 3339 time', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    assertProblem(await recover(service, 'nobody', new Date()), 404, 'instance_does_not_exist');
    for (const since of ['yesterday', '2026-03-01', '2026-13-01T00:00:00Z', 1772357400, null, '']) {
      assertProblem(await service.post(`${instancePath(instance_id)}recover/`, { since }), 422, 'invalid_fields');
    }
    for (const since of ['2026-03-01T09:30:00Z', '2026-03-01T09:30:00.123456+05:30', '2026-03-01T09:30:00-00:00']) {
      assert.equal((await service.post(`${instancePath(instance_id)}recover/`, { since })).status, 200, since);
    }
  });

  test('the list: newest first, by instance, meeting, message and state', async (t) => {
    const [one, two] = [service.name('meeting'), service.name('meeting')];
    const a = await service.member(t, one);
    const b = await service.member(t, one, { behaviour: { status: 202 } });
    await service.join(two, a.instance_id, ['a']);
    const sent = [await service.send(one, {}), await service.send(two, {}), await service.send(one, {})];
    const list = async (query: string): Promise<Delivery[]> =>
      (await service.get<Page<Delivery>>(`/api/v1/deliveries/?${query}`)).body.data;
    await until(
      'all to settle',
      async () => [...(await list(`meeting_id=${one}`)), ...(await list(`meeting_id=${two}`))],
      (all) => all.length === 5 && all.every(({ state }) => state !== 'pending'),
    );
    const keysOf = (deliveries: Delivery[]) =>
      deliveries.map(({ instance_id, message_id }) => [instance_id, message_id]);
    assert.deepEqual(keysOf(await list(`instance_id=${a.instance_id}`)), [
      [a.instance_id, sent[2]?.message_id],
      [a.instance_id, sent[1]?.message_id],
      [a.instance_id, sent[0]?.message_id],
    ]);
    assert.deepEqual(keysOf(await list(`meeting_id=${two}`)), [[a.instance_id, sent[1]?.message_id]]);
    assert.equal((await list(`message_id=${sent[0]?.message_id}`)).length, 2);
    assert.deepEqual(keysOf(await list(`meeting_id=${one}&state=failed`)), [
      [b.instance_id, sent[2]?.message_id],
      [b.instance_id, sent[0]?.message_id],
    ]);
    assert.deepEqual(await list(`meeting_id=${one}&instance_id=${b.instance_id}&state=delivered`), []);
    assert.deepEqual(await list('message_id=msg_unknown'), []);
    const [first, last] = [sent[0]?.message_id, sent[2]?.message_id];
    const ids = async (query: string): Promise<string[]> => (await list(query)).map(({ message_id }) => message_id);
    assert.deepEqual(await ids(`meeting_id=${one}&before_seq=2`), [first, first]);
    assert.deepEqual(await ids(`meeting_id=${one}&after_seq=1`), [last, last]);
    assert.deepEqual(await ids(`meeting_id=${one}&after_seq=1&before_seq=2`), []);
    for (const field of ['after_seq', 'before_seq']) {
      const refused = assertProblem(await service.get(`/api/v1/deliveries/?${field}=1`), 422, 'invalid_fields');
      assert.equal(refused.errors?.[0]?.path, field);
    }
    assert.ok((await list(`meeting_id=${one}`)).every((delivery) => !('attempts' in delivery)));
  });
});
