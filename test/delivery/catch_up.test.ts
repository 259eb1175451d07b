/**
 * A machine that was away: the rules of its membership decide which of the waiting messages are pushed. The other
 * messages are cancelled, and the next push says in `convoke-missed` how many.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { HandedOut, PullEnd } from '../../src/delivery/transport/pull_transport.ts';
import type { GivenRules } from '../../src/store/contract/meetings.ts';
import { HOUR, MINUTE, SECOND, startNode, temporaryFile, type TestNode } from '../support/node.ts';

const LATEST: GivenRules = { catch_up: 'latest' };

async function join(node: TestNode, rules: GivenRules, meeting_id = 'm'): Promise<void> {
  if ((await node.store.instances.get('i')) === null) await node.register('i');
  await node.store.meetings.join(meeting_id, 'i', ['a'], node.clock.wall(), null, rules);
  node.engine.memberRulesChanged('i');
}

/** The pushes to which the machine responded 200, in order: the seq, and the missed messages of `convoke-missed`. */
function seqsPushed(node: TestNode): string[] {
  return node.transport
    .to('i')
    .filter(({ result }) => result?.outcome === 'ok')
    .map(({ meeting_id, seq, headers }) => `${meeting_id}${seq}${missed(headers['convoke-missed'])}`);
}

const missed = (count: string | undefined): string => (count === undefined ? '' : ` missed ${count}`);

/** Makes the machine unreachable, so that an attempt fails. */
async function leave(node: TestNode): Promise<void> {
  node.transport.answer('i', 'connect_refused');
  await node.clock.advance(SECOND);
}

async function comeBack(node: TestNode, ms = 30 * MINUTE): Promise<void> {
  node.transport.answer('i', 200);
  await node.clock.advance(ms);
}

