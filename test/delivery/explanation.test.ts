/**
 * What explain predicts is what a send then does: over random memberships, targets, senders, limits and machines, in
 * virtual time on the real engine, and on both stores.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import fc from 'fast-check';
import { explanationsOf } from '../../src/http/routes/explanation.ts';
import { WAKES } from '../../src/domain/agents_to_notify.ts';
import type { Store } from '../../src/store/store.ts';
import type { GivenRules } from '../../src/store/contract/meetings.ts';
import { ENGINES } from '../support/engines.ts';
import { MINUTE, startNode, type TestNode } from '../support/node.ts';
import { newMessage, register } from '../support/store_contents.ts';

const AGENTS = ['a', 'b', 'é"'];
const INSTANCES = ['i0', 'i1', 'i2', 'i3'];
const SEED = 20_261_123;

const agents = fc.uniqueArray(fc.constantFrom(...AGENTS), { maxLength: 2 });
const message = fc.record({
  target_agents: fc.oneof(fc.constant(null), agents),
  from_agent: fc.option(fc.constantFrom(...AGENTS), { freq: 3 }),
});
type Message = (typeof message extends fc.Arbitrary<infer M> ? M : never) & { in_reply_to?: string | undefined };

/** The store, the clock and the limits that explain reads. */
type Service = Parameters<typeof explanationsOf>[0];

async function explanation(service: Service, meeting_id: string, message: Message, limit = 2) {
  const { target_agents, from_agent, in_reply_to } = message;
  const rows = [];
  for (let cursor: string | null | undefined; cursor !== null;) {
    const page = await explanationsOf(service, meeting_id, {
      ...(target_agents && { target_agents }),
      ...(from_agent !== null && { from_agent }),
      ...(in_reply_to !== undefined && { in_reply_to }),
      ...(cursor && { cursor }),
      limit,
    });
    rows.push(...page.data);
    cursor = page.next_cursor;
  }
  return new Map(rows.map((row) => [row.instance_id, row]));
}

const member = fc.record({
  agent_ids: agents,
  wake: fc.constantFrom('all', 'all', ...WAKES),
  joins: fc.constantFrom(true, true, true, false),
  leaves: fc.constantFrom(false, false, false, true),
  is_active: fc.constantFrom(true, true, false),
  webhook_enabled: fc.constantFrom(true, true, false),
});

for (const engine of ENGINES) {
  test(`${engine.name}: the agents that explain names are those that get a delivery`, async (t) => {
    const store = await engine.open(t);
    for (const instance_id of INSTANCES) await register(store, instance_id);
    let meetings = 0;
    const received = new Set<string>();
    await fc.assert(
      fc.asyncProperty(
        fc.array(member, { minLength: INSTANCES.length, maxLength: INSTANCES.length }),
        fc.array(message, { minLength: 4, maxLength: 4 }),
        async (members, sends) => {
          const meeting_id = `m${meetings++}`;
          for (const [i, { agent_ids, wake, joins, leaves, ...flags }] of members.entries()) {
            const instance_id = INSTANCES[i]!;
            await store.instances.patch(instance_id, flags, 1);
            if (joins) await store.meetings.join(meeting_id, instance_id, agent_ids, 1, null, { wake });
            if (joins && leaves) await store.meetings.leave(meeting_id, instance_id, 2);
          }
          const service = serviceOf(store);
          for (const send of sends) {
            const { from_agent, target_agents } = send;
            const origin = from_agent === null ? null : { from_agent, in_reply_to: null, speaks_for: null };
            const [accepted] = await store.messages.accept([newMessage(meeting_id, { target_agents, origin })]);
            assert.ok(accepted?.kind === 'accepted');
            const expected = new Map(
              accepted.deliveries.map((row) => [row.instance_id, JSON.parse(row.target_agents) as string[]]),
            );
            for (const [instance_id, row] of await explanation(service, meeting_id, send)) {
              assert.deepEqual(row.target_agents, expected.get(instance_id) ?? [], JSON.stringify(row));
              assert.equal(row.pushed === 'no', row.target_agents.length === 0);
              received.add(row.why ?? row.pushed);
              expected.delete(instance_id);
            }
            assert.equal(expected.size, 0, 'nobody else gets it');
          }
        },
      ),
      { numRuns: 25, seed: SEED },
    );
    const all = ['inactive', 'is_sender', 'left', 'nobody_named', 'now', 'switched_off', 'wake'];
    assert.deepEqual([...received].toSorted(), all, 'every answer was given');
  });
}

/** A service whose clock stands still, without limits. */
function serviceOf(store: Store): Service {
  const clock = { now: () => 0, wall: () => 3 } as unknown as Service['clock'];
  return { store, clock, limits_of_meetings: { hop_limit: 0, pair_limit: 0, pair_window_s: 0 } };
}

