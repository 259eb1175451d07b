/**
 * Explain predicts correctly what a send does. The tests use random memberships, targets, senders, limits and machines,
 * in virtual time on the real engine, with both databases.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { explanationsOf } from '../../src/http/routes/explanation.ts';
import type { HandedOut, WaitingPull } from '../../src/delivery/transport/pull_transport.ts';
import { WAKES } from '../../src/domain/agents_to_notify.ts';
import type { MemberRules } from '../../src/domain/catch_up.ts';
import { AGENT_IDS_MAX } from '../../src/domain/id.ts';
import type { Instance, TransportName } from '../../src/domain/instance.ts';
import type { DeliveryRow } from '../../src/store/contract/deliveries.ts';
import type { Store } from '../../src/store/store.ts';
import { ENGINES } from '../support/engines.ts';
import { MINUTE, startNode, type TestNode } from '../support/node.ts';
import { newMessage, register } from '../support/store_contents.ts';

const AGENTS = ['a', 'b', 'é"'];
const INSTANCES = ['i0', 'i1', 'i2', 'i3'];
const SEED = 20_261_123;
/** How many random meetings are tested. There are fewer on PostgreSQL, whose calls take longer. */
const MEETINGS = { SQLite: 25, PostgreSQL: 12 };
/** How many random meetings are tested whose machines come and go. */
const WORLDS = { SQLite: 25, PostgreSQL: 5 };

const agents = fc.uniqueArray(fc.constantFrom(...AGENTS), { maxLength: 2 });
const message = fc.record({
  target_agents: fc.oneof(fc.constant(null), agents),
  from_agent: fc.option(fc.constantFrom(...AGENTS), { freq: 3 }),
});
type Message = (typeof message extends fc.Arbitrary<infer M> ? M : never) & { in_reply_to?: string | undefined };

/** The store, the clock and the limits that explain reads. */
type Service = Parameters<typeof explanationsOf>[0];

/** Reads all pages of an explanation. @param limit how many rows a page has */
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
      { numRuns: MEETINGS[engine.name], seed: SEED },
    );
    const all = ['inactive', 'is_sender', 'left', 'nobody_named', 'now', 'switched_off', 'wake'];
    assert.deepEqual([...received].toSorted(), all, 'every answer was given');
  });
}

/** A service without limits, whose clock stands still. */
function serviceOf(store: Store): Service {
  const clock = { now: () => 0, wall: () => 3 } as unknown as Service['clock'];
  return {
    store,
    clock,
    expiry: { ageOf: () => 0 },
    limits_of_meetings: { hop_limit: 0, pair_limit: 0, pair_window_s: 0 },
  };
}

type Limits = Service['limits_of_meetings'];
/** The limits of a meeting. For a limit that is null, the limit of the service applies. */
type OwnLimits = { [Name in keyof Limits]: number | null };

/** The limits of the service. */
const LIMITS: Limits = { hop_limit: 5, pair_limit: 2, pair_window_s: 40 };

interface GivenMachine extends MemberRules {
  agent_ids: string[];
  transport: TransportName;
  /** How long the machine takes to respond. */
  after_ms: number;
}

type Step =
  /** `answers`: how many messages before the newest one the answered message is; null when it answers none. */
  | { kind: 'send'; message: Message; answers: number | null }
  | { kind: 'wait'; ms: number }
  | { kind: 'pause'; paused: boolean }
  | { kind: 'machine'; of: number; is_up: boolean };

/** A random meeting: its members, its limits, and the steps that happen there. */
interface World {
  machines: GivenMachine[];
  limits: OwnLimits;
  steps: Step[];
}

