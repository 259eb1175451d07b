/**
 * POST /api/v1/instances/{instance_id}/recover/: for all failed deliveries since a time, or for chosen deliveries. A
 * client can count them first, recover them in parts, and stop at any time.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient, type Delivery, type Page, type Recovered } from '@convoke/sdk';
import { assertProblem, instancePath, type Service, startService, useService } from '../support/service.ts';
import type { Receiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';

const recover = async (service: Service, instance_id: string, body: object): Promise<Recovered> => {
  const answer = await service.post<Recovered>(`${instancePath(instance_id)}recover/`, body);
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
};

const listed = async (service: Service, query: string): Promise<Delivery[]> =>
  (await service.get<Page<Delivery>>(`/api/v1/deliveries/?${query}`)).body.data;

/** Makes an instance with `count` failed deliveries, the oldest first. After that its receiver accepts pushes. */
async function failing(service: Service, t: TestContext, count: number) {
  const meeting_id = service.name('meeting');
  const { instance_id, receiver } = await service.member(t, meeting_id, { behaviour: { status: 202 } });
  for (let n = 1; n <= count; n++) await service.send(meeting_id, { n });
  const failed = await until(
    'all to fail',
    () => listed(service, `instance_id=${instance_id}&state=failed`),
    (rows) => rows.length === count,
  );
  receiver.behaviour = {};
  return { meeting_id, instance_id, receiver, failed: failed.toReversed() };
}

const delivered = (service: Service, instance_id: string, count: number) =>
  until(
    'what was queued again to be delivered',
    () => listed(service, `instance_id=${instance_id}&state=delivered`),
    (rows) => rows.length === count,
  );

/** The numbers of the messages in the pushes. */
const numbersOf = ({ requests }: Receiver): number[] =>
  requests.map(({ text }) => (JSON.parse(text) as { message: { n: number } }).message.n).toSorted((a, b) => a - b);

