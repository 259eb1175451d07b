/**
 * A log of random commands on a store. It is plain data, so tests can repeat it on another database, and shorten it.
 */
import fc from 'fast-check';
import type { OwnerScope } from '../../src/domain/access.ts';
import { WAKES } from '../../src/domain/agents_to_notify.ts';
import { CATCH_UPS } from '../../src/domain/catch_up.ts';
import { AUDIT_ACTIONS, type AuditSubject } from '../../src/domain/audit.ts';
import type { Hold } from '../../src/domain/clock_hold.ts';
import { HEALTH } from '../../src/domain/instance.ts';
import { sessionIdOf } from '../../src/domain/session.ts';
import type { NewMessage } from '../../src/store/contract/messages.ts';
import type { AuditedStore, Store } from '../../src/store/store.ts';
import type {
  DeliverySettlement,
  EndedInLane,
  ExpiryPlace,
  LaneKey,
  PendingAside,
  QueuedDelivery,
  Recovery,
} from '../../src/store/contract/deliveries.ts';
import { Problem } from '../../src/domain/problem.ts';
import { SECRET } from './node.ts';

/** A trace that a message may belong to. */
export const TRACE = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

/** Ids for which databases may differ in sorting, comparing, quoting and matching. */
const INSTANCE_IDS = ['a', 'A', 'é', '\u{1F600}', "o'%_\\", '\uffee"{},'];
const MEETING_IDS = ['m', 'M', ' ', '\u{1F600}\\n', '100%'];
const AGENT_LISTS = [['a'], ['a', 'b', '"c"'], [], ['\u{1F600}', 'é\\', 'a'], ['null', '{}']];
const KEY_IDS = ['000000000001', '000000000002'];
const IDEMPOTENCY_KEYS = ['k', 'K', "k'\\", '\u00e9'];
const MESSAGES = [
  '{}',
  '{"t":"\\u0000\\ud800\\udfff"}',
  '{ "z":1, "a":1e400, "a":12345678901234567890 }',
  '{"\\ud83d":"\u{1F600}\uffff\u2028","q":"\\\\\\"{},NULL"}',
  `{"long":"${'é'.repeat(3_000)}"}`,
];
const TIMESTAMPS = ['', '2026-01-01T00:00:00Z', '\u0000', 'a\u0000b', '12345678901234567890', '"\\\u{1F600}'];
const QUERIES = ['a', 'É', '%', '_', '\\', 'NAME', "'", ''];
const STATES = ['pending', 'delivered', 'failed', 'cancelled'] as const;

const FIRST_WALL = Date.UTC(2026, 0, 1);

/** A command: its name, and the random numbers and text from which its arguments are made. */
export type Command = [name: CommandName, numbers: number[], text: string];

/** The ids and cursors that the results of one database contained. */
class Known {
  readonly delivery_ids: string[] = ['dlv_unknown'];
  readonly message_ids: string[] = ['msg_unknown'];
  readonly cursors: (string | undefined)[] = [undefined];
  /**
   * Names that replace ids and cursors in results. They are numbered in the order in which the ids and cursors were
   * first seen, which is the same for every database.
   */
  readonly #names = new Map<string, string>();

  /** A result in which names replace ids and cursors, because each database chooses its own numbers for these. */
  named(answer: unknown): unknown {
    if (answer === undefined) return null;
    const text = JSON.stringify(answer, (field, value: unknown) => {
      if (field === 'run_from') return undefined;
      if (typeof value !== 'string') return value;
      if (field === 'next_cursor') return this.#nameOf('cursor', value, this.cursors);
      if (/^dlv_[0-9a-z]{19}$/.test(value)) return this.#nameOf('delivery', value, this.delivery_ids);
      if (/^msg_[0-9a-z]{19}$/.test(value)) return this.#nameOf('message', value, this.message_ids);
      return value;
    });
    return JSON.parse(text) as unknown;
  }

  #nameOf(kind: string, value: string, seen: (string | undefined)[]): string {
    let name = this.#names.get(value);
    if (name === undefined) {
      this.#names.set(value, (name = `${kind} ${this.#names.size}`));
      seen.push(value);
    }
    return name;
  }
}