/** Messages, most of them from an agent to everybody, so that pairs reach their limits. */
const talk = fc.record({
  target_agents: fc.oneof({ weight: 3, arbitrary: fc.constant(null) }, agents),
  from_agent: fc.constantFrom('a', 'a', 'a', 'b', 'b', null),
});
const sends = { message: talk, answers: fc.option(fc.nat({ max: 9 }), { freq: 2 }) };
const waits = { ms: fc.constantFrom(100, 2_500, 6_000, 12_000, 40_000) };
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('send'), ...sends }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('wait'), ...waits }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pause'), paused: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('machine'), of: fc.nat({ max: 3 }), is_up: fc.boolean() }) },
);
const machine: fc.Arbitrary<GivenMachine> = fc.record({
  agent_ids: fc.uniqueArray(fc.constantFrom(...AGENTS), { minLength: 1, maxLength: 2 }),
  transport: fc.constantFrom('webhook', 'pull'),
  wake: fc.constantFrom('all', 'all', ...WAKES),
  catch_up: fc.constantFrom('all', 'latest'),
  max_age_s: fc.constantFrom(0, 0, 8, 30),
  after_ms: fc.constantFrom(0, 0, 2_000),
});
const world: fc.Arbitrary<World> = fc.record({
  machines: fc.array(machine, { minLength: 4, maxLength: 4 }),
  limits: fc.record({
    hop_limit: fc.constantFrom(0, 0, 3, null),
    pair_limit: fc.constantFrom(0, 1, 3, null),
    pair_window_s: fc.constantFrom(15, null),
  }),
  steps: fc.array(step, { minLength: 25, maxLength: 25 }),
});

/** A machine that pulls, for the rule of ten seconds: deliveries are superseded only if one has waited that long. */
const puller: GivenMachine = {
  agent_ids: ['b'],
  transport: 'pull',
  wake: 'all',
  catch_up: 'latest',
  max_age_s: 0,
  after_ms: 0,
};
const says: Step = { kind: 'send', message: { target_agents: ['b'], from_agent: 'a' }, answers: null };
const wait = (ms: number): Step => ({ kind: 'wait', ms });
const turn = (is_up: boolean): Step => ({ kind: 'machine', of: 0, is_up });
const one_in_40_s = { hop_limit: 0, pair_limit: 1, pair_window_s: 40 };
/** The machine is back sooner than explain assumes, so the first message counts for the pair limit. */
const BACK_SOON: World = {
  machines: [puller],
  limits: one_in_40_s,
  steps: [turn(false), wait(12_000), says, wait(2_500), says, turn(true)],
};
/** The machine is away longer than explain assumes, so the first message does not count for the pair limit. */
const BACK_LATE: World = {
  machines: [puller],
  limits: one_in_40_s,
  steps: [turn(false), says, wait(2_500), says, wait(12_000), turn(true)],
};
/** The guard will stop the second message, so this message does not count for the third. */
const PAUSED: World = {
  machines: [{ ...puller, catch_up: 'all' }],
  limits: one_in_40_s,
  steps: [{ kind: 'pause', paused: true }, says, wait(25_000), says, wait(25_000), says],
};
const EXAMPLES = [BACK_SOON, BACK_LATE, PAUSED];

describe('with the guard, pauses, and machines that go away', () => {
  for (const engine of ENGINES) {
    test(`${engine.name}: what explain predicts for a message is what happens to it`, async (t) => {
      const node = await startNode(t, { store: await engine.open(t), settings: LIMITS });
      const seen = new Set<string>();
      let worlds = 0;
      await fc.assert(
        fc.asyncProperty(world, async (given) => {
          for (const each of await live(node, `m${worlds++}`, given)) seen.add(each);
        }),
        { numRuns: WORLDS[engine.name] + EXAMPLES.length, seed: SEED, examples: EXAMPLES.map((each) => [each]) },
      );
      const why = ['back_off', 'connection', 'hop_limit', 'is_sender', 'nobody_named', 'pair_limit', 'paused', 'wake'];
      const unseen = ['now', ...why, ...DIFFERS].filter((each) => !seen.has(each));
      if (engine.name === 'SQLite') assert.deepEqual(unseen, [], 'every answer was given');
    });
  }

  // The control: an explanation that ignores the guard differs from what happens.
  test('an explanation without the limits of the service is wrong', async (t) => {
    const node = await startNode(t, { settings: LIMITS });
    const there: GivenMachine = { ...puller, catch_up: 'all' };
    const given = {
      machines: [there],
      limits: { hop_limit: null, pair_limit: null, pair_window_s: null },
      steps: [says, says, says],
    };
    await live(node, 'm0', given);
    const off = { hop_limit: 0, pair_limit: 0, pair_window_s: 0 };
    await assert.rejects(live(node, 'm1', given, off), /explained/);
  });
});