type Step =
  /** `answers`: how many messages before the newest is the one that it answers; null when it names none. */
  | { kind: 'send'; message: Message; answers: number | null }
  | { kind: 'wait'; ms: number }
  | { kind: 'pause'; paused: boolean }
  | { kind: 'machine'; instance_id: string; is_up: boolean };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant('send' as const), message, answers: fc.option(fc.nat({ max: 9 })) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.constantFrom(100, 5_000, 40_000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pause' as const), paused: fc.boolean() }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('machine' as const),
      instance_id: fc.constantFrom('i0', 'i1', 'i3'),
      is_up: fc.boolean(),
    }),
  },
);

describe('with the guard, pauses and machines that go away', () => {
  const LIMITS = { hop_limit: 5, pair_limit: 3, pair_window_s: 20 };

  test('what explain predicts for a message is what happens to it', async (t) => {
    const received = new Set<string>();
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 30, maxLength: 30 }), async (steps) => {
        const checked = await run(t, steps, LIMITS);
        for (const each of checked) received.add(each);
      }),
      { numRuns: 20, seed: SEED },
    );
    const why = ['back_off', 'hop_limit', 'is_sender', 'nobody_named', 'now', 'pair_limit', 'paused', 'wake'];
    const all = ['cancelled max_age', 'cancelled superseded', ...why].toSorted();
    assert.deepEqual([...received].toSorted(), all, 'every answer was given');
  });

  // Control: the compared result depends on the guard.
  test('an explanation without the limits of the meeting is wrong', async (t) => {
    const talk: Step = { kind: 'send', message: { target_agents: ['b'], from_agent: 'a' }, answers: null };
    const off = { hop_limit: 0, pair_limit: 0, pair_window_s: 0 };
    await assert.rejects(run(t, [talk, talk, talk, talk, talk], LIMITS, off), /explained/);
  });
});

type Limits = Service['limits_of_meetings'];

/** @returns what explain predicted */
async function run(t: TestContext, steps: Step[], limits: Limits, explained: Limits = limits): Promise<Set<string>> {
  const node = await startNode(t, { settings: limits });
  const members: [string, string[], GivenRules][] = [
    ['i0', ['a'], { catch_up: 'latest' }],
    ['i1', ['b', 'a'], {}],
    ['i2', ['é"'], { wake: 'people' }],
    ['i3', ['b'], { max_age_s: 30 }],
  ];
  for (const [instance_id, agent_ids, rules] of members) {
    await node.register(instance_id);
    await node.store.meetings.join('m', instance_id, agent_ids, node.clock.wall(), null, rules);
  }
  const service = { store: node.store, clock: node.clock, limits_of_meetings: explained };
  const seen = new Set<string>();
  const sent: string[] = [];
  /** What explain predicted for each delivery, until all of them ended. */
  const checks: { delivery_id: string; instance_id: string; what: string; may_become: string[] }[] = [];
  for (const each of steps) {
    if (each.kind === 'wait') await node.clock.advance(each.ms);
    else if (each.kind === 'pause') await node.setMeeting('m', { paused: each.paused });
    else if (each.kind === 'machine') node.transport.answer(each.instance_id, each.is_up ? 200 : 'connect_refused');
    else {
      const in_reply_to = each.answers === null ? undefined : sent.at(-1 - each.answers);
      const rows = await explanation(service, 'm', { ...each.message, in_reply_to });
      const { target_agents, from_agent } = each.message;
      const { message_id } = await node.send('m', {
        ...(target_agents && { target_agents }),
        ...(from_agent !== null && { from_agent }),
        ...(in_reply_to !== undefined && { in_reply_to }),
      });
      sent.push(message_id);
      await node.clock.advance(50);
      const deliveries = new Map((await node.deliveries({ message_id })).map((row) => [row.instance_id, row]));
      for (const [instance_id, { pushed, why, target_agents: named, may_become = [] }] of rows) {
        seen.add(why ?? pushed);
        const row = deliveries.get(instance_id);
        assert.deepEqual(row?.target_agents ?? [], named, `explained ${instance_id}: ${pushed} ${why}`);
        if (row === undefined) continue;
        if (pushed === 'later') assert.equal(row.waiting_for, why, `explained later: ${why}`);
        checks.push({
          delivery_id: row.delivery_id,
          instance_id,
          what: pushed === 'no' ? `cancelled ${why}` : 'delivered',
          may_become: may_become.map((reason) => `cancelled ${reason}`),
        });
      }
    }
  }
  await end(node);
  /** The instances of which a delivery that waited was cancelled by a rule of its membership. */
  const counted_too_much = new Set<string>();
  for (const { delivery_id, instance_id, what, may_become } of checks) {
    const row = await node.store.deliveries.get(delivery_id, node.clock.now());
    const became = [row?.state, row?.reason].filter(Boolean).join(' ');
    if (what === 'cancelled pair_limit' && counted_too_much.has(instance_id)) continue;
    if (may_become.includes(became)) {
      seen.add(became);
      counted_too_much.add(instance_id);
    } else assert.equal(became, what, `explained ${what}`);
  }
  return seen;
}

async function end(node: TestNode): Promise<void> {
  await node.setMeeting('m', { paused: false });
  for (const instance_id of INSTANCES) node.transport.answer(instance_id, 200);
  await node.clock.advance(30 * MINUTE);
}