/** Runs one log of commands on one store. */
export class CommandLog {
  readonly #store: Store;
  readonly #known = new Known();
  #wall = FIRST_WALL;
  #made = 0;

  constructor(store: Store) {
    this.#store = store;
  }

  /** The result of a command, which must be the same on every engine. */
  async run([name, numbers, text]: Command): Promise<unknown> {
    // Now and then somebody sets the clock back.
    this.#wall += [0, 1, 1_000, 3_600_000, -1_000][numbers[7]! % 5]!;
    const draw = drawOf(this.#known, numbers, text, this.#wall, String(++this.#made));
    try {
      return this.#known.named(await COMMANDS[name](this.#store, draw));
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      // Each database has its own codes for failures of the storage.
      return error instanceof Problem ? { code, message } : { failed: String(error) };
    }
  }
}

function drawOf(known: Known, numbers: number[], text: string, wall: number, unique: string) {
  const pick = <T>(i: number, from: readonly T[]): T => from[numbers[i]! % from.length]!;
  const flag = (i: number, bit = 0): boolean => ((numbers[i]! >> bit) & 1) === 1;
  const owner = pick(3, [null, null, null, ...KEY_IDS]);
  const owner_scope: OwnerScope | null =
    owner === null ? null : { key_id: owner, instance_id: pick(4, [null, null, ...INSTANCE_IDS]) };
  const meeting_ids = MEETING_IDS.filter((_, i) => flag(6, i));
  return {
    instance_id: pick(0, INSTANCE_IDS),
    meeting_id: pick(1, MEETING_IDS),
    agent_ids: pick(2, AGENT_LISTS),
    limit: 1 + (numbers[2]! % 4),
    wall,
    now: wall + 5,
    owner,
    owner_scope,
    visibility: flag(5) ? { owner_scope, meeting_ids } : null,
    text,
    unique,
    pick,
    flag,
    delivery_id: pick(6, known.delivery_ids),
    message_id: pick(6, known.message_ids),
    cursor: pick(5, known.cursors),
  };
}

type Draw = ReturnType<typeof drawOf>;

const COMMANDS = {
  register: (store, d) =>
    audited(store, d).instances.register(
      {
        instance_id: d.instance_id,
        instance_name: `Name ${d.text}`,
        agent_ids: d.agent_ids,
        webhook_url: `http://${d.pick(4, ['one', 'two'])}.test/`,
        webhook_headers: d.flag(5) ? { 'x-a': d.text } : undefined,
        webhook_secret: d.flag(5, 1) ? `${SECRET}${d.pick(6, ['', '1'])}` : undefined,
        new_secret: SECRET,
        success_statuses: d.flag(5, 2) ? '2xx' : undefined,
        transport: d.pick(7, [undefined, 'webhook', 'pull'] as const),
        ack_timeout_s: d.pick(2, [undefined, 1, 600]),
        timeout_s: d.pick(2, [undefined, 1, 600]),
        runtime: d.pick(4, [undefined, null, { name: 'openai', options: { model: 'llama3.2' } }]),
        replies: d.flag(3, 2) ? d.flag(4, 2) : undefined,
        owner_key_id: d.owner,
      },
      d.wall,
      d.flag(6) ? null : d.owner_scope,
    ),
  join: (store, d) =>
    audited(store, d).meetings.join(d.meeting_id, d.instance_id, d.agent_ids, d.wall, rarely(d), {
      wake: d.pick(6, [undefined, undefined, ...WAKES]),
      catch_up: d.pick(5, [undefined, undefined, ...CATCH_UPS]),
      max_age_s: d.pick(3, [undefined, undefined, 0, 600]),
    }),
  changeMembership: (store, d) =>
    audited(store, d).meetings.changeMembership(
      d.meeting_id,
      d.instance_id,
      {
        agent_ids: d.flag(1, 1) ? d.agent_ids : undefined,
        wake: d.pick(6, [undefined, ...WAKES]),
        catch_up: d.pick(5, [undefined, ...CATCH_UPS]),
        max_age_s: d.pick(3, [undefined, 0, 600]),
      },
      rarely(d),
    ),
  accept: (store, d) =>
    store.messages.accept(
      Array.from({ length: d.limit }, (_, k) => ({
        meeting_id: d.flag(3, k) ? d.meeting_id : MEETING_IDS[k]!,
        ...withTimestamp(d.flag(4, k) ? d.text : MESSAGES[(k + d.limit) % MESSAGES.length]!, d.pick(5, TIMESTAMPS)),
        target_agents: d.flag(6, k) ? d.pick(0, [[], ['a'], ['b', 'nobody', '"c"'], ['nobody']]) : null,
        origin: originIn(d, k),
        trace: d.pick(3, [null, null, TRACE, `${TRACE} a=1`]),
        idempotency: d.flag(7, k)
          ? {
              key: IDEMPOTENCY_KEYS[k % 2]!,
              sender: d.pick(k, ['', 'one', 'two']),
              fingerprint: JSON.stringify([d.pick(1, ['x', 'y']), originIn(d, k)]),
            }
          : null,
        wall_ms: d.wall,
        expires_at: d.wall + d.pick(2, [1_000, 86_400_000]),
      })),
    ),
  settle: async (store, d) => {
    const { instance_id, meeting_id, now, wall } = d;
    const [in_lane = []] = await store.deliveries.loadLanes([
      { instance_id, meeting_id, after_seq: 0, limit: d.limit },
    ]);
    const beside = await store.deliveries.loadAside(instance_id, now, d.limit);
    const state = d.pick(3, ['pending', 'delivered', 'failed'] as const);
    const settlementOf = (row: QueuedDelivery): DeliverySettlement => ({
      delivery_id: row.delivery_id,
      expires_at: row.expires_at + (d.flag(4) && d.flag(4, 1) ? 1 : 0),
      state,
      reason: state === 'failed' ? 'exhausted' : null,
      attempt_count: row.attempt_count + 1,
      answered_badly: row.answered_badly + 1,
      attempts: JSON.stringify([
        ...row.attempts,
        { attempt: row.attempt_count + 1, detail: d.text, excerpt: '\u0000\ud800' },
      ]),
      next_attempt_at: state === 'pending' ? (d.flag(5) ? now + 500 : d.flag(5, 1) ? now : null) : null,
      aside: state === 'pending' && d.flag(5),
      settled_at: state === 'pending' ? null : wall,
      epoch: 0,
    });
    const row = d.flag(6) ? await store.instances.get(instance_id) : null;
    const read = [...in_lane, ...beside.deliveries];
    // Some settlements come twice: a settlement of a settled delivery must have no effect.
    const settlements = [...read, ...read.slice(0, d.limit - 1)].map(settlementOf);
    await store.deliveries.settle(settlements, [
      {
        instance_id,
        webhook_url: `http://${d.pick(7, ['one', 'two'])}.test/`,
        consecutive_failures: d.pick(6, [0, 1, 4, 5, 9]),
        health_since: d.flag(6, 1) ? wall : null,
        last_success_at: d.flag(7) ? wall : null,
        last_failure: d.flag(7, 1)
          ? { at: '', outcome: 'gone', status_code: null, detail: `${d.text}\u0000\ud800` }
          : null,
        backoff_step: d.limit,
        backoff_until: now + 1_000,
        gone_as_of: row?.updated_at ?? null,
        epoch: 0,
      },
    ]);
    return { in_lane, beside };
  },
  leave: (store, d) => audited(store, d).meetings.leave(d.meeting_id, d.instance_id, d.wall, rarely(d)),
  patch: (store, d) =>
    audited(store, d).instances.patch(
      d.instance_id,
      {
        instance_name: d.flag(1) ? d.text : undefined,
        agent_ids: d.flag(1, 1) ? d.agent_ids : undefined,
        webhook_url: d.pick(7, [undefined, undefined, 'http://one.test/', 'http://one.test/b', 'http://two.test/']),
        is_active: d.flag(2) ? d.flag(2, 1) : undefined,
        webhook_enabled: d.flag(5) ? d.flag(5, 1) : undefined,
        webhook_headers: d.flag(6) ? { y: d.text } : undefined,
        success_statuses: d.flag(6, 1) ? '200' : undefined,
        ack_timeout_s: d.pick(4, [undefined, 5]),
        timeout_s: d.pick(4, [undefined, 7]),
        replies: d.flag(3, 2) ? d.flag(4, 2) : undefined,
        owner_key_id: d.flag(6, 2) ? d.owner : undefined,
      },
      d.wall,
      rarely(d),
    ),
  noteConnections: (store, d) =>
    store.instances.noteConnections(
      INSTANCE_IDS.slice(0, d.limit).map((instance_id, k) => ({
        instance_id,
        connection: d.flag(3, k) ? { since: d.wall, address: d.pick(4, [null, '192.0.2.7']), client: d.text } : null,
        epoch: 0,
      })),
    ),
  'set meeting': (store, d) =>
    audited(store, d).meetings.patch(
      d.meeting_id,
      {
        paused: d.flag(2) ? d.flag(2, 1) : undefined,
        hop_limit: d.flag(3) ? d.pick(3, [null, 0, 16]) : undefined,
        pair_limit: d.flag(4) ? d.pick(4, [null, 0, 20]) : undefined,
        pair_window_s: d.flag(5) ? d.pick(5, [null, 0, 60]) : undefined,
      },
      d.wall,
    ),
  'get meeting': async (store, d) => [
    await store.meetings.get(d.meeting_id),
    await store.meetings.settings(d.meeting_id),
    await store.meetings.allSettings(d.flag(2) ? d.meeting_id : null, d.limit),
  ],
  ofAgentsBefore: async (store, d) => {
    const { instance_id, meeting_id } = d;
    const [page = []] = await store.deliveries.loadLanes([{ instance_id, meeting_id, after_seq: d.limit, limit: 10 }]);
    const last = page.at(-1);
    if (last === undefined) return null;
    const before = d.flag(4) ? { ...last, delivery_id: null } : last;
    const from_agent = d.flag(5) ? d.pick(5, ['a', 'b']) : null;
    const limits = { rows_max: 100, bytes_max: d.pick(6, [0, 12, 1e6]), from_agent };
    return store.deliveries.ofAgentsBefore(before, d.wall - d.pick(3, [0, 5_000, 1e9]), limits);
  },
  rulesAtHead: async (store, d) => {
    const { instance_id, meeting_id } = d;
    const [page = []] = await store.deliveries.loadLanes([
      { instance_id, meeting_id, after_seq: d.limit - 1, limit: 1 },
    ]);
    const [head] = page;
    if (head === undefined) return null;
    const at = { known_since_ms: d.wall - d.pick(3, [0, 5_000, 1e9]), rows_max: d.pick(2, [2, 100]) };
    return store.deliveries.rulesAtHead(head, at);
  },
  drop: async (store, d) => {
    const up_to = d.flag(6) ? await store.messages.last() : d.message_id;
    const of = { ...(d.flag(2) && { instance_id: d.instance_id }), up_to };
    const waiting = d.flag(2) && d.flag(2, 1) ? of : { ...of, meeting_id: d.meeting_id };
    const counted = await store.deliveries.countWaiting(waiting, d.limit, rarely(d));
    const steps: EndedInLane[][] = [];
    do steps.push(await audited(store, d).deliveries.drop(waiting, 1_000, d.wall, rarely(d)));
    while (steps.at(-1)!.length > 0);
    return [counted, ...steps];
  },
  heartbeat: (store, d) => store.instances.heartbeat(d.instance_id, d.wall, rarely(d)),
  rotateSecret: (store, d) =>
    audited(store, d).instances.rotateSecret(d.instance_id, `${SECRET}${d.unique}`, overlapOf(d), d.wall, rarely(d)),
  remove: async (store, d) => {
    const steps = [];
    do steps.push(await audited(store, d).instances.remove(d.instance_id, d.limit, d.wall, rarely(d)));
    while (steps.at(-1)?.done === false);
    return steps;
  },
  'get instance': (store, d) => store.instances.get(d.instance_id, d.visibility),
  load: async (store, d) => (await store.instances.load([d.instance_id, 'nobody', INSTANCE_IDS[0]!])).toSorted(byId),
  'list instances': (store, d) =>
    store.instances.list(
      {
        limit: d.limit,
        ...(d.flag(0) && { cursor: d.cursor }),
        ...(d.flag(1) && { meeting_id: d.meeting_id }),
        ...(d.flag(3) && { agent_id: d.pick(4, ['a', '"c"', 'é\\', 'null']) }),
        ...(d.flag(4) && { is_active: d.flag(4, 1) }),
        ...(d.flag(5) && { paused: d.flag(5, 1) }),
        ...(d.flag(6) && { health: d.pick(7, HEALTH) }),
        ...(d.flag(7) && { q: d.pick(0, QUERIES) }),
      },
      d.visibility,
    ),
  'find instance': (store, d) => store.instances.find(d.instance_id, d.visibility),
  'list ids': (store, d) =>
    store.instances.listIds(
      d.flag(1) ? d.instance_id : null,
      d.limit,
      d.visibility ?? { owner_scope: null, meeting_ids: [d.meeting_id] },
    ),
  'count instances': (store, d) => store.instances.count(d.flag(1) ? d.instance_id : null, d.limit, d.visibility),
  webhookUrls: (store, d) => store.instances.webhookUrls(d.flag(1) ? d.instance_id : null, d.limit),
  'list meetings': (store, d) =>
    store.meetings.list(
      {
        limit: d.limit,
        ...(d.flag(0) && { cursor: d.cursor }),
        ...(d.flag(7) && { q: d.pick(1, QUERIES) }),
        ...(d.flag(3) && { instance_id: d.instance_id, include_left: d.flag(5) }),
      },
      d.visibility,
    ),
  members: (store, d) =>
    store.meetings.instances(d.meeting_id, {
      limit: d.limit,
      include_left: d.flag(3),
      ...(d.flag(4) && { cursor: d.cursor }),
    }),
  candidates: (store, d) =>
    store.meetings.candidates(d.meeting_id, { limit: d.limit, ...(d.flag(4) && { cursor: d.cursor }) }, d.now),
  'list messages': (store, d) =>
    store.messages.list(d.meeting_id, {
      limit: d.limit,
      chars_max: d.pick(3, [1, 40, 4_000, 1e9]),
      ...(d.flag(4) && { after_seq: d.limit }),
      ...(d.flag(5) && { before_seq: 3 * d.limit }),
    }),
  trace: async (store, d) => {
    const found = await store.messages.get(d.message_id);
    const meeting_id = found?.meeting_id ?? d.meeting_id;
    return [
      found,
      await store.messages.answeredBy(d.message_id, d.limit),
      await store.messages.answersTo(d.message_id, meeting_id, d.flag(2) ? d.limit : 0, 2 * d.limit),
    ];
  },
  'last message': (store) => store.messages.last(),
  since: (store, d) =>
    store.messages.since(d.flag(0) ? d.message_id : null, {
      scan: d.pick(4, [3, 1_000]) * d.limit,
      limit: 2 * d.limit,
      chars_max: d.pick(3, [1, 40, 4_000, 1e9]),
      ...(d.flag(1) && { meeting_ids: [d.meeting_id, MEETING_IDS[0]!] }),
      ...(d.flag(2) && { instance_id: d.instance_id }),
    }),
  loadLanes: (store, d) =>
    store.deliveries.loadLanes(
      MEETING_IDS.map((meeting_id) => ({
        instance_id: d.instance_id,
        meeting_id,
        after_seq: d.limit - 1,
        limit: d.limit,
      })),
    ),
  loadAside: (store, d) => store.deliveries.loadAside(d.instance_id, d.now + d.pick(3, [0, 400, 86_400_000]), d.limit),
  pendingLanes: async (store, d) => {
    const lanes: LaneKey[] = [];
    for (let page: LaneKey[] | null = null; page === null || page.length === d.limit;) {
      page = await store.deliveries.pendingLanes(lanes.at(-1) ?? null, d.limit);
      lanes.push(...page);
    }
    return lanes.map((lane) => JSON.stringify(lane)).toSorted();
  },
  pendingAside: async (store, d) => {
    const found: PendingAside[] = [];
    for (let page: PendingAside[] | null = null; page === null || page.length === d.limit;) {
      page = await store.deliveries.pendingAside(found.at(-1)?.instance_id ?? null, d.limit);
      found.push(...page);
    }
    return found.toSorted(byId);
  },
  boundAside: (store, d) => store.deliveries.boundAside(d.now + d.pick(0, [1_000, 60_000, 86_400_000]), 1_000),
  noteTime: (store, d) => store.deliveries.noteTime({ ran_until: d.now, ...holdOf(d) }),
  timeNoted: (store) => store.deliveries.timeNoted(),
  'get delivery': (store, d) => store.deliveries.get(d.delivery_id, d.now, d.visibility),
  'list deliveries': (store, d) =>
    store.deliveries.list(
      {
        limit: d.limit,
        ...(d.flag(0) && { cursor: d.cursor }),
        ...(d.flag(1) && { instance_id: d.instance_id }),
        ...(d.flag(2) && { meeting_id: d.meeting_id }),
        ...(d.flag(3) && { state: d.pick(4, STATES) }),
        ...(d.flag(7) && { message_id: d.message_id }),
      },
      d.now,
      d.visibility,
    ),
  retry: (store, d) => audited(store, d).deliveries.retry(d.delivery_id, d.now, d.wall + 60_000, rarely(d)),
  recover: (store, d) =>
    audited(store, d).deliveries.recover(recoveryOf(d), d.limit, d.now, d.wall + 60_000, rarely(d)),
  'count recoverable': (store, d) => store.deliveries.countRecoverable(recoveryOf(d), d.limit, rarely(d)),
  'count missed': (store, d) =>
    store.deliveries.countMissed(
      d.instance_id,
      { since_ms: d.wall - d.pick(1, [0, 5_000, 1e9]), until_ms: d.wall - d.pick(2, [0, 0, 1_000]) },
      d.pick(3, [1, 3, 1_000]),
    ),
  expire: async (store, d) => {
    const expired: EndedInLane[] = [];
    const hold = holdOf(d);
    let next: ExpiryPlace | null = null;
    do {
      const step: { expired: EndedInLane[]; next: ExpiryPlace | null } = await store.deliveries.expireLanes(
        next,
        d.limit,
        d.now,
        d.wall,
        hold,
      );
      expired.push(...step.expired);
      next = step.next;
    } while (next !== null);
    expired.push(...(await store.deliveries.expireAside(null, d.now, d.wall, hold)).expired);
    const counts = new Map<string, number>();
    for (const { count, ...lane } of expired)
      counts.set(JSON.stringify(lane), (counts.get(JSON.stringify(lane)) ?? 0) + count);
    return [...counts].toSorted(([a], [b]) => (a < b ? -1 : 1));
  },
  prune: (store, d) => {
    const before_ms = d.wall - d.pick(0, [0, 3_600_000, 86_400_000]);
    return store.deliveries.prune(
      { deliveries_ms: before_ms, messages_ms: before_ms, idempotency_ms: before_ms, future_ms: Infinity },
      1_000,
      Infinity,
      null,
    );
  },
  pending: async (store, d) => [
    await store.deliveries.countPending(d.visibility),
    await store.deliveries.oldestPending(d.visibility),
  ],
  'create key': (store, d) =>
    audited(store, d).api_keys.create({
      key_id: `key${d.unique.padStart(9, '0')}`,
      name: d.flag(0) ? d.text : null,
      scopes: d.flag(1) ? ['admin'] : ['send', 'read'],
      meeting_ids: d.flag(2) ? [d.meeting_id] : null,
      instance_id: d.flag(3) ? d.instance_id : null,
      digest: d.unique,
      created_at: d.wall,
      expires_at: d.flag(4) ? d.wall + 5_000 : null,
    }),
  'list keys': (store, d) => store.api_keys.list({ limit: d.limit, ...(d.flag(0) && { cursor: d.cursor }) }),
  'change key': async (store, d) => {
    const { key_id } = (await store.api_keys.changedSince(0)).at(d.flag(0) ? 0 : -1) ?? { key_id: 'none' };
    await store.api_keys.recordUse([
      { key_id, used_at: d.wall },
      { key_id: 'none', used_at: 1 },
    ]);
    if (d.flag(1)) return audited(store, d).api_keys.rotate(key_id, d.unique, overlapOf(d), d.wall);
    return d.flag(2) ? audited(store, d).api_keys.revoke(key_id, d.wall) : store.api_keys.get(key_id);
  },
  'changed keys': (store, d) => store.api_keys.changedSince(d.limit),
  session: async (store, d) => {
    const digest = `digest ${d.unique}`;
    await audited(store, d).sessions.create({
      digest,
      csrf_digest: `csrf ${d.unique}`,
      key_id: d.owner,
      token_digest: d.owner === null ? null : `token ${d.limit}`,
      node_id: d.owner === null ? 'node' : null,
      created_at: d.wall,
      expires_at: d.wall + 5_000,
    });
    const previous = `digest ${Number(d.unique) - d.limit}`;
    return [
      await store.sessions.find(digest, d.wall + d.pick(0, [0, 5_000])),
      await store.sessions.find(previous, d.wall),
      await store.sessions.standing([previous, digest, 'none'], d.wall),
      await store.sessions.list({ limit: d.limit }, d.wall),
      d.flag(0)
        ? await audited(store, d).sessions.remove(previous)
        : await audited(store, d).sessions.end(sessionIdOf({ digest: previous })),
    ];
  },
  invite: async (store, d) => {
    const invite_id = `inv_${d.unique.padStart(12, '0')}`;
    const maker = d.flag(2) ? (await store.api_keys.changedSince(0)).at(d.flag(3) ? 0 : -1) : undefined;
    await audited(store, d).invites.create({
      invite_id,
      digest: `secret ${d.unique}`,
      created_by: maker?.key_id ?? d.owner,
      token_digest: (d.flag(4) ? maker?.digest : maker?.earlier_tokens.at(-1)?.value) ?? null,
      instance_id: d.instance_id,
      meeting_ids: [d.meeting_id],
      agent_ids: ['a', 'b'],
      created_at: d.wall,
      expires_at: d.wall + 5_000,
    });
    const previous = Number(d.unique) - d.limit;
    const key = {
      key_id: `inv${d.unique.padStart(9, '0')}`,
      name: invite_id,
      scopes: ['instance' as const],
      meeting_ids: [d.meeting_id],
      instance_id: d.instance_id,
      digest: d.unique,
      created_at: d.wall,
      expires_at: null,
    };
    const digest = `secret ${d.flag(0) ? d.unique : previous}`;
    return [
      await store.invites.find(digest),
      await store.invites.list({ limit: d.limit }),
      d.flag(1)
        ? await audited(store, d).invites.redeem(digest, key, d.wall + d.pick(0, [0, 5_000]))
        : await audited(store, d).invites.revoke(`inv_${String(previous).padStart(12, '0')}`, d.wall),
    ];
  },
  append: (store, d) => store.audit.append({ ...subjectOf(d), outcome: 'refused', code: 'not_permitted' }, d.wall),
  'list entries': (store, d) =>
    store.audit.list(
      {
        limit: d.limit,
        newest_first: d.flag(0),
        ...(d.flag(1) && { cursor: d.cursor }),
        ...(d.flag(2) && { action: d.pick(3, AUDIT_ACTIONS) }),
        ...(d.flag(4) && { principal: d.owner ?? 'open' }),
        ...(d.flag(5) && { instance_id: d.instance_id }),
        ...(d.flag(6) && { since_ms: d.wall - 1_000 }),
        ...(d.flag(7) && { until_ms: d.wall }),
      },
      d.pick(6, [2, 1_000]),
    ),
  ping: (store) => store.ping(),
} satisfies Record<string, (store: Store, draw: Draw) => unknown>;

/** The overlap of a rotation. A long one covers most commands of a log. */
function overlapOf({ pick }: Draw): number {
  return pick(5, [0, 1_000, 3_600_000, 864_000_000, 864_000_000]);
}

/** A recovery of a range of time, or of a delivery, which is often a delivery of the instance. */
function recoveryOf({ instance_id, delivery_id, wall, pick, flag }: Draw): Recovery {
  if (flag(5)) return { instance_id, delivery_ids: [delivery_id, 'dlv_unknown'] };
  return { instance_id, since_ms: wall - pick(1, [0, 5_000, 1e9]), until_ms: wall - pick(2, [0, 0, 1_000]) };
}

/** A jump of the clock that is held for some of the deliveries. */
function holdOf({ wall, message_id, pick, flag }: Draw): Hold {
  return { held_ms: pick(4, [0, 500, 86_400_000]), held_since: wall, held_up_to: flag(5) ? message_id : null };
}

/** Puts the timestamp into the message too, because SQLite may read the timestamp from the message. */
function withTimestamp(text: string, timestamp: string): Pick<NewMessage, 'message' | 'timestamp'> {
  if (timestamp === '' || !text.startsWith('{')) return { message: text, timestamp: '' };
  const rest = text.slice(1).trimStart();
  const comma = rest === '}' ? '' : ',';
  return { message: `{"created_at":${JSON.stringify(timestamp)}${comma}${rest}`, timestamp };
}

/** The origin of a message of `accept`, often none. */
function originIn(d: Draw, k: number): NewMessage['origin'] {
  if (!d.flag(5, k + 1)) return null;
  const from_agent = d.pick(k, [null, 'a', '"c"', '\u{1F600}', 'nobody']);
  const in_reply_to = d.flag(0, k) ? d.message_id : null;
  if (from_agent === null && in_reply_to === null) return null;
  return { from_agent, in_reply_to, speaks_for: d.owner_scope };
}

export type CommandName = keyof typeof COMMANDS;

export const COMMAND_NAMES = Object.keys(COMMANDS) as CommandName[];

/** Commands that create something, which are half of all commands. */
const MAKING: CommandName[] = ['register', 'join', 'accept', 'accept', 'settle'];

const texts = fc.oneof(
  fc.constantFrom(...MESSAGES),
  fc.object({ withBigInt: false }).map((value) => JSON.stringify(value)),
  fc.string({ unit: 'binary' }).map((text) => JSON.stringify(text.toWellFormed())),
);

export const commandLogs = (commands_max: number): fc.Arbitrary<Command[]> =>
  fc.array(
    fc.tuple(
      fc.oneof(fc.constantFrom(...MAKING), fc.constantFrom(...COMMAND_NAMES)),
      fc.array(fc.nat(1_000), { minLength: 8, maxLength: 8 }),
      texts,
    ),
    { minLength: commands_max, maxLength: commands_max, size: 'max' },
  );

/** Mostly null, which limits nothing, so that most of the requested rows are found. */
function rarely({ owner_scope, flag }: Draw): OwnerScope | null {
  return flag(7, 1) && flag(7, 2) ? owner_scope : null;
}

function subjectOf({ owner, instance_id, pick, text }: Draw): AuditSubject {
  return {
    principal: owner ?? 'open',
    address: pick(2, [null, '192.0.2.1', '::1']),
    action: pick(3, AUDIT_ACTIONS),
    target_kind: pick(4, ['instance', 'key', 'service'] as const),
    target_id: pick(5, [null, instance_id]),
    details: { text, 'é"\\': null, list: ['\u0000', text] },
  };
}

function audited(store: Store, draw: Draw): AuditedStore {
  return draw.flag(7) ? store : store.audited({ subject: subjectOf(draw), wall_ms: draw.wall });
}

function byId(a: { instance_id: string }, b: { instance_id: string }): number {
  return a.instance_id < b.instance_id ? -1 : 1;
}