describe('latest', () => {
  test('of what waited only the newest is pushed, and says how many are missing; the others are on record', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await node.send('m');
    await node.clock.advance(SECOND);
    await leave(node);
    for (let k = 0; k < 5; k++) {
      await node.send('m');
      await node.clock.advance(MINUTE);
    }
    await comeBack(node);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(seqsPushed(node), ['m1', 'm6 missed 4', 'm7']);
    const stopped = Array.from({ length: 4 }, () => 'cancelled superseded');
    assert.deepEqual(await node.states(), ['delivered', ...stopped, 'delivered', 'delivered']);
    assert.equal(node.settled_without_attempt.get('cancelled superseded'), 4);
    assert.equal(node.suppressed.length, 4);
    assert.equal(await node.store.deliveries.countPending(), 0);
  });

  // Control: the machine was away here too, so only the rule makes the difference.
  test('without it everything is pushed, and nothing is read or counted for it', async (t) => {
    const node = await startNode(t);
    let reads = 0;
    node.meddle = (name) => void (name === 'deliveries.rulesAtHead' && reads++);
    await join(node, {});
    await leave(node);
    for (let k = 0; k < 5; k++) await node.send('m');
    await comeBack(node);
    assert.deepEqual(seqsPushed(node), ['m1', 'm2', 'm3', 'm4', 'm5']);
    assert.equal(reads, 0);
  });

  test('a message of a person is superseded only by one of a person', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await leave(node);
    for (const from_agent of ['x', undefined, 'x', undefined, 'x', 'y']) {
      await node.send('m', { ...(from_agent !== undefined && { from_agent }) });
      await node.clock.advance(20 * SECOND);
    }
    await comeBack(node);
    assert.deepEqual(seqsPushed(node), ['m4 missed 3', 'm6 missed 1']);
  });

  test('a machine that is there gets everything, however slow it is', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    node.transport.answer('i', () => ({ says: 200, after_ms: 4_000 }));
    for (let k = 0; k < 6; k++) await node.send('m');
    await node.clock.advance(MINUTE);
    assert.deepEqual(seqsPushed(node), ['m1', 'm2', 'm3', 'm4', 'm5', 'm6']);
  });

  test('each meeting has its newest, even when it is reached long after the return', async (t) => {
    const node = await startNode(t, { settings: { instance_concurrency: 1 } });
    for (const meeting_id of ['m', 'n', 'o']) await join(node, LATEST, meeting_id);
    await leave(node);
    for (const meeting_id of ['m', 'n', 'o', 'm', 'n', 'o']) await node.send(meeting_id);
    await node.clock.advance(HOUR);
    node.transport.answer('i', () => ({ says: 200, after_ms: 4_000 }));
    await node.clock.advance(30 * MINUTE);
    assert.deepEqual(seqsPushed(node).toSorted(), ['m2 missed 1', 'n2 missed 1', 'o2 missed 1']);
  });

  test('a registration at the return counts as the return: everything after it is pushed', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await leave(node);
    for (let k = 0; k < 3; k++) await node.send('m');
    await node.clock.advance(SECOND);
    node.transport.answer('i', () => ({ says: 200, after_ms: 1_000 }));
    await node.clock.advance(SECOND);
    await node.register('i');
    for (let k = 0; k < 3; k++) await node.send('m');
    await node.clock.advance(MINUTE);
    assert.deepEqual(seqsPushed(node), ['m4 missed 3', 'm5', 'm6']);
  });

  test('a backlog that no memory holds is left out like any other', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await leave(node);
    await node.sendMany('m', 3_000);
    await comeBack(node);
    assert.deepEqual(seqsPushed(node), ['m3000 missed 1000']);
    const states = new Map<string, number>();
    for (const state of await node.states()) states.set(state, (states.get(state) ?? 0) + 1);
    assert.deepEqual(
      [...states],
      [
        ['cancelled superseded', 2_999],
        ['delivered', 1],
      ],
    );
  });

  test('what expires sooner supersedes nothing: one of the two is pushed', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await leave(node);
    await node.send('m');
    await node.send('m', { expires_in_ms: MINUTE });
    await node.clock.advance(10 * MINUTE);
    await comeBack(node);
    assert.deepEqual(seqsPushed(node), ['m1']);
  });

  test('changed back to all while the machine is away, everything is pushed', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await leave(node);
    for (let k = 0; k < 3; k++) await node.send('m');
    // The first delivery was superseded at its first attempt, because newer deliveries waited.
    await join(node, { catch_up: 'all' });
    await comeBack(node);
    const states = await node.states();
    assert.equal(states.at(-1), 'delivered');
    assert.equal(states.filter((state) => state === 'delivered').length, seqsPushed(node).length);
  });

  test('set while the machine is away, it holds for what waits already', async (t) => {
    const node = await startNode(t);
    await join(node, {});
    await leave(node);
    for (let k = 0; k < 4; k++) await node.send('m');
    await node.clock.advance(MINUTE);
    await join(node, LATEST);
    await comeBack(node);
    assert.deepEqual(seqsPushed(node), ['m4 missed 3']);
  });

  test('a superseded delivery that is retried by hand is pushed', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await leave(node);
    for (let k = 0; k < 2; k++) await node.send('m');
    await node.clock.advance(SECOND);
    await comeBack(node);
    const [first] = await node.deliveries();
    await node.retry(first!.delivery_id);
    await node.clock.advance(SECOND);
    assert.deepEqual(seqsPushed(node), ['m2 missed 1', 'm1']);
  });

  test('after a restart in the middle of a return, still only the newest of each meeting is pushed', async (t) => {
    const node = await startNode(t, { file: temporaryFile(t), settings: { instance_concurrency: 1 } });
    for (const meeting_id of ['m', 'n']) await join(node, LATEST, meeting_id);
    await leave(node);
    for (const meeting_id of ['m', 'n', 'm', 'n', 'm', 'n']) await node.send(meeting_id);
    await node.clock.advance(HOUR);
    // The first meeting delivers its newest message. The process is killed before the second meeting has its turn.
    node.transport.answer('i', () => ({ says: 200, after_ms: 4_000 }));
    for (let k = 0; k < 400 && seqsPushed(node).length === 0; k++) await node.clock.advance(SECOND);
    await node.engine.written();
    await node.crash();
    await node.clock.advance(30 * MINUTE);
    const seqs = new Set(seqsPushed(node).map((each) => each.slice(0, 2)));
    assert.deepEqual([...seqs].toSorted(), ['m3', 'n3']);
    assert.equal(await node.store.deliveries.countPending(), 0);
  });
});

