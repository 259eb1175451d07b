/**
 * The store has made a change, and its answer was lost: the author hears that the change is in doubt. This node delivers
 * as the store says from then on, although no other node tells it so.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { Changes } from '../../src/changes/changes.ts';
import type { Author } from '../../src/changes/author.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { MINUTE, SECOND, SECRET, startNode, type TestNode } from '../support/node.ts';

/** A node with an instance in a meeting, and the changes that its clients can make. */
interface Started {
  node: TestNode;
  changes: Changes;
  author: Author;
}

async function started(t: TestContext): Promise<Started> {
  const node = await startNode(t);
  await node.meeting('m', 'i');
  await node.send('m');
  await node.clock.advance(SECOND);
  const changes = new Changes({
    store: node.store,
    engine: node.engine,
    feed: { publish() {} },
    keyring: { put() {} },
    derived: [],
    clock: node.clock,
    expiry: node.expiry,
  });
  const author = {
    key_id: null,
    owner_scope: null,
    storeFor: () => node.store,
    assertStanding() {},
    record: async () => {},
  };
  return { node, changes, author };
}

/** Makes a change whose answer is lost after the store has made it. */
async function inDoubt(node: TestNode, change: () => Promise<unknown>): Promise<void> {
  const answered = Promise.reject<void>(new StoreError('IN_DOUBT', 'scripted: the answer was lost'));
  answered.catch(() => {});
  node.meddle = () => {
    node.meddle = null;
    return { answered };
  };
  await assert.rejects(change(), { name: 'StoreError', code: 'IN_DOUBT' });
}

/** Sends a message, and returns the calls of the store until it is delivered. */
async function callsOfNextPush(node: TestNode): Promise<string[]> {
  const calls: string[] = [];
  node.meddle = (called) => void calls.push(called);
  await node.send('m');
  await node.clock.advance(SECOND);
  return calls;
}

const registration = {
  instance_id: 'i',
  instance_name: 'i',
  agent_ids: ['a'],
  webhook_url: 'http://moved.test/',
  webhook_headers: undefined,
  webhook_secret: undefined,
  new_secret: SECRET,
  success_statuses: undefined,
};

describe('a change that is in doubt', () => {
  for (const [name, change] of [
    [
      'an update',
      ({ changes, author }) => changes.instances.update(author, 'i', { webhook_url: 'http://moved.test/' }),
    ],
    ['a registration', ({ changes, author }) => changes.instances.register(author, registration)],
  ] satisfies [string, (of: Started) => Promise<unknown>][]) {
    test(`of the address, by ${name}: the next push goes to the new one`, async (t) => {
      const of = await started(t);
      await inDoubt(of.node, () => change(of));
      await of.node.send('m');
      await of.node.clock.advance(SECOND);
      assert.deepEqual(
        of.node.transport.to('i').map(({ url }) => url),
        ['http://i.test/hook', 'http://moved.test/'],
      );
    });
  }

  test('of the secret: the next push is signed with both', async (t) => {
    const { node, changes, author } = await started(t);
    const secret = `whsec_${Buffer.alloc(32, 8).toString('base64')}`;
    await inDoubt(node, () => changes.instances.rotateSecret(author, 'i', secret, MINUTE));
    await node.send('m');
    await node.clock.advance(SECOND);
    const signatures = node.transport.to('i').map(({ headers }) => headers['webhook-signature']?.split(' ').length);
    assert.deepEqual(signatures, [1, 2]);
  });

  for (const [name, change] of [
    ['a heartbeat', ({ changes, author }) => changes.instances.heartbeat(author, 'i')],
    ['an update', ({ changes, author }) => changes.instances.update(author, 'i', { is_active: true })],
  ] satisfies [string, (of: Started) => Promise<unknown>][]) {
    test(`and ends the back-off, as ${name} does: what waits is pushed at once`, async (t) => {
      const of = await started(t);
      const { node } = of;
      node.transport.answer('i', 'connect_refused');
      await node.send('m');
      await node.clock.advance(10 * MINUTE);
      node.transport.answer('i', 200);
      await inDoubt(node, () => change(of));
      await node.clock.advance(SECOND);
      assert.deepEqual(await node.states(), ['delivered', 'delivered']);
    });
  }

  for (const [name, change] of [
    ['a change', ({ changes, author }) => changes.memberships.change(author, 'm', 'i', { max_age_s: 10 })],
    ['a join', ({ changes, author }) => changes.memberships.join(author, 'm', 'i', ['a'], { max_age_s: 10 })],
  ] satisfies [string, (of: Started) => Promise<unknown>][]) {
    test(`of what a member gets, by ${name}: what is too old now is not pushed`, async (t) => {
      const of = await started(t);
      const { node } = of;
      node.transport.answer('i', 'connect_refused');
      await node.send('m');
      await node.clock.advance(MINUTE);
      node.transport.answer('i', 200);
      await inDoubt(node, () => change(of));
      await node.clock.advance(10 * MINUTE);
      assert.deepEqual(await node.states(), ['delivered', 'cancelled max_age']);
    });
  }

  for (const aside of [true, false]) {
    test(`by which a delivery ${aside ? 'that failed' : 'in its lane'} is tried again: it is tried at once`, async (t) => {
      const { node, changes, author } = await started(t);
      node.transport.answer('i', aside ? [202, 200] : [500, 200]);
      await node.send('m');
      await node.clock.advance(SECOND);
      const [, { delivery_id }] = (await node.deliveries()) as [unknown, { delivery_id: string }];
      await inDoubt(node, () => changes.deliveries.retry(author, delivery_id));
      await node.clock.advance(SECOND);
      assert.deepEqual(await node.states(), ['delivered', 'delivered']);
    });
  }

  test('by which an invite is redeemed: the instance, which has another owner, is read again', async (t) => {
    const { node, changes, author } = await started(t);
    const invite = await changes.invites.create(author, {
      invite_id: 'v',
      digest: 'd'.repeat(64),
      created_by: null,
      token_digest: null,
      instance_id: 'i',
      meeting_ids: ['m'],
      agent_ids: ['a'],
      created_at: node.clock.wall(),
      expires_at: node.clock.wall() + MINUTE,
    });
    await inDoubt(node, () => changes.invites.redeem(author, invite, { key_id: 'k', digest: 'e'.repeat(64) }));
    assert.ok((await callsOfNextPush(node)).includes('instances.load'));
  });

  test('control: after a change that was refused, nothing is read again', async (t) => {
    const { node, changes, author } = await started(t);
    const by_other = { ...author, owner_scope: { key_id: 'other', instance_id: null } };
    await assert.rejects(changes.instances.register(by_other, registration), { code: 'instance_id_taken' });
    assert.ok(!(await callsOfNextPush(node)).includes('instances.load'));
  });
});

test('a retry that is made is tried at once, also when its delivery cannot be read for the response', async (t) => {
  const { node, changes, author } = await started(t);
  node.transport.answer('i', [202, 200]);
  await node.send('m');
  await node.clock.advance(SECOND);
  const [, { delivery_id }] = (await node.deliveries()) as [unknown, { delivery_id: string }];
  node.meddle = (name) => (name === 'deliveries.get' ? 'fails' : undefined);
  await assert.rejects(changes.deliveries.retry(author, delivery_id), { name: 'StoreError' });
  node.meddle = null;
  await node.clock.advance(SECOND);
  assert.deepEqual(await node.states(), ['delivered', 'delivered']);
});
