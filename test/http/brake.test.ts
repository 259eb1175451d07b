/** How operators stop a meeting over HTTP: they pause it, and drop its waiting deliveries. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { AuditEntry, Delivery, DroppedDeliveries, Meeting, Page } from '@convoke/sdk';
import { openStream } from '../support/event_stream.ts';
import { assertProblem, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const DROP = '/api/v1/deliveries/drop/';

describe('a brake', () => {
  test('pauses a meeting, and lets it continue', async (t) => {
    const service = await startService(t);
    const stream = await openStream(`${service.url}/api/v1/events/`);
    t.after(() => stream.close());
    const { receiver } = await service.member(t, 'loud');
    const paused = await service.request<Meeting>('PATCH', '/api/v1/meetings/loud/', { body: { paused: true } });
    assert.deepEqual([paused.status, paused.body.paused], [200, true]);
    const sent = await service.send('loud', { n: 1 });
    const [delivery] = await service.deliveriesOf(sent);
    assert.deepEqual([delivery?.state, delivery?.waiting_for], ['pending', 'paused']);
    const { body } = await service.get<Meeting>('/api/v1/meetings/loud/');
    assert.deepEqual([body.paused, body.pending_deliveries], [true, 1]);
    assert.equal(receiver.requests.length, 0);
    await service.request('PATCH', '/api/v1/meetings/loud/', { body: { paused: false } });
    await receiver.next();
    const isChange = ({ name }: { name: string }): boolean => name === 'meeting.changed';
    await stream.some(2, isChange);
    assert.deepEqual(
      stream.events.filter(isChange).map(({ data }) => [data['meeting_id'], data['paused']]),
      [
        ['loud', true],
        ['loud', false],
      ],
    );
  });

  test('counts what waits, drops it, and leaves it on record', async (t) => {
    const service = await startService(t);
    const stream = await openStream(`${service.url}/api/v1/events/`);
    t.after(() => stream.close());
    const { instance_id, receiver } = await service.member(t, 'loud');
    await service.request('PATCH', '/api/v1/meetings/loud/', { body: { paused: true } });
    const sent = [];
    for (let k = 0; k < 3; k++) sent.push(await service.send('loud', {}));
    const up_to = sent.at(-1)!.message_id;
    const ask = (body: object) => service.request<DroppedDeliveries>('POST', DROP, { body });
    const preview = await ask({ meeting_id: 'loud', dry_run: true });
    assert.deepEqual(preview.body, { deliveries: 3, at_least: false, up_to, dry_run: true, done: true });
    assert.equal((await ask({ meeting_id: 'quiet', dry_run: true })).body.deliveries, 0);
    assert.deepEqual((await ask({ meeting_id: 'loud', instance_id })).body, {
      deliveries: 3,
      up_to,
      dry_run: false,
      done: true,
    });
    assert.equal((await ask({ instance_id })).body.deliveries, 0);
    const { data } = (await service.get<Page<Delivery>>('/api/v1/deliveries/?meeting_id=loud')).body;
    assert.deepEqual(new Set(data.map(({ state, reason }) => `${state} ${reason}`)), new Set(['cancelled dropped']));
    const audit = await service.get<Page<AuditEntry>>('/api/v1/audit/?action=delivery.drop');
    assert.deepEqual(
      audit.body.data.map(({ target_id, details }) => [target_id, details['meeting_id'], details['deliveries']]),
      [
        [instance_id, undefined, 0],
        [instance_id, 'loud', 3],
      ],
    );
    const isDrop = ({ name, data: { reason } }: { name: string; data: Record<string, unknown> }): boolean =>
      name === 'delivery.settled' && reason === 'dropped';
    await stream.some(1, isDrop);
    await service.request('PATCH', '/api/v1/meetings/loud/', { body: { paused: false } });
    await service.send('loud', { last: true });
    assert.match(String((await receiver.next()).body), /"last":true/);
    await until(
      'a metric',
      () => service.request('GET', '/metrics'),
      ({ text }) => text.includes('convoke_deliveries_settled_total{state="cancelled",reason="dropped"} 3'),
    );
  });

  test('drops nothing of the messages after up_to, and counts none of them', async (t) => {
    const service = await startService(t);
    await service.member(t, 'loud');
    await service.request('PATCH', '/api/v1/meetings/loud/', { body: { paused: true } });
    const { message_id: up_to } = await service.send('loud', { n: 1 });
    const later = await service.send('loud', { n: 2 });
    for (const dry_run of [true, false]) {
      const body = { meeting_id: 'loud', up_to, dry_run };
      const dropped = await service.request<DroppedDeliveries>('POST', DROP, { body });
      assert.deepEqual(dropped.body, {
        deliveries: 1,
        up_to,
        dry_run,
        done: true,
        ...(dry_run && { at_least: false }),
      });
    }
    assert.deepEqual(
      (await service.deliveriesOf(later)).map(({ state }) => state),
      ['pending'],
    );
  });

  test('shows the limits in force, sets those of one meeting, and removes them again', async (t) => {
    const service = await startService(t);
    await service.send('loud', {});
    const patch = async (body: object) => {
      const { body: meeting } = await service.request<Meeting>('PATCH', '/api/v1/meetings/loud/', { body });
      const { hop_limit, pair_limit, pair_window_s, limits } = meeting;
      return [hop_limit, pair_limit, pair_window_s, Object.values(limits)];
    };
    assert.deepEqual(await patch({ paused: false }), [null, null, null, [16, 20, 60]]);
    assert.deepEqual(await patch({ hop_limit: 0, pair_limit: 5 }), [0, 5, null, [0, 5, 60]]);
    assert.deepEqual(await patch({ hop_limit: null, pair_window_s: 1 }), [null, 5, 1, [16, 5, 1]]);
    assert.deepEqual(await patch({ pair_limit: null, pair_window_s: null }), [null, null, null, [16, 20, 60]]);
    const refused = await service.request('PATCH', '/api/v1/meetings/loud/', { body: { hop_limit: -1 } });
    assertProblem(refused, 422, 'invalid_fields');
  });

  test('stops agents that answer each other: on record, in the feed and the metrics; a retry lets one through', async (t) => {
    const service = await startService(t);
    const stream = await openStream(`${service.url}/api/v1/events/`);
    t.after(() => stream.close());
    const { receiver } = await service.member(t, 'loud', { agent_ids: ['anna'] });
    await service.send('loud', {});
    await receiver.next();
    await service.request('PATCH', '/api/v1/meetings/loud/', { body: { hop_limit: 1 } });
    const say = () =>
      service.post<{ message_id: string }>('/api/v1/meetings/loud/messages/', {
        message: { content: 'hush' },
        from_agent: 'ben',
      });
    await say();
    await receiver.next();
    const { message_id } = (await say()).body;
    await stream.some(1, ({ name, data }) => name === 'delivery.settled' && data['reason'] === 'hop_limit');
    const listed = (): Promise<{ body: Page<Delivery> }> => service.get(`/api/v1/deliveries/?message_id=${message_id}`);
    const { body } = await until('the record', listed, (each) => each.body.data[0]?.state === 'cancelled');
    assert.equal(body.data[0]?.reason, 'hop_limit');
    const { text } = await service.request('GET', '/metrics');
    assert.match(text, /convoke_deliveries_settled_total\{state="cancelled",reason="hop_limit"\} 1/);
    const [line] = service.log.filter(({ msg }) => msg === 'the loop guard stops agents that answer each other');
    assert.deepEqual([line?.['message_id'], line?.['from_agent'], line?.['reason']], [message_id, 'ben', 'hop_limit']);
    // The message may be there as its bytes.
    const bytes = [...Buffer.from('hush')].join();
    assert.doesNotMatch(JSON.stringify(line), new RegExp(`hush|${bytes}`), 'no line of the log holds a message');
    await service.post(`/api/v1/deliveries/${body.data[0].delivery_id}/retry/`);
    await receiver.next();
    // The loop guard never stops a message of a person.
    await service.send('loud', { person: true });
    assert.match(String((await receiver.next()).body), /"person":true/);
  });

  test('refuses what it does not know, and names the field', async (t) => {
    const service = await startService(t);
    await service.send('loud', {});
    const patch = (body: object, id = 'loud') => service.request('PATCH', `/api/v1/meetings/${id}/`, { body });
    assertProblem(await patch({ paused: true }, 'nowhere'), 404, 'meeting_does_not_exist');
    assertProblem(await service.get('/api/v1/meetings/nowhere/'), 404, 'meeting_does_not_exist');
    assertProblem(await patch({ paused: 1 }), 422, 'invalid_fields');
    assertProblem(await patch({ pause: true }), 422, 'invalid_fields');
    assertProblem(await patch({}), 422, 'invalid_fields');
    assertProblem(await service.request('POST', DROP, { body: { dry_run: true } }), 422, 'invalid_fields');
    assertProblem(await service.request('POST', DROP, { body: { meeting: 'loud' } }), 422, 'invalid_fields');
  });
});
