/**
 * Agents that always answer: the guard stops them within the limits, the messages of a person always arrive, and after
 * a restart no limit starts again. The machines respond in virtual time, some at once and some late.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Store } from '../../src/store/store.ts';
import { ENGINES } from '../support/engines.ts';
import { MINUTE, SECOND, startNode } from '../support/node.ts';
import { type AgentOf, answering, crowd, talk, total } from '../support/talk.ts';

const OFF = { hop_limit: 0, pair_limit: 0, pair_window_s: 0 };
/** Settings under which only the limit of pairs applies. */
const PAIRS = { hop_limit: 0, pair_limit: 20, pair_window_s: 60 };
/** Without the guard the agents never stop. After this many messages the test ends the conversation. */
const FOR_EVER = 300;

const TWO = [answering('a', ['b']), answering('b', ['a'])];
const RING = [answering('a', ['b']), answering('b', ['c']), answering('c', ['a'])];
/** One agent with two names: what it gets in one meeting it sends to the other meeting. */
const ALIAS: AgentOf[] = [
  { agent: 'x', instance_id: 'ix', meeting_id: 'm', answers: { meeting_id: 'n', from_agent: 'y', to: ['x2'] } },
  { agent: 'x2', instance_id: 'ix', meeting_id: 'n', answers: { meeting_id: 'm', from_agent: 'y2', to: ['x'] } },
];

const worlds: [name: string, agents: AgentOf[], pair_limit: number][] = [
  ['two that always answer', TWO, 20],
  ['three in a ring', RING, 20],
  ['one that answers itself through another meeting', ALIAS, 20],
  // Forty agents would take seconds: test/faults/runaway.faults.ts tests them.
  ['eight on a broadcast', crowd(8), 3],
];

for (const [name, agents, pair_limit] of worlds) {
  describe(name, () => {
    test('without the guard they do not stop', async (t) => {
      const world = await talk(t, agents, OFF);
      await world.node.send('m', { target_agents: [agents[0]!.agent] });
      await world.node.clock.advance(2 * MINUTE);
      assert.ok(total(world) >= FOR_EVER, String(total(world)));
      assert.deepEqual(world.node.suppressed, []);
    });

    // The broadcasts of a crowd multiply with each hop, so the limit of pairs stops them long before the limit of hops.
    test('stop after as many hops as the limit', { skip: agents.length > 3 }, async (t) => {
      const world = await talk(t, agents, { pair_limit: 0 });
      await world.node.send('m', { target_agents: [agents[0]!.agent] });
      await world.node.clock.advance(SECOND);
      const { message_id } = await world.node.send('m');
      await world.node.clock.advance(5 * SECOND);
      assert.deepEqual(
        new Set(await world.node.states({ message_id })),
        new Set(['delivered']),
        'a person gets through',
      );
      const stopped = world.node.suppressed;
      assert.ok(stopped.length > 0);
      assert.ok(stopped.every(({ origin }) => origin!.hops > 16));
      assert.ok(world.node.transport.pushes.every(({ headers }) => Number(headers['convoke-hops'] ?? 0) <= 16));
    });

    test('no pair says more than its limit in a window; what was stopped is on record', async (t) => {
      const world = await talk(t, agents, { ...PAIRS, pair_limit });
      await world.node.send('m', { target_agents: [agents[0]!.agent] });
      await world.node.clock.advance(SECOND / 4);
      const between = await world.node.send('m');
      await world.node.clock.advance(30 * SECOND);
      assert.deepEqual(new Set(await world.node.states({ message_id: between.message_id })), new Set(['delivered']));
      for (const [pair, count] of world.received) assert.ok(count <= pair_limit, `${pair}: ${count}`);
      assert.ok(world.said() < FOR_EVER, 'they stopped by themselves');
      const person = await world.node.send('m', {});
      await world.node.clock.advance(SECOND);
      const to_person = await world.node.states({ message_id: person.message_id });
      assert.ok(to_person.length > 0 && to_person.every((state) => state === 'delivered'));
      const cancelled = (await world.node.deliveries({ state: 'cancelled' })).map(({ reason }) => reason);
      assert.equal(cancelled.length, world.node.suppressed.length);
      assert.ok(cancelled.every((reason) => reason === 'pair_limit'));
    });
  });
}