test('explain counts the age of a waiting message as the rules do, also after the clock was set ahead', async (t) => {
  const node = await startNode(t, { settings: LIMITS });
  const { clock, store, expiry } = node;
  await node.register('i');
  await store.meetings.join('m', 'i', ['b'], clock.wall(), null, { max_age_s: 8 });
  await node.setMeeting('m', one_in_40_s);
  node.transport.answer('i', 'connect_refused');
  await node.send('m', { from_agent: 'a' });
  await clock.advance(NOTED_MS);
  const explained = async () => {
    const service = { store, clock, expiry, limits_of_meetings: LIMITS };
    return (await explanation(service, 'm', { target_agents: null, from_agent: 'a' })).get('i');
  };
  clock.stepWall(30_000);
  assert.equal((await explained())?.why, 'pair_limit', 'the first message is not too old, and counts');
  await clock.advance(9_000);
  assert.equal((await explained())?.why, 'back_off', 'now the rules leave it out');
});

describe('where much was said to long lists of agents', () => {
  const MEMBERS = 6;
  const MESSAGES = 120;
  const LONG = Array.from({ length: AGENT_IDS_MAX }, (_, i) => String(i).padStart(39, 'x'));

  /** A service that counts what its store reads. */
  async function talkative(store: Store) {
    for (let i = 0; i < MEMBERS; i++) {
      await register(store, `i${i}`);
      await store.meetings.join('m', `i${i}`, LONG, 1, null, { catch_up: 'latest' });
    }
    const said = { target_agents: null, origin: { from_agent: 'a', in_reply_to: null, speaks_for: null } };
    for (let k = 0; k < MESSAGES; k++) await store.messages.accept([newMessage('m', { ...said, wall_ms: k })]);
    const read = { calls: 0, chars: 0, at_a_time: 0, most_at_a_time: 0 };
    const ofAgentsBefore: Store['deliveries']['ofAgentsBefore'] = async (...asked) => {
      read.calls++;
      read.most_at_a_time = Math.max(read.most_at_a_time, ++read.at_a_time);
      const found = await store.deliveries.ofAgentsBefore(...asked);
      read.at_a_time--;
      for (const { target_agents } of found) read.chars += target_agents.length;
      return found;
    };
    const deliveries = Object.create(store.deliveries, {
      ofAgentsBefore: { value: ofAgentsBefore },
    }) as Store['deliveries'];
    const service = {
      ...serviceOf({ ...store, deliveries }),
      limits_of_meetings: { ...LIMITS, hop_limit: 0, pair_limit: 50 },
    };
    return { service, read };
  }

  for (const engine of ENGINES) {
    test(`${engine.name}: a request reads a limited number of bytes, and its page ends early; the next one continues`, async (t) => {
      const { service, read } = await talkative(await engine.open(t));
      const asked = { from_agent: 'a', limit: 100 };
      const first = await explanationsOf(service, 'm', asked);
      assert.ok(read.chars > 4 << 20 && read.chars <= 16 << 20, String(read.chars));
      const chars = read.chars;
      const second = await explanationsOf(service, 'm', { ...asked, cursor: first.next_cursor! });
      assert.ok(read.chars - chars <= 16 << 20);
      assert.equal(second.next_cursor, null);
      const rows = [...first.data, ...second.data];
      assert.deepEqual(
        rows.map((row) => [row.instance_id, row.why]),
        Array.from({ length: MEMBERS }, (_, i) => [`i${i}`, 'pair_limit']),
      );
      // Nothing is read of what other agents said.
      read.chars = 0;
      await explanationsOf(service, 'm', { ...asked, from_agent: 'b' });
      assert.equal(read.chars, 0);
    });
  }

  test('a page has as many lists of agents as every other page, with and without a sender', async (t) => {
    const store = await ENGINES[0]!.open(t);
    const service = { ...serviceOf(store), limits_of_meetings: { ...LIMITS, pair_limit: 50 } };
    const long_ids = Array.from({ length: 200 }, (_, i) => String(i).padStart(200, 'x'));
    for (let i = 0; i < 30; i++) {
      await register(store, `i${i}`);
      await store.meetings.join('m', `i${i}`, long_ids, 1, null, {});
    }
    for (const sender of [{}, { from_agent: 'a' }]) {
      const { data, next_cursor } = await explanationsOf(service, 'm', { ...sender, limit: 100 });
      const bytes = data.reduce((sum, { agent_ids }) => sum + JSON.stringify(agent_ids).length, 0);
      assert.ok(bytes > 400_000 && bytes < 700_000 && next_cursor !== null, `${bytes} bytes`);
    }
  });

  test('requests read one after the other, and nothing for a client that has left', async (t) => {
    const { service, read } = await talkative(await ENGINES[0]!.open(t));
    await Promise.all([1, 2, 3].map(() => explanationsOf(service, 'm', { from_agent: 'a' })));
    assert.equal(read.most_at_a_time, 1);
    read.calls = 0;
    await explanationsOf(service, 'm', { from_agent: 'a' }, () => false);
    assert.equal(read.calls, 0);
  });
});

