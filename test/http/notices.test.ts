/**
 * The notices that operators get in a separate meeting: which notices, how often, and what happens while the store
 * fails.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Send } from '../../src/delivery/accept/acceptor.ts';
import type { AttemptEvent } from '../../src/delivery/observer.ts';
import type { InstanceHealth } from '../../src/domain/instance.ts';
import { Notices } from '../../src/node/notices.ts';
import { startReceiver } from '../support/receiver.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/wait.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

interface SentNotice {
  text: string;
  node_id: string;
  notices: { kind: string; instance_id?: string; meeting_id?: string; reason?: string; count: number }[];
  left_out: number;
}

const HEALTHY: InstanceHealth = {
  consecutive_failures: 0,
  health_since: 1,
  last_success_at: 1,
  last_failure: null,
  backoff_step: 0,
  backoff_until: null,
};
const DOWN: InstanceHealth = { ...HEALTHY, consecutive_failures: 5 };

const attempted = (changed: Partial<AttemptEvent>): AttemptEvent => ({
  delivery_id: 'dlv_1',
  message_id: 'msg_1',
  meeting_id: 'standup',
  seq: 1,
  instance_id: 'box',
  attempt: {
    attempt: 1,
    started_at: '2026-01-01T00:00:00.000Z',
    duration_ms: 1,
    outcome: 'bad_status',
    status_code: 500,
    detail: 'answered 500',
    response_excerpt: '',
  },
  state: 'pending',
  reason: null,
  retry_in_ms: null,
  accepted_at: 0,
  health_before: HEALTHY,
  health_after: HEALTHY,
  ...changed,
});

const goesDown = (instance_id: string) => attempted({ instance_id, health_after: DOWN });
const delivers = (instance_id: string) => attempted({ instance_id, state: 'delivered' });

function start() {
  const clock = new VirtualClock();
  const sent: (SentNotice & { at: number })[] = [];
  const store = { fails: false, until: Promise.resolve() };
  const notices = new Notices({
    clock,
    node_id: 'node-1',
    meeting_id: 'operators',
    send({ meeting_id, message }: Send) {
      if (store.fails) return Promise.reject(new Error('the disk is full'));
      assert.equal(meeting_id, 'operators');
      sent.push({ ...(JSON.parse(message) as SentNotice), at: clock.now() });
      return store.until;
    },
  });
  const from = clock.now();
  return { clock, sent, store, notices, told: () => sent.map(({ text, at }) => [(at - from) / 1_000, text]) };
}

describe('a notice', () => {
  test('names who went down and why, and who is back, also when a registration came between', async () => {
    const { clock, notices, told } = start();
    notices.attempted(goesDown('box'));
    await clock.advance(20_000);
    notices.attempted(delivers('box'));
    notices.attempted(delivers('box'));
    await clock.advance(20_000);
    assert.deepEqual(told(), [
      [1, 'box is down: answered 500'],
      [21, 'box is up again'],
    ]);
  });

  test('gathers: what happens within ten seconds is one message, with a count of each', async () => {
    const { clock, sent, notices, told } = start();
    notices.attempted(goesDown('box'));
    await clock.advance(2_000);
    for (let k = 0; k < 500; k++) {
      notices.failed({ instance_id: 'box', meeting_id: 'standup' }, 'exhausted', 2);
      await clock.advance(10);
    }
    await clock.advance(20_000);
    assert.deepEqual(told(), [
      [1, 'box is down: answered 500'],
      [11, 'box: gave up 1000 deliveries (exhausted)'],
    ]);
    assert.deepEqual(sent[1]!.notices[0]!.count, 1_000);
  });

  test('names a hundred things at most, and counts the others', async () => {
    const { clock, sent, notices } = start();
    for (let k = 0; k < 5_000; k++) notices.attempted(goesDown(`box-${k}`));
    await clock.advance(60_000);
    assert.deepEqual(
      sent.map(({ notices: { length }, left_out }) => [length, left_out]),
      [[100, 4_900]],
    );
    assert.match(sent[0]!.text, /and 4900 more$/);
  });

  test('waits while the store fails, and then says that too', async () => {
    const { clock, sent, store, notices, told } = start();
    store.fails = true;
    notices.attempted(goesDown('box'));
    for (let k = 0; k < 60; k++) {
      notices.storageFailed(new Error('the disk is full'));
      await clock.advance(1_000);
    }
    assert.deepEqual(sent, []);
    store.fails = false;
    await clock.advance(20_000);
    assert.deepEqual(told(), [[61, 'box is down: answered 500\nThe store failed 60 times: the disk is full']]);
  });

  test('about deliveries of its own meeting is not sent: a meeting of operators that fails does not fill itself', async () => {
    const { clock, sent, notices } = start();
    const of = { instance_id: 'pager', meeting_id: 'operators' };
    const delivery = { delivery_id: 'dlv_1', message_id: 'msg_1', seq: 1, origin: null };
    notices.failed(of, 'expired', 1);
    notices.attempted(attempted({ ...of, state: 'failed', reason: 'exhausted' }));
    notices.suppressed({ ...delivery, ...of }, 'hop_limit');
    await clock.advance(60_000);
    assert.deepEqual(sent, []);
    // Control: deliveries of another meeting do cause a notice.
    notices.suppressed({ ...delivery, ...of, meeting_id: 'standup' }, 'hop_limit');
    notices.suppressed({ ...delivery, ...of, meeting_id: 'standup' }, 'superseded');
    await clock.advance(60_000);
    assert.deepEqual(
      sent.map(({ text }) => text),
      ['standup: the loop guard stopped 1 delivery (hop_limit)'],
    );
  });

  test('that is gathered when the service stops is sent then', async () => {
    const { sent, notices } = start();
    notices.attempted(goesDown('box'));
    await notices.close();
    assert.equal(sent.length, 1);
  });

  test('that is gathered while an earlier one is stored is sent too when the service stops', async () => {
    const { clock, sent, store, notices } = start();
    const stored = Promise.withResolvers<void>();
    store.until = stored.promise;
    notices.attempted(goesDown('first'));
    await clock.advance(1_000);
    notices.attempted(goesDown('second'));
    const closed = notices.close();
    stored.resolve();
    await closed;
    assert.deepEqual(
      sent.map(({ text }) => text),
      ['first is down: answered 500', 'second is down: answered 500'],
    );
  });
});

test('an attempt that ends while the service stops causes a notice as any other', async (t) => {
  const service = await startService(t, { notices_meeting: 'operators', retry_schedule: '1ms,1ms,1ms,1ms,1h' });
  const told = Promise.withResolvers<void>();
  t.after(() => told.resolve());
  const fails = { status: 500 };
  const behaviour = (_: unknown, number: number) => (number < 5 ? fails : { ...fails, after: told.promise });
  const { instance_id, receiver } = await service.member(t, 'standup', { behaviour });
  await service.send('standup', { content: 'hello' });
  await receiver.count(5);
  const { url } = service;
  const stopped = service.stop();
  await until(
    'a stop',
    () => fetch(`${url}/readyz`).catch(() => null),
    (answer) => answer === null,
  );
  told.resolve();
  await stopped;
  await service.restart({});
  const { body } = await service.get<{ data: { message: SentNotice }[] }>('/api/v1/meetings/operators/messages/');
  const kinds = body.data.flatMap(({ message }) => message.notices.map(({ kind, instance_id: of }) => [kind, of]));
  assert.deepEqual(kinds, [['instance_down', instance_id]]);
});

test('an operator who joins the meeting of the setting gets notices as signed pushes', async (t) => {
  const service = await startService(t, { notices_meeting: 'operators', retry_schedule: '1ms,1ms,1ms,1ms' });
  const operator = await startReceiver(t);
  const pager = await service.register({ webhook_url: operator.url });
  await service.join('operators', pager.instance_id, ['a']);
  const { instance_id } = await service.member(t, 'standup', { behaviour: { status: 500, body: 'out of memory' } });
  await service.send('standup', { content: 'hello' });
  const { headers, text } = await operator.next();
  const { meeting_id, message } = JSON.parse(text) as { meeting_id: string; message: SentNotice };
  assert.equal(meeting_id, 'operators');
  assert.match(String(headers['webhook-signature']), /^v1,/);
  const told = message.notices.map(({ kind, instance_id: of, reason, count }) => [kind, of, reason, count]);
  assert.deepEqual(told, [
    ['instance_down', instance_id, 'answered 500', 1],
    ['deliveries_failed', instance_id, 'exhausted', 1],
  ]);
  assert.equal(message.text, `${instance_id} is down: answered 500\n${instance_id}: gave up 1 delivery (exhausted)`);
});
