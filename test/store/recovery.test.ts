/** Which deliveries are queued again, and how many messages an instance missed while it was switched off. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Recovery } from '../../src/store/contract/deliveries.ts';
import type { Store } from '../../src/store/store.ts';
import { ENGINES } from '../support/engines.ts';
import { REGISTRATION } from '../support/node.ts';

const EVER = { since_ms: 0, until_ms: 1e9 };
const NEVER_EXPIRES = 1e12;

async function send(store: Store, meeting_id: string, wall_ms: number, target_agents: string[] | null = null) {
  const rest = { origin: null, trace: null, idempotency: null };
  const message = { meeting_id, message: '{}', timestamp: '', target_agents, ...rest };
  const [accepted] = await store.messages.accept([{ ...message, wall_ms, expires_at: NEVER_EXPIRES }]);
  assert.ok(accepted?.kind === 'accepted');
  return accepted;
}

for (const engine of ENGINES) {
  describe(engine.name, () => {
    const open: typeof engine.open = async (t) => {
      const store = await engine.open(t);
      for (const instance_id of ['i', 'j']) {
        await store.instances.register({ ...REGISTRATION, instance_id }, 1);
        await store.meetings.join('m', instance_id, ['a'], 1);
      }
      return store;
    };

    /** For each time, sends one message whose deliveries fail then. Returns the deliveries to the instance `i`. */
    async function failAt(store: Store, times: number[]): Promise<string[]> {
      const of_i: string[] = [];
      for (const settled_at of times) {
        const { deliveries } = await send(store, 'm', 1);
        await store.deliveries.settle(
          deliveries.map(({ delivery_id }) => ({
            delivery_id,
            expires_at: NEVER_EXPIRES,
            state: 'failed',
            reason: 'not_200',
            attempt_count: 1,
            answered_badly: 1,
            attempts: '[]',
            next_attempt_at: null,
            aside: false,
            settled_at,
            epoch: 0,
          })),
          [],
        );
        of_i.push(deliveries.find(({ instance_id }) => instance_id === 'i')!.delivery_id);
      }
      return of_i;
    }

    const pendingOf = async (store: Store): Promise<string[]> => {
      const { data } = await store.deliveries.list({ limit: 100, state: 'pending' }, 1);
      return data.map(({ delivery_id }) => delivery_id).toReversed();
    };
    const recover = (store: Store, of: Recovery, limit = 100, now = 5) =>
      store.deliveries.recover(of, limit, now, NEVER_EXPIRES);

    test('a time: what failed in it, both ends included, of this instance only', async (t) => {
      const store = await open(t);
      const [, second, third] = await failAt(store, [10, 20, 30, 31]);
      const of = { instance_id: 'i', since_ms: 20, until_ms: 30 };
      assert.equal(await store.deliveries.countRecoverable(of, 100), 2);
      assert.deepEqual(await pendingOf(store), []);
      assert.deepEqual(await recover(store, of), { recovered: 2 });
      assert.deepEqual(await pendingOf(store), [second, third]);
      assert.deepEqual(await recover(store, of), { recovered: 0 });
      assert.equal(await store.deliveries.countRecoverable(of, 100), 0);
    });

    test('in parts: each continues where the last one ended, and what fails again after the end is left out', async (t) => {
      const store = await open(t);
      const ids = await failAt(store, [10, 20, 30, 40, 50]);
      const of = { instance_id: 'i', since_ms: 0, until_ms: 50 };
      assert.equal(await store.deliveries.countRecoverable(of, 3), 3);
      assert.deepEqual(await recover(store, of, 2), { recovered: 2 });
      assert.deepEqual(await pendingOf(store), ids.slice(0, 2));
      const { deliveries } = await store.deliveries.loadAside('i', 5, 10);
      await store.deliveries.settle(
        deliveries.map((row) => ({
          ...row,
          state: 'failed',
          reason: 'not_200',
          attempts: '[]',
          next_attempt_at: null,
          aside: false,
          settled_at: 51,
          epoch: 0,
        })),
        [],
      );
      assert.deepEqual(await recover(store, of, 2, 6), { recovered: 2 });
      assert.deepEqual(await recover(store, of, 2, 7), { recovered: 1 });
      assert.deepEqual(await pendingOf(store), ids.slice(2));
      const due = await store.deliveries.loadAside('i', 7, 10);
      assert.deepEqual(
        due.deliveries.map(({ delivery_id }) => delivery_id),
        ids.slice(2),
      );
    });

    test('chosen ones: those that failed or were cancelled, of this instance only; the others stay', async (t) => {
      const store = await open(t);
      const [first, second] = await failAt(store, [10, 20]);
      const waiting = await send(store, 'm', 1);
      const of_j = waiting.deliveries.find(({ instance_id }) => instance_id === 'j')!.delivery_id;
      await store.deliveries.drop({ instance_id: 'j', up_to: await store.messages.last() }, 10, 1);
      const of = { instance_id: 'i', delivery_ids: [second!, of_j, 'dlv_unknown'] };
      assert.equal(await store.deliveries.countRecoverable(of, 100), 1);
      assert.deepEqual(await recover(store, of), { recovered: 1 });
      assert.ok((await pendingOf(store)).includes(second!));
      assert.ok(!(await pendingOf(store)).includes(first!));
      assert.deepEqual(await recover(store, { instance_id: 'j', delivery_ids: [of_j] }), { recovered: 1 });
    });

    test('nothing of an earlier instance with the same id, whoever asks: it may have had another owner', async (t) => {
      const store = await open(t);
      const [delivery_id] = await failAt(store, [10]);
      assert.ok(delivery_id !== undefined);
      assert.equal(await store.deliveries.countRecoverable({ instance_id: 'i', ...EVER }, 9), 1, 'control');
      await store.instances.remove('i', 9, 20);
      await store.instances.register({ ...REGISTRATION, instance_id: 'i', owner_key_id: 'another' }, 30);
      for (const asked of [EVER, { delivery_ids: [delivery_id] }]) {
        assert.equal(await store.deliveries.countRecoverable({ instance_id: 'i', ...asked }, 9), 0);
        const { recovered } = (await store.deliveries.recover({ instance_id: 'i', ...asked }, 9, 40, NEVER_EXPIRES))!;
        assert.equal(recovered, 0);
      }
      await assert.rejects(store.deliveries.retry(delivery_id, 40, NEVER_EXPIRES), {
        code: 'delivery_not_retryable',
        message: /another one has its id now/,
      });
    });

    test('nothing of an instance that is not there, or belongs to somebody else', async (t) => {
      const store = await open(t);
      await failAt(store, [10]);
      assert.equal(await store.deliveries.countRecoverable({ instance_id: 'nobody', ...EVER }, 9), null);
      const other = { key_id: 'k', instance_id: null };
      assert.equal(await store.deliveries.countRecoverable({ instance_id: 'i', ...EVER }, 9, other), null);
      assert.equal(await store.deliveries.recover({ instance_id: 'i', ...EVER }, 9, 5, NEVER_EXPIRES, other), null);
    });

    test('missed: what was for its agents while it was off; not what it got, what is for others, or older than its membership', async (t) => {
      const store = await open(t);
      await store.meetings.join('late', 'j', ['a'], 1);
      await send(store, 'late', 50);
      await store.meetings.join('late', 'i', ['a'], 60);
      await send(store, 'm', 10);
      await store.instances.patch('i', { is_active: false }, 20);
      await send(store, 'm', 100);
      await send(store, 'm', 110, ['a', 'x']);
      await send(store, 'm', 120, ['x']);
      await send(store, 'late', 130);
      await store.instances.patch('i', { is_active: true }, 140);
      await send(store, 'm', 150);
      const missed = (span: { since_ms: number; until_ms: number }, rows_max = 1_000) =>
        store.deliveries.countMissed('i', span, rows_max);
      assert.deepEqual(await missed(EVER), { messages: 3, at_least: false });
      assert.deepEqual(await missed({ since_ms: 101, until_ms: 129 }), { messages: 1, at_least: false });
      // Control: the other instance was on all the time.
      assert.deepEqual(await store.deliveries.countMissed('j', EVER, 1_000), { messages: 0, at_least: false });
      await store.meetings.leave('late', 'i', 160);
      assert.deepEqual(await missed(EVER), { messages: 2, at_least: false });
    });

    test('missed: says that there may be more when it does not read all messages', async (t) => {
      const store = await open(t);
      await store.instances.patch('i', { webhook_enabled: false }, 2);
      for (let at = 10; at < 16; at++) await send(store, 'm', at);
      assert.deepEqual(await store.deliveries.countMissed('i', EVER, 4), { messages: 4, at_least: true });
      assert.deepEqual(await store.deliveries.countMissed('i', { ...EVER, since_ms: 13 }, 4), {
        messages: 3,
        at_least: false,
      });
    });

    test('missed: long lists of agents are not all in memory at once, and the count is a lower bound', async (t) => {
      const store = await open(t);
      await store.instances.patch('i', { webhook_enabled: false }, 2);
      const many = ['a', ...Array.from({ length: 999 }, (_, k) => `${k}`.padStart(38, 'x'))];
      for (let at = 10; at < 50; at++) await send(store, 'm', at, many);
      const { messages, at_least } = await store.deliveries.countMissed('i', EVER, 1_000);
      assert.ok(messages > 20 && messages < 40, String(messages));
      assert.equal(at_least, true);
    });
  });
}