/** The cases in which something else than the prediction happened, and explain had named it in `may_become`. */
const DIFFERS = [
  'delivered, became cancelled superseded',
  'delivered, became cancelled max_age',
  'delivered, became cancelled pair_limit',
  'cancelled pair_limit, became delivered',
];
/** The time after which the store shows that a machine pulls. */
const NOTED_MS = 100;

/**
 * A machine of an instance: a receiver that can be reached or not, or a program that pulls or not. It responds after
 * `after_ms`.
 */
class Machine {
  is_up = false;
  readonly has_rules: boolean;
  readonly #node: TestNode;
  readonly #row: Instance;
  readonly #after_ms: number;
  #waits: WaitingPull | null = null;

  constructor(node: TestNode, row: Instance, { after_ms, catch_up, max_age_s }: GivenMachine) {
    this.#node = node;
    this.#row = row;
    this.#after_ms = after_ms;
    this.has_rules = catch_up === 'latest' || max_age_s > 0;
  }

  /** Whether the machine responds at once. */
  get isQuick(): boolean {
    return this.is_up && this.#after_ms === 0;
  }

  turn(is_up: boolean): void {
    if (this.is_up === is_up) return;
    this.is_up = is_up;
    const { instance_id, transport } = this.#row;
    if (transport === 'webhook') {
      const after_ms = this.#after_ms;
      this.#node.transport.answer(instance_id, () => (this.is_up ? { says: 200, after_ms } : 'connect_refused'));
    } else if (is_up) this.#pull();
    else if (this.#waits !== null) this.#node.pulls.cancel(this.#waits);
  }

  #pull(): void {
    const { instance_id, updated_at } = this.#row;
    const { pulls, clock } = this.#node;
    this.#waits = pulls.pull({
      instance_id,
      pull_id: null,
      permit: { owner_scope: null, owner_key_id: null, updated_at, as_of: pulls.changes },
      max: 32,
      wait_ms: 30_000,
      address: null,
      client: null,
      standing: { revocationReason: () => null },
      onEnd: (end) => {
        this.#waits = null;
        assert.ok('pushes' in end);
        for (const push of end.pushes) clock.after(this.#after_ms, () => this.#report(push));
        if (this.is_up) this.#pull();
      },
    });
  }

  /** Reports the result of a push, unless the machine has gone away since it got the push. */
  #report({ delivery_id, attempt }: HandedOut): void {
    if (!this.is_up) return;
    const result = { delivery_id, attempt, status_code: 200, detail: '', retry_after: null, body: '' };
    this.#node.pulls.take(this.#row.instance_id, result);
  }
}

/** A message that was explained for an instance and then sent. */
interface Check {
  delivery_id: string;
  what: string;
  may_become: string[];
  told: string;
}

/**
 * Makes the steps of a world in a new meeting, and explains each message before it is sent.
 *
 * @param limits_of_meetings the limits of the service that explain gets
 * @returns what explain predicted, and what happened to messages for which it named several possibilities
 */