describe('a recovery', { concurrency: true }, () => {
  const service = useService();

  test('counts first, and changes nothing by that', async (t) => {
    const { instance_id, failed } = await failing(service, t, 3);
    const since = failed[0]!.settled_at!;
    const counted = await recover(service, instance_id, { since, dry_run: true });
    const { until: end, ...rest } = counted;
    assert.ok(end !== null && Date.parse(end) >= Date.parse(since));
    const missed = { messages: 0, at_least: false };
    assert.deepEqual(rest, { recovered: 3, dry_run: true, done: true, at_least: false, missed });
    assert.equal((await listed(service, `instance_id=${instance_id}&state=failed`)).length, 3);
  });

  test('ends at until', async (t) => {
    const { instance_id, failed, meeting_id, receiver } = await failing(service, t, 2);
    receiver.behaviour = { status: 202 };
    const last = failed
      .map(({ settled_at }) => settled_at!)
      .toSorted()
      .at(-1)!;
    await until(
      'the clock to go on',
      () => Promise.resolve(Date.now()),
      (now) => now > Date.parse(last) + 1,
    );
    const later = await service.send(meeting_id, { n: 3 });
    await service.settled(later);
    receiver.behaviour = {};
    const made = await recover(service, instance_id, { since: failed[0]!.settled_at, until: last });
    assert.deepEqual(made, { recovered: 2, until: last, dry_run: false, done: true });
    await delivered(service, instance_id, 2);
    assert.deepEqual(
      (await service.deliveriesOf(later)).map(({ state }) => state),
      ['failed'],
    );
  });

  test('continues part by part; a client that ends it early has queued no more than that', async (t) => {
    const { instance_id, failed, receiver } = await failing(service, t, 5);
    receiver.requests.length = 0;
    const since = failed[0]!.settled_at!;
    const first = await recover(service, instance_id, { since, limit: 2 });
    assert.deepEqual([first.recovered, first.done], [2, false]);
    await delivered(service, instance_id, 2);
    assert.equal((await listed(service, `instance_id=${instance_id}&state=failed`)).length, 3);
    const client = new ConvokeClient({ base_url: service.url });
    const progress: number[] = [];
    for await (const queued of client.recovering(instance_id, { since, limit: 2 })) progress.push(queued);
    assert.deepEqual(progress, [2, 3]);
    await delivered(service, instance_id, 5);
    assert.deepEqual(numbersOf(receiver), [1, 2, 3, 4, 5]);
  });

  test('takes chosen deliveries, and leaves those that are delivered', async (t) => {
    const { instance_id, failed, meeting_id } = await failing(service, t, 3);
    const done = await service.settled(await service.send(meeting_id, { n: 4 }));
    const delivery_ids = [failed[1]!.delivery_id, done.delivery_id];
    const counted = await recover(service, instance_id, { delivery_ids, dry_run: true });
    assert.deepEqual(counted, { recovered: 1, until: null, dry_run: true, done: true, at_least: false });
    assert.equal((await recover(service, instance_id, { delivery_ids })).recovered, 1);
    const rows = await delivered(service, instance_id, 2);
    assert.deepEqual(rows.map(({ delivery_id }) => delivery_id).toSorted(), delivery_ids.toSorted());
  });

  test('of chosen deliveries is one call, so a receiver that fails them again at once gets each once', async (t) => {
    const { instance_id, failed, receiver } = await failing(service, t, 2);
    receiver.behaviour = { status: 202 };
    receiver.requests.length = 0;
    const delivery_ids = failed.map(({ delivery_id }) => delivery_id);
    const client = new ConvokeClient({ base_url: service.url });
    const progress: number[] = [];
    for await (const queued of client.recovering(instance_id, { delivery_ids, limit: 1 })) {
      progress.push(queued);
      await until(
        'all to fail again',
        () => listed(service, `instance_id=${instance_id}&state=failed`),
        (rows) => rows.length === 2,
      );
      if (progress.length === 2) break;
    }
    assert.deepEqual(progress, [2]);
    assert.deepEqual(numbersOf(receiver), [1, 2]);
  });

  test('says how many messages it missed while it was switched off, and does not send them', async (t) => {
    const meeting_id = service.name('meeting');
    const since = new Date(Date.now() - 1_000).toISOString();
    const { instance_id, receiver } = await service.member(t, meeting_id);
    await service.patch(instance_id, { webhook_enabled: false });
    await service.send(meeting_id, { n: 1 });
    await service.send(meeting_id, { n: 2 });
    await service.patch(instance_id, { webhook_enabled: true });
    await service.settled(await service.send(meeting_id, { n: 3 }));
    const counted = await recover(service, instance_id, { since, dry_run: true });
    assert.deepEqual([counted.recovered, counted.missed], [0, { messages: 2, at_least: false }]);
    assert.equal((await recover(service, instance_id, { since })).recovered, 0);
    assert.deepEqual(numbersOf(receiver), [3]);
  });

  test('names the field that is wrong', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    const [since, end] = ['2026-03-01T09:30:00Z', '2026-03-01T09:00:00Z'];
    const cases: [object, string][] = [
      [{}, ''],
      [{ dry_run: true }, 'since'],
      [{ until: end }, 'since'],
      [{ since, until: end }, 'until'],
      [{ since, until: 'soon' }, 'until'],
      [{ since, delivery_ids: ['dlv_x'] }, 'delivery_ids'],
      [{ delivery_ids: [] }, 'delivery_ids'],
      [{ delivery_ids: Array(501).fill('dlv_x') }, 'delivery_ids'],
      [{ since, limit: 0 }, 'limit'],
    ];
    for (const [body, path] of cases) {
      const answer = await service.post(`${instancePath(instance_id)}recover/`, body);
      const { errors } = assertProblem(answer, 422, 'invalid_fields');
      assert.equal(errors?.[0]?.path, path, JSON.stringify(body));
    }
  });
});

test('a restart in the middle loses nothing: what is queued goes out, and the same call queues the rest', async (t) => {
  const service = await startService(t);
  const { instance_id, failed, receiver } = await failing(service, t, 4);
  await service.patch(instance_id, { is_active: false });
  receiver.requests.length = 0;
  const since = failed[0]!.settled_at!;
  const part = await recover(service, instance_id, { since, limit: 2 });
  assert.deepEqual([part.recovered, part.done], [2, false]);
  await service.restart({});
  await service.patch(instance_id, { is_active: true });
  await delivered(service, instance_id, 2);
  const rest = await recover(service, instance_id, { since, until: part.until });
  assert.deepEqual([rest.recovered, rest.done], [2, true]);
  await delivered(service, instance_id, 4);
  assert.deepEqual(numbersOf(receiver), [1, 2, 3, 4]);
});