describe('max_age_s', () => {
  test('a message that is too old at its turn is cancelled, no matter who sent it', async (t) => {
    const node = await startNode(t);
    await join(node, { max_age_s: 600 });
    await leave(node);
    await node.send('m');
    await node.send('m', { from_agent: 'x' });
    await node.clock.advance(20 * MINUTE);
    await node.send('m');
    await node.send('m');
    await comeBack(node, 5 * MINUTE);
    assert.deepEqual(seqsPushed(node), ['m3 missed 2', 'm4']);
    assert.deepEqual(await node.states(), ['cancelled max_age', 'cancelled max_age', 'delivered', 'delivered']);
  });

  test('nothing is pushed when all of it is too old, and nothing waits for ever', async (t) => {
    const node = await startNode(t);
    await join(node, { max_age_s: 600 });
    await leave(node);
    for (let k = 0; k < 3; k++) await node.send('m');
    await node.clock.advance(HOUR);
    await comeBack(node);
    assert.deepEqual(seqsPushed(node), []);
    assert.equal(await node.store.deliveries.countPending(), 0);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(seqsPushed(node), ['m4 missed 3']);
  });
});

describe('a wall clock that somebody sets', () => {
  test('an hour ahead makes no message too old; one that is really too old is left out', async (t) => {
    const node = await startNode(t);
    await join(node, { max_age_s: 600 });
    node.transport.answer('i', () => ({ says: 200, after_ms: 4_000 }));
    for (let k = 0; k < 3; k++) await node.send('m');
    await node.clock.advance(SECOND);
    node.clock.stepWall(HOUR);
    await node.clock.advance(MINUTE);
    assert.deepEqual(seqsPushed(node), ['m1', 'm2', 'm3']);
    await leave(node);
    await node.send('m');
    await node.clock.advance(20 * MINUTE);
    node.clock.stepWall(HOUR);
    await node.send('m');
    await comeBack(node, 5 * MINUTE);
    assert.deepEqual(seqsPushed(node), ['m1', 'm2', 'm3', 'm5 missed 1']);
    assert.equal((await node.states())[3], 'cancelled max_age');
  });

  test('an hour back makes no machine away: a slow one gets every message', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await node.clock.advance(MINUTE);
    node.transport.answer('i', () => ({ says: 200, after_ms: 4_000 }));
    node.clock.stepWall(-HOUR);
    for (let k = 0; k < 3; k++) await node.send('m');
    await node.clock.advance(MINUTE);
    assert.deepEqual(seqsPushed(node), ['m1', 'm2', 'm3']);
  });

  test('an hour ahead while a machine is away: of what waited it still gets only the newest', async (t) => {
    const node = await startNode(t);
    await join(node, LATEST);
    await leave(node);
    for (let k = 0; k < 2; k++) await node.send('m');
    await node.clock.advance(MINUTE);
    node.clock.stepWall(HOUR);
    await node.send('m');
    await comeBack(node);
    assert.deepEqual(seqsPushed(node), ['m3 missed 2']);
  });
});

describe('a start with a clock that is four days ahead', () => {
  /** A machine is away, a message waits for it, and the service starts again with the wrong clock. */
  async function startedAhead(t: TestContext, rules: GivenRules): Promise<TestNode> {
    const node = await startNode(t);
    await join(node, rules);
    await leave(node);
    await node.send('m');
    await node.clock.advance(2 * MINUTE);
    await node.maintenance().run();
    await node.restart(96 * HOUR);
    await node.clock.advance(SECOND);
    return node;
  }

  test('makes no waiting message too old; one that is really too old is left out', async (t) => {
    const node = await startedAhead(t, { max_age_s: 600 });
    await node.clock.advance(MINUTE);
    await node.send('m');
    await comeBack(node, 5 * MINUTE);
    assert.deepEqual(seqsPushed(node), ['m1', 'm2']);
    await leave(node);
    await node.send('m');
    await node.clock.advance(20 * MINUTE);
    await comeBack(node);
    assert.equal((await node.states())[2], 'cancelled max_age');
  });

  test('lets no message that expires soon supersede one that keeps its days', async (t) => {
    const node = await startedAhead(t, LATEST);
    await node.send('m', { expires_in_ms: 5 * MINUTE });
    await comeBack(node, 3 * MINUTE);
    assert.deepEqual(seqsPushed(node), ['m1', 'm2']);
  });
});

