/** Changes of a membership, with both databases. A change is no join, so an instance that has left does not return. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ENGINES } from '../support/engines.ts';
import { newMessage, register, WALL } from '../support/store_contents.ts';

for (const engine of ENGINES) {
  describe(`${engine.name}: a change of a membership`, () => {
    test('changes what it names, from the next message on, and nothing else', async (t) => {
      const store = await engine.open(t);
      await register(store, 'i');
      const { membership } = await store.meetings.join('m', 'i', ['a'], WALL, null, { max_age_s: 60 });
      const woken = async (): Promise<string[]> => {
        const [accepted] = await store.messages.accept([newMessage('m')]);
        assert.ok(accepted?.kind === 'accepted');
        return accepted.deliveries.map(({ target_agents }) => target_agents);
      };
      assert.deepEqual(await woken(), ['["a"]']);
      const ruled = await store.meetings.changeMembership('m', 'i', { wake: 'targeted', catch_up: 'latest' });
      assert.deepEqual(ruled, { ...membership, wake: 'targeted', catch_up: 'latest' });
      assert.deepEqual(await woken(), []);
      await store.meetings.changeMembership('m', 'i', { wake: 'all', agent_ids: ['b', 'c'] });
      assert.deepEqual(await woken(), ['["b","c"]']);
      const page = await store.meetings.instances('m', { limit: 9 });
      const { agent_ids, wake, catch_up, max_age_s } = page!.data[0]!;
      assert.deepEqual([agent_ids, wake, catch_up, max_age_s], [['b', 'c'], 'all', 'latest', 60]);
    });

    test('is refused to another owner, without a membership, and after a leave; it brings nobody back', async (t) => {
      const store = await engine.open(t);
      await register(store, 'i');
      await store.meetings.join('m', 'i', ['a'], WALL);
      const other = { key_id: 'key_other', instance_id: null };
      const change = { wake: 'people' } as const;
      assert.equal(await store.meetings.changeMembership('m', 'i', change, other), null);
      assert.equal(await store.meetings.changeMembership('m', 'nobody', change), null);
      assert.equal(await store.meetings.changeMembership('nowhere', 'i', change), null);
      await store.meetings.leave('m', 'i', WALL + 5);
      assert.equal(await store.meetings.changeMembership('m', 'i', change), null);
      const page = await store.meetings.instances('m', { limit: 9, include_left: true });
      assert.deepEqual(
        page?.data.map(({ left_at, wake }) => [left_at, wake]),
        [[WALL + 5, 'all']],
      );
    });

    test('notes on the instance that it has rules, which its pushes are judged by', async (t) => {
      const store = await engine.open(t);
      await register(store, 'i');
      await store.meetings.join('m', 'i', ['a'], WALL);
      assert.equal((await store.instances.get('i'))?.has_rules, false);
      await store.meetings.changeMembership('m', 'i', { catch_up: 'latest' });
      assert.equal((await store.instances.get('i'))?.has_rules, true);
    });
  });
}