async function live(
  node: TestNode,
  meeting_id: string,
  { machines, limits, steps }: World,
  limits_of_meetings: Limits = LIMITS,
): Promise<Set<string>> {
  const { clock, store, expiry } = node;
  const at = new Map<string, Machine>();
  for (const [k, given] of machines.entries()) {
    const { agent_ids, transport, wake, catch_up, max_age_s } = given;
    const rules = { wake, catch_up, max_age_s };
    const instance_id = `${meeting_id}-i${k}`;
    const machine = new Machine(node, await node.register(instance_id, { transport }), given);
    machine.turn(true);
    at.set(instance_id, machine);
    await store.meetings.join(meeting_id, instance_id, agent_ids, clock.wall(), null, rules);
  }
  await node.setMeeting(meeting_id, limits);
  await clock.advance(NOTED_MS);
  const service = { store, clock, expiry, limits_of_meetings };
  const seen = new Set<string>();
  const sent: string[] = [];
  const checks: Check[] = [];
  for (const each of steps) {
    if (each.kind === 'wait') await clock.advance(each.ms);
    else if (each.kind === 'pause') await node.setMeeting(meeting_id, { paused: each.paused });
    else if (each.kind === 'machine') {
      at.get(`${meeting_id}-i${each.of}`)?.turn(each.is_up);
      await clock.advance(NOTED_MS);
    } else {
      const in_reply_to = each.answers === null ? undefined : sent.at(-1 - each.answers);
      const rows = await explanation(service, meeting_id, { ...each.message, in_reply_to }, machines.length);
      const { target_agents, from_agent } = each.message;
      const { message_id } = await node.send(meeting_id, {
        ...(target_agents && { target_agents }),
        ...(from_agent !== null && { from_agent }),
        ...(in_reply_to !== undefined && { in_reply_to }),
      });
      sent.push(message_id);
      const deliveriesNow = async (): Promise<Map<string, DeliveryRow>> =>
        new Map((await node.deliveries({ message_id })).map((row) => [row.instance_id, row]));
      // Reads the deliveries before the time moves, because a machine may count as connected until then.
      const at_first = await deliveriesNow();
      await clock.advance(50);
      const deliveries = await deliveriesNow();
      for (const [instance_id, { pushed, why, target_agents: named, may_become = [] }] of rows) {
        seen.add(why ?? pushed);
        const row = deliveries.get(instance_id);
        assert.deepEqual(row?.target_agents ?? [], named, `explained ${instance_id}: ${pushed} ${why}`);
        if (row === undefined) continue;
        const machine = at.get(instance_id)!;
        if (!machine.has_rules) assert.deepEqual(may_become, [], 'nothing is left out');
        const waits_for = at_first.get(instance_id)?.waiting_for ?? null;
        if (pushed === 'later') assert.equal(row.waiting_for, why, `explained later: ${why}`);
        if (pushed === 'now')
          assert.ok(waits_for !== 'paused' && waits_for !== 'connection', `explained now: ${waits_for}`);
        if (pushed === 'now' && machine.isQuick && row.state === 'pending') {
          const waiting = await store.deliveries.list({ instance_id, state: 'pending', limit: 2 }, clock.now());
          assert.ok(waiting.data.length > 1, 'explained now: it waits only for those before it');
        }
        checks.push({
          delivery_id: row.delivery_id,
          what: pushed === 'no' ? `cancelled ${why}` : 'delivered',
          may_become: may_become.map((reason) => (reason === 'pushed' ? 'delivered' : `cancelled ${reason}`)),
          told: `explained ${pushed} ${why} for ${instance_id}`,
        });
      }
    }
  }
  await node.setMeeting(meeting_id, { paused: false });
  for (const machine of at.values()) machine.turn(true);
  for (let k = 0; k < 60 && (await store.deliveries.countPending()) > 0; k++) await clock.advance(MINUTE / 2);
  const rows = new Map((await node.deliveries({ meeting_id })).map((row) => [row.delivery_id, row]));
  for (const { delivery_id, what, may_become, told } of checks) {
    const { state, reason } = rows.get(delivery_id)!;
    const became = reason === null ? state : `${state} ${reason}`;
    if (became === what) continue;
    assert.ok(may_become.includes(became), `${told}: it became ${became}`);
    seen.add(`${what}, became ${became}`);
  }
  return seen;
}