describe('convoke-missed', () => {
  test('counts what did not wake the membership, and not what is for others or says itself', async (t) => {
    const node = await startNode(t);
    await join(node, { wake: 'targeted' });
    await node.send('m');
    await node.send('m', { from_agent: 'x' });
    await node.send('m', { from_agent: 'a' });
    await node.send('m', { target_agents: ['other'] });
    await node.send('m', { target_agents: ['a'] });
    await node.send('m', { target_agents: ['a'] });
    await node.send('m');
    await node.send('m', { target_agents: ['a'] });
    await node.clock.advance(SECOND);
    assert.deepEqual(seqsPushed(node), ['m5 missed 2', 'm6', 'm8 missed 1']);
  });

  test('counts nothing from before the join, nor from before deliveries are removed', async (t) => {
    const node = await startNode(t, { settings: { retention_deliveries_ms: HOUR } });
    await node.register('i');
    for (let k = 0; k < 3; k++) await node.send('m');
    await node.clock.advance(SECOND);
    await join(node, { wake: 'targeted' });
    await node.send('m');
    await node.send('m', { target_agents: ['a'] });
    await node.clock.advance(SECOND);
    assert.deepEqual(seqsPushed(node), ['m5 missed 1']);
    await node.send('m');
    await node.clock.advance(2 * HOUR);
    await node.store.deliveries.prune(
      { deliveries_ms: node.clock.wall() - HOUR, messages_ms: 0, idempotency_ms: 0, future_ms: Infinity },
      100,
      Infinity,
      null,
    );
    await node.send('m');
    await node.send('m', { target_agents: ['a'] });
    await node.clock.advance(SECOND);
    assert.equal(seqsPushed(node).at(-1), 'm8 missed 1');
  });
});

describe('a machine that pulls', () => {
  /** The messages of m that the machine gets after it did not pull for 30 s, with something in hand or with nothing. */
  async function seqsAfterPause(t: TestContext, has_something_in_hand: boolean): Promise<number[]> {
    const node = await startNode(t);
    await node.register('i', { transport: 'pull' });
    await join(node, LATEST);
    await node.join('i', 'n');
    await node.clock.advance(MINUTE);
    const { updated_at } = (await node.store.instances.get('i'))!;
    const pull = async (): Promise<HandedOut | undefined> => {
      const { promise, resolve } = Promise.withResolvers<PullEnd>();
      node.pulls.pull({
        instance_id: 'i',
        pull_id: null,
        permit: { owner_scope: null, owner_key_id: null, updated_at, as_of: 0 },
        max: 1,
        wait_ms: SECOND,
        address: null,
        client: null,
        standing: { revocationReason: () => null },
        onEnd: resolve,
      });
      await node.clock.advance(2 * SECOND);
      const end = await promise;
      return 'pushes' in end ? end.pushes[0] : undefined;
    };
    const handIn = ({ delivery_id, attempt }: HandedOut): boolean =>
      node.pulls.take('i', { delivery_id, attempt, status_code: 200, detail: '', retry_after: null, body: '' });
    await node.send('n');
    const first = await pull();
    assert.ok(first !== undefined);
    if (!has_something_in_hand) handIn(first);
    for (let k = 0; k < 4; k++) await node.send('m');
    await node.clock.advance(20 * SECOND);
    if (has_something_in_hand) handIn(first);
    const seqs: number[] = [];
    for (let push = await pull(); push !== undefined; push = await pull()) {
      seqs.push(Number(push.push.headers['convoke-seq']));
      handIn(push);
    }
    return seqs;
  }

  test('and works at a push is not away, however long it pulls nothing more: it gets every message', async (t) => {
    assert.deepEqual(await seqsAfterPause(t, true), [1, 2, 3, 4]);
  });

  test('control: one that had nothing in hand was away', async (t) => {
    assert.deepEqual(await seqsAfterPause(t, false), [4]);
  });
});