describe('the budget of a pair', () => {
  /** @returns how many messages of `a` were delivered to `b`, over eight restarts */
  async function wentOverRestarts(t: TestContext, store: Store, is_guarded = true): Promise<number> {
    const world = await talk(t, TWO, { ...PAIRS, store });
    const { node } = world;
    await node.send('m', { target_agents: ['a'] });
    for (let k = 0; k < 8; k++) {
      await node.clock.advance(450);
      await node.crash();
      // The interrupted agent sends another message.
      await node.send('m', { from_agent: 'a', target_agents: ['b'] });
    }
    await node.clock.advance(20 * SECOND);
    // A push that a crash interrupts arrives twice.
    if (is_guarded) assert.ok((world.received.get('a b m') ?? 0) <= 20 + 8, JSON.stringify([...world.received]));
    return (await node.deliveries({ instance_id: 'i-b' })).filter(({ state }) => state === 'delivered').length;
  }

  for (const engine of ENGINES) {
    test(`${engine.name}: is the same after a restart in the middle, however often`, async (t) => {
      assert.equal(await wentOverRestarts(t, await engine.open(t)), 20);
    });

    test(`${engine.name}: begins again with each restart if nothing is read of what is stored; control`, async (t) => {
      const store = await engine.open(t);
      const deliveries = Object.create(store.deliveries, {
        ofAgentsBefore: { value: async () => [] },
      }) as typeof store.deliveries;
      assert.ok((await wentOverRestarts(t, { ...store, deliveries }, false)) > 20);
    });
  }

  test('is read once after a restart, and not at all for people', async (t) => {
    const node = await startNode(t);
    await node.store.instances.get('i');
    await node.meeting('m', 'i');
    for (let k = 0; k < 3; k++) await node.send('m', { from_agent: 'b', target_agents: ['a'] });
    await node.clock.advance(SECOND);
    let reads = 0;
    await node.crash();
    node.meddle = (name) => void (name === 'deliveries.ofAgentsBefore' && reads++);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.equal(reads, 0);
    for (let k = 0; k < 3; k++) await node.send('m', { from_agent: 'b', target_agents: ['a'] });
    await node.clock.advance(SECOND);
    assert.equal(reads, 1);
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });

  test('is full again when a window has passed', async (t) => {
    const node = await startNode(t, { settings: { ...PAIRS, pair_limit: 3 } });
    await node.meeting('m', 'i');
    const say = (): Promise<unknown> => node.send('m', { from_agent: 'b', target_agents: ['a'] });
    for (let k = 0; k < 5; k++) await say();
    await node.clock.advance(59 * SECOND);
    await say();
    await node.clock.advance(SECOND);
    await say();
    await node.clock.advance(SECOND);
    const stopped = 'cancelled pair_limit';
    const went = 'delivered';
    assert.deepEqual(await node.states(), [went, went, went, stopped, stopped, stopped, went]);
  });

  test('counts what was delivered before the window was made longer', async (t) => {
    const node = await startNode(t, { settings: { ...PAIRS, pair_limit: 3, pair_window_s: 10 } });
    await node.meeting('m', 'i');
    const say = (): Promise<unknown> => node.send('m', { from_agent: 'b', target_agents: ['a'] });
    for (let k = 0; k < 2; k++) await say();
    await node.clock.advance(MINUTE);
    await node.crash();
    // The node now reads what was delivered in the last seconds, and not what was delivered a minute ago.
    await say();
    await node.clock.advance(SECOND);
    await node.setMeeting('m', { pair_window_s: 600 });
    await say();
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['delivered', 'delivered', 'delivered', 'cancelled pair_limit']);
  });

  test('counts what was delivered while pairs had no limit', async (t) => {
    const node = await startNode(t, { settings: { ...PAIRS, pair_limit: 3 } });
    await node.meeting('m', 'i');
    const say = (): Promise<unknown> => node.send('m', { from_agent: 'b', target_agents: ['a'] });
    await say();
    await node.clock.advance(SECOND);
    await node.setMeeting('m', { pair_limit: 0 });
    for (let k = 0; k < 2; k++) await say();
    await node.clock.advance(SECOND);
    await node.setMeeting('m', { pair_limit: 3 });
    await say();
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['delivered', 'delivered', 'delivered', 'cancelled pair_limit']);
  });

  test('does not count what was tried and superseded before it reached the machine', async (t) => {
    const node = await startNode(t, { settings: { ...PAIRS, pair_limit: 1 } });
    await node.register('i');
    await node.store.meetings.join('m', 'i', ['a'], node.clock.wall(), null, { catch_up: 'latest' });
    node.transport.answer('i', 'connect_refused');
    const say = (): Promise<unknown> => node.send('m', { from_agent: 'b', target_agents: ['a'] });
    await say();
    await node.clock.advance(SECOND / 2);
    await say();
    node.transport.answer('i', 200);
    await node.clock.advance(20 * SECOND);
    assert.deepEqual(await node.states(), ['cancelled superseded', 'delivered']);
    // Of the two messages, only the delivered one counts for the limit.
    await say();
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['cancelled superseded', 'delivered', 'cancelled pair_limit']);
  });

  for (const engine of ENGINES) {
    test(`${engine.name}: does not count what expired untried, after a restart neither`, async (t) => {
      const settings = { hop_limit: 0, pair_limit: 1, pair_window_s: 3_600 };
      const node = await startNode(t, { settings, store: await engine.open(t) });
      await node.meeting('m', 'i');
      node.transport.answer('i', 'connect_refused');
      await node.send('m');
      await node.send('m', { from_agent: 'b', target_agents: ['a'], expires_in_ms: MINUTE });
      await node.clock.advance(2 * MINUTE);
      node.transport.answer('i', 200);
      await node.heartbeat('i');
      await node.clock.advance(SECOND);
      await node.crash();
      await node.send('m', { from_agent: 'b', target_agents: ['a'] });
      await node.clock.advance(MINUTE);
      assert.deepEqual(await node.states(), ['delivered', 'failed expired', 'delivered']);
    });
  }

  test('does not count what waits for an instance that is away: it was sent in its own time', async (t) => {
    const node = await startNode(t, { settings: { ...PAIRS, pair_limit: 3 } });
    await node.meeting('m', 'i');
    node.transport.answer('i', 'connect_refused');
    for (let k = 0; k < 10; k++) {
      await node.send('m', { from_agent: 'b', target_agents: ['a'] });
      await node.clock.advance(30 * SECOND);
    }
    node.transport.answer('i', 200);
    await node.heartbeat('i');
    await node.clock.advance(MINUTE);
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });
});

describe('what was stopped', () => {
  test('is let through by a retry by hand, and what answers it is stopped again', async (t) => {
    const world = await talk(t, TWO, { pair_limit: 0 });
    const { node } = world;
    await node.send('m', { target_agents: ['a'] });
    await node.clock.advance(5 * SECOND);
    const [stopped] = node.suppressed;
    const before = total(world);
    await node.retry(stopped!.delivery_id);
    await node.clock.advance(5 * SECOND);
    assert.equal(total(world), before + 1);
    assert.equal(node.suppressed.length, 2);
    assert.deepEqual(await node.states({ state: 'cancelled' }), ['cancelled hop_limit']);
  });

  test('continues with limits of the meeting, as soon as they are set', async (t) => {
    const world = await talk(t, TWO, { pair_limit: 0 });
    const { node } = world;
    await node.setMeeting('m', { hop_limit: 4 });
    await node.send('m', { target_agents: ['a'] });
    await node.clock.advance(5 * SECOND);
    assert.equal(total(world), 4);
    await node.setMeeting('m', { hop_limit: 6 });
    await node.retry(node.suppressed[0]!.delivery_id);
    await node.clock.advance(5 * SECOND);
    assert.equal(total(world), 6);
  });
});
