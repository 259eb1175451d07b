/** What happens to a delivery: every row of the table in docs/delivery.md, on virtual time and a real store. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { OUTCOMES, type Outcome } from '../../src/domain/outcome.ts';
import { HOUR, MINUTE, SECOND, SETTINGS, startNode } from '../support/node.ts';
import { HANGS, type Reply } from '../support/scripted_transport.ts';

const LOWEST = () => 0;
const HIGHEST = () => 0.999_999;

describe('a push with a response', () => {
  test('a 200 delivers, with one POST that has exactly the five fields and the message as it was sent', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    const text = '{"b":12345678901234567890,"a":1e400, "t":"\\u0000é"}';
    const { message_id } = await node.send('m', { text });
    await node.clock.advance(HOUR);
    const [push, ...more] = node.transport.pushes;
    assert.equal(more.length, 0);
    assert.equal(
      push?.body,
      `{"event":"new_message","meeting_id":"m","message":${text},"target_agents":["a","i"],"timestamp":""}`,
    );
    assert.equal(push.message_id, message_id);
    assert.equal(push.attempt, 1);
    const [delivery] = await node.deliveries();
    assert.equal(delivery?.state, 'delivered');
    assert.equal(delivery.attempt_count, 1);
    assert.equal(delivery.attempts[0]?.outcome, 'ok');
    assert.equal(delivery.next_attempt_at, null);
    assert.equal(push.headers['webhook-id'], delivery.delivery_id);
  });

  for (const status of [201, 202, 204, 206, 299]) {
    test(`a ${status} is failed as not_200 and never retried`, async (t) => {
      const node = await startNode(t);
      await node.meeting('m', 'i');
      node.transport.answer('i', status);
      await node.send('m');
      await node.clock.advance(3 * HOUR);
      assert.equal(node.transport.pushes.length, 1);
      assert.deepEqual(await node.states(), ['failed not_200']);
      assert.equal((await node.instance('i')).consecutive_failures, 1);
    });
  }

  test('a 202 delivers where success_statuses says 2xx', async (t) => {
    const node = await startNode(t);
    await node.register('i', { success_statuses: '2xx' });
    await node.join('i', 'm');
    node.transport.answer('i', 202);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('a 410 fails as gone and switches the webhook off: what is queued waits, what is sent later is not queued', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [410]);
    await node.sendMany('m', 3);
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, 1);
    assert.deepEqual(await node.states(), ['failed gone', 'pending', 'pending']);
    assert.equal((await node.instance('i')).webhook_enabled, false);
    assert.equal((await node.send('m')).deliveries_queued, 0);
    await node.patch('i', { webhook_enabled: true });
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['failed gone', 'delivered', 'delivered']);
  });

  const badly: Reply['says'][] = [100, 199, 300, 302, 308, 400, 401, 404, 408, 429, 500, 503, 599, 999];
  const badly_without: Reply['says'][] = (Object.keys(OUTCOMES) as Outcome[]).filter(
    (o): o is Exclude<Outcome, 'ok' | 'not_200' | 'gone' | 'bad_status'> =>
      OUTCOMES[o].reached && !['ok', 'not_200', 'gone', 'bad_status'].includes(o),
  );
  test('any other answer is retried after 10 s, 30 s, 2 min, 10 min and 30 min, and then failed as exhausted', async (t) => {
    const node = await startNode(t);
    const all = [...badly, ...badly_without];
    for (const says of all) {
      await node.meeting(`m${says}`, `i${says}`);
      node.transport.answer(`i${says}`, says);
      await node.send(`m${says}`);
    }
    await node.clock.advance(3 * HOUR);
    for (const says of all) {
      const [delivery] = await node.deliveries({ instance_id: `i${says}` });
      assert.deepEqual([delivery?.state, delivery?.reason], ['failed', 'exhausted'], String(says));
      assert.deepEqual(node.gapsTo(`i${says}`), [10, 30, 120, 600, 1800], String(says));
      assert.equal(delivery?.attempt_count, 6);
      assert.deepEqual(
        delivery.attempts.map(({ attempt }) => attempt),
        [1, 2, 3, 4, 5, 6],
      );
      const ids = new Set(node.transport.to(`i${says}`).map((push) => push.headers['webhook-id']));
      assert.deepEqual([...ids], [delivery.delivery_id]);
      assert.equal(new Set(node.transport.to(`i${says}`).map((push) => push.body)).size, 1);
    }
  });

  for (const [name, random, factor] of [
    ['lowest', LOWEST, 0.8],
    ['highest', HIGHEST, 1.2],
  ] as const) {
    test(`with the ${name} jitter every delay is ${factor} of the schedule, and the first is at least 8 s`, async (t) => {
      const node = await startNode(t, { random });
      await node.meeting('m', 'i');
      node.transport.answer('i', 500);
      await node.send('m');
      await node.clock.advance(2 * HOUR);
      const gaps = node.gapsTo('i');
      for (const [k, scheduled] of [10, 30, 120, 600, 1800].entries()) {
        assert.ok(Math.abs((gaps[k] as number) - scheduled * factor) <= 0.01, `${gaps[k]} of ${scheduled}`);
      }
      assert.ok((gaps[0] as number) >= 8);
    });
  }

  test('a retry that succeeds delivers, and the books show both attempts', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [500, 200]);
    await node.send('m');
    await node.clock.advance(SECOND);
    const [waiting] = await node.deliveries();
    assert.equal(waiting?.waiting_for, 'retry');
    assert.equal(waiting.next_attempt_at, node.clock.now() + 9 * SECOND);
    await node.clock.advance(MINUTE);
    const [delivery] = await node.deliveries();
    assert.equal(delivery?.state, 'delivered');
    assert.deepEqual(
      delivery.attempts.map(({ status_code }) => status_code),
      [500, 200],
    );
    assert.equal((await node.instance('i')).consecutive_failures, 0);
  });
});

describe('Retry-After', () => {
  const cases: [name: string, value: (wall: number) => string, delay_s: number][] = [
    ['seconds', () => '60', 60],
    ['fewer seconds than the schedule', () => '1', 10],
    ['more than an hour', () => '86400', 3600],
    ['a number that no double holds', () => '9'.repeat(400), 3600],
    ['a date', (wall) => new Date(wall + 90 * SECOND).toUTCString(), 90],
    ['a date in the past', (wall) => new Date(wall - HOUR).toUTCString(), 10],
    ['a date years away', (wall) => new Date(wall + 1e11).toUTCString(), 3600],
    ['a negative number', () => '-5', 10],
    ['1e99', () => '1e99', 10],
    ['NaN', () => 'NaN', 10],
    ['Infinity', () => 'Infinity', 10],
    ['hexadecimal', () => '0x3c', 10],
    ['a fraction', () => '59.9', 10],
    ['nothing', () => '', 10],
    ['garbage', () => 'Soon, I hope', 10],
    ['white space around seconds', () => ' 60 ', 60],
  ];
  for (const status of [429, 503]) {
    test(`${status}: is kept between the scheduled delay and an hour, whatever the header asks for`, async (t) => {
      const node = await startNode(t);
      for (const [k, [, value]] of cases.entries()) {
        await node.meeting(`m${k}`, `i${k}`);
        node.transport.answer(`i${k}`, [{ says: status, retry_after: value(node.clock.wall()) }]);
        await node.send(`m${k}`);
      }
      await node.clock.advance(2 * HOUR);
      for (const [k, [name, , delay_s]] of cases.entries()) {
        assert.deepEqual(node.gapsTo(`i${k}`), [delay_s], name);
        assert.deepEqual(await node.states({ instance_id: `i${k}` }), ['delivered'], name);
      }
    });
  }

  test('is not obeyed with another status', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [{ says: 500, retry_after: '60' }]);
    await node.send('m');
    await node.clock.advance(2 * HOUR);
    assert.deepEqual(node.gapsTo('i'), [10]);
  });
});

describe('the end of a delivery', () => {
  test('what cannot be reached for 72 h fails as expired, and never before', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', 'connect_refused');
    await node.send('m');
    await node.clock.advance(72 * HOUR - 10 * MINUTE);
    assert.deepEqual(await node.states(), ['pending']);
    await node.clock.advance(20 * MINUTE);
    assert.deepEqual(await node.states(), ['failed expired']);
    assert.deepEqual(node.settled_without_attempt, new Map([['failed expired', 1]]));
    const sent = node.transport.pushes.length;
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, sent);
    const [delivery] = await node.deliveries();
    assert.equal(delivery?.attempt_count, sent);
    assert.equal(delivery.attempts.length, 100);
  });

  test('a message with an earlier expiry is not pushed after it, also behind messages that last longer', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', 'connect_refused');
    await node.send('m', { expires_in_ms: HOUR });
    await node.send('m');
    await node.send('m', { expires_in_ms: HOUR });
    await node.send('m', { expires_in_ms: 1_000 * HOUR });
    await node.clock.advance(HOUR - MINUTE);
    assert.deepEqual(await node.states(), ['pending', 'pending', 'pending', 'pending']);
    node.transport.answer('i', 200);
    const tried = node.transport.pushes.length;
    await node.clock.advance(10 * MINUTE);
    assert.deepEqual(await node.states(), ['failed expired', 'delivered', 'failed expired', 'delivered']);
    assert.deepEqual(node.transport.seqsTo('i').slice(tried), [2, 4]);
  });

  test('an instance that is switched off keeps what is pending for 72 h, and then it is expired', async (t) => {
    const node = await startNode(t);
    const maintenance = node.maintenance();
    for (const [name, patch] of [
      ['inactive', { is_active: false }],
      ['disabled', { webhook_enabled: false }],
    ] as const) {
      await node.meeting(`m_${name}`, name);
      node.transport.answer(name, [HANGS]);
      await node.sendMany(`m_${name}`, 700);
      await node.clock.settle();
      await node.patch(name, patch);
      await node.clock.settle();
      node.transport.release(500, name);
      await node.clock.advance(SECOND);
    }
    await node.clock.advance(72 * HOUR - 5 * SECOND);
    await maintenance.run();
    assert.equal(await node.store.deliveries.countPending(), 1_400);
    await node.clock.advance(5 * SECOND);
    await maintenance.run();
    await maintenance.run();
    assert.deepEqual(new Set(await node.states()), new Set(['failed expired']));
    assert.equal(node.transport.pushes.length, 2);
    // The deliveries expired in the table. When the instances are switched on again, the engine must not push them from
    // memory.
    await node.patch('inactive', { is_active: true });
    await node.patch('disabled', { webhook_enabled: true });
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, 2);
    assert.deepEqual(new Set(await node.states()), new Set(['failed expired']));
  });

  test('switched off, what is pending waits; switched on, it flows at once and in order', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [{ says: 200, after_ms: 100 }]);
    await node.sendMany('m', 20);
    await node.clock.advance(10);
    await node.patch('i', { is_active: false });
    await node.clock.advance(HOUR);
    assert.equal(node.transport.pushes.length, 1);
    const waiting = (await node.deliveries()).filter(({ state }) => state === 'pending');
    assert.equal(waiting.length, 19);
    assert.ok(waiting.every(({ waiting_for }) => waiting_for === 'switched_off'));
    await node.patch('i', { is_active: true });
    await node.clock.advance(SECOND);
    assert.deepEqual(
      node.transport.seqsTo('i'),
      Array.from({ length: 20 }, (_, k) => k + 1),
    );
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });

  test('deletion cancels everything that is pending, and nothing is pushed any more', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'other');
    await node.meeting('m2', 'i');
    node.transport.answer('i', HANGS);
    await node.sendMany('m', 30);
    await node.sendMany('m2', 30);
    await node.clock.advance(SECOND);
    assert.equal(node.transport.to('i').length, 2);
    // The deletion is made in steps of seven deliveries, because a large deletion also has several steps.
    await node.remove('i', 7);
    node.transport.release(500);
    await node.clock.advance(3 * HOUR);
    assert.equal(node.transport.to('i').length, 2);
    assert.deepEqual(new Set(await node.states({ instance_id: 'i' })), new Set(['cancelled instance_deleted']));
    assert.deepEqual(new Set(await node.states({ instance_id: 'other' })), new Set(['delivered']));
    assert.equal(node.engine.stats.queued_in_memory, 0);
    assert.equal(await node.store.instances.get('i'), null);
    assert.equal((await node.send('m')).deliveries_queued, 1);
  });

  test('an instance that left after the message was sent still gets it, and nothing that is sent later', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [500]);
    await node.send('m');
    await node.clock.advance(SECOND);
    await node.leave('i', 'm');
    assert.equal((await node.send('m')).deliveries_queued, 0);
    await node.clock.advance(MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 1]);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('a message goes only to instances with an agent that it is for', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j', 'k');
    await node.send('m', { target_agents: ['i', 'k', 'nobody'] });
    await node.send('m', { target_agents: [] });
    assert.equal((await node.send('m', { target_agents: ['nobody'] })).deliveries_queued, 0);
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 2]);
    assert.deepEqual(node.transport.seqsTo('j'), [2]);
    assert.deepEqual(node.transport.seqsTo('k'), [1, 2]);
    assert.match(node.transport.to('i')[0]?.body ?? '', /"target_agents":\["i"\]/);
  });
});

describe('queued again by hand', () => {
  test('a failed delivery is tried at once with the same webhook-id, and its retries start again', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [202, 500, 500, 200]);
    await node.send('m');
    await node.clock.advance(HOUR);
    const [failed] = await node.deliveries();
    assert.equal(failed?.reason, 'not_200');
    await node.retry(failed.delivery_id);
    await node.clock.advance(0);
    assert.equal(node.transport.pushes.length, 2);
    await node.clock.advance(MINUTE);
    assert.deepEqual(node.gapsTo('i').slice(1), [10, 30]);
    assert.equal(new Set(node.transport.pushes.map((push) => push.headers['webhook-id'])).size, 1);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('a pending delivery that waits for its time is brought forward, in its lane and aside', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [500, 500, 500, 200]);
    const { message_id } = await node.send('m');
    await node.clock.advance(SECOND);
    const [delivery] = await node.deliveries({ message_id });
    for (const pushes of [2, 3, 4]) {
      await node.retry(delivery?.delivery_id ?? '');
      await node.clock.advance(SECOND);
      assert.equal(node.transport.pushes.length, pushes);
    }
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('what is delivered, or was cancelled with its instance, is not queued again', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'j');
    node.transport.answer('j', 'connect_refused');
    await node.send('m');
    await node.clock.advance(SECOND);
    await node.remove('j');
    for (const { delivery_id } of await node.deliveries()) {
      await assert.rejects(node.retry(delivery_id), { code: 'delivery_not_retryable' });
    }
  });

  test('recover queues what failed since then, in order, and lifts the back-off', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', 202);
    await node.sendMany('m', 3);
    await node.clock.advance(HOUR);
    const since = node.clock.wall();
    await node.sendMany('m', 90);
    await node.clock.advance(12 * HOUR);
    assert.equal((await node.states()).filter((state) => state === 'failed not_200').length, 93);
    node.transport.answer('i', 200);
    const before = node.transport.pushes.length;
    assert.equal(await node.recover('i', since), 90);
    await node.clock.advance(SECOND);
    assert.deepEqual(
      node.transport.seqsTo('i').slice(before),
      Array.from({ length: 90 }, (_, k) => k + 4),
    );
    assert.deepEqual(await node.states(), [
      ...Array<string>(3).fill('failed not_200'),
      ...Array<string>(90).fill('delivered'),
    ]);
  });

  test('what expired while it was queued in memory and is queued again by hand is sent', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ['connect_refused']);
    await node.send('m');
    await node.clock.advance(SECOND);
    await node.patch('i', { is_active: false });
    await node.clock.advance(SETTINGS.expire_after_ms);
    await node.maintenance().run();
    const [delivery] = await node.deliveries();
    assert.equal(delivery?.reason, 'expired');
    await node.retry(delivery.delivery_id);
    await node.patch('i', { is_active: true });
    await node.clock.advance(MINUTE);
    assert.deepEqual(await node.states(), ['delivered']);
  });
});

describe('an Idempotency-Key', () => {
  test('that arrives twice in one batch makes one message, and both callers get its id', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    const [first, second] = await Promise.all([node.post('m', { key: 'k' }), node.post('m', { key: 'k' })]);
    assert.deepEqual(second?.message, first?.message);
    assert.deepEqual([first?.repeated, second?.repeated], [false, true]);
    await node.clock.advance(SECOND);
    assert.equal(node.transport.pushes.length, 1);
    assert.equal((await node.deliveries()).length, 1);
  });

  test('that arrives with another body is refused, in the same batch as in a later one', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    const first = node.post('m', { key: 'k' });
    const other = node.post('m', { key: 'k', text: '{}' });
    await first;
    await assert.rejects(other, { code: 'idempotency_key_reused' });
    await assert.rejects(node.post('m', { key: 'k', text: '{}' }), { code: 'idempotency_key_reused' });
    await node.clock.advance(SECOND);
    assert.equal(node.transport.pushes.length, 1);
  });

  test('answers the first result for a day, and belongs to its meeting', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    const { message } = await node.post('m', { key: 'k' });
    await node.clock.advance(23 * HOUR);
    assert.equal((await node.post('m', { key: 'k' })).message.message_id, message.message_id);
    assert.equal((await node.post('other', { key: 'k' })).repeated, false);
    await node.clock.advance(2 * HOUR);
    assert.equal((await node.post('m', { key: 'k' })).repeated, false);
  });
});
