/**
 * Tests that the model store gives the same results as SQLite: runs the same random commands on both stores, and
 * compares every result.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ModelStore, type StoreOperations } from './model_store.ts';
import { Random } from './random.ts';
import { sqliteOperations } from './sqlite_operations.ts';

const LOGS = 40;
const COMMANDS = 120;
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

type Command = (store: StoreOperations) => unknown;

/** Draws commands from a seed and from the delivery ids in earlier results. These ids are equal in both stores. */
class Commands {
  readonly #random: Random;
  readonly #delivery_ids: string[] = ['dlv_unknown'];
  readonly #message_ids: (string | null)[] = [null, 'msg_unknown'];
  wall = Date.UTC(2026, 0, 1);

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  received(answer: unknown): void {
    for (const [id] of JSON.stringify(answer).matchAll(/dlv_[0-9a-z]+/g))
      if (!this.#delivery_ids.includes(id)) this.#delivery_ids.push(id);
    for (const [id] of JSON.stringify(answer).matchAll(/msg_[0-9a-z]+/g))
      if (!this.#message_ids.includes(id)) this.#message_ids.push(id);
  }

  next(): [string, Command] {
    const random = this.#random;
    const wall = (this.wall += random.pick([0, 1, 1_000, 60_000]));
    const now = wall + 5;
    const instance_id = `i${random.below(4)}`;
    const meeting_id = `m${random.below(3)}`;
    const agent_ids = random.pick([['a'], ['a', instance_id], []]);
    const delivery_id = random.pick(this.#delivery_ids);
    const message_id = random.pick(this.#message_ids);
    const limit = 1 + random.below(4);
    const state = random.pick(['pending', 'delivered', 'failed'] as const);
    const expires_at = wall + random.pick([1_000, 600_000]);
    const url = `http://${random.below(2)}.test/`;
    const aside = random.chance(0.4);
    const due = aside ? now + random.below(2_000) : random.pick([null, now + 500]);
    const flag = random.chance(0.5);
    const recovery = flag
      ? { instance_id, since_ms: wall - 60_000, until_ms: wall }
      : { instance_id, delivery_ids: [delivery_id] };
    const hold = { held_ms: random.pick([0, 1_000, 600_000]), held_since: wall, held_up_to: message_id };
    const draws: [string, Command][] = [
      [
        'register',
        (store) =>
          store.instances.register(
            {
              instance_id,
              instance_name: `Machine ${instance_id}`,
              agent_ids,
              webhook_url: url,
              webhook_headers: flag ? { a: 'b' } : undefined,
              webhook_secret: undefined,
              new_secret: SECRET,
              success_statuses: flag ? '2xx' : undefined,
            },
            wall,
          ),
      ],
      ['join', (store) => store.meetings.join(meeting_id, instance_id, agent_ids, wall)],
      ['leave', (store) => store.meetings.leave(meeting_id, instance_id, wall)],
      [
        'changeMembership',
        (store) =>
          store.meetings.changeMembership(
            meeting_id,
            instance_id,
            flag ? { agent_ids, wake: 'people' } : { catch_up: 'latest', max_age_s: limit },
          ),
      ],
      [
        'accept',
        (store) =>
          store.messages.accept(
            Array.from({ length: limit }, (_, k) => ({
              meeting_id,
              message: `{"k":${k}}`,
              timestamp: '',
              target_agents: flag ? [instance_id] : null,
              origin:
                k % 2 === 0 || message_id === null
                  ? null
                  : { from_agent: flag ? 'a' : null, in_reply_to: message_id, speaks_for: null },
              trace: k % 3 === 0 ? '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' : null,
              idempotency: aside ? { key: `k${k}`, sender: flag ? 's' : '', fingerprint: flag ? 'x' : 'y' } : null,
              wall_ms: wall,
              expires_at,
            })),
          ),
      ],
      [
        'settle',
        (store) => {
          const read = store.deliveries.loadLanes([{ instance_id, meeting_id, after_seq: 0, limit }]).flat();
          return store.deliveries.settle(
            read.map((row) => ({
              delivery_id: row.delivery_id,
              expires_at: row.expires_at + (flag ? 0 : 1),
              state,
              reason: state === 'failed' ? 'exhausted' : null,
              attempt_count: row.attempt_count + 1,
              answered_badly: row.answered_badly + 1,
              attempts: '[]',
              next_attempt_at: state === 'pending' ? due : null,
              aside: aside && state === 'pending',
              settled_at: state === 'pending' ? null : wall,
              epoch: 0,
            })),
            [
              {
                instance_id,
                webhook_url: url,
                consecutive_failures: limit,
                health_since: flag ? wall : null,
                last_success_at: flag ? wall : null,
                last_failure: null,
                backoff_step: limit,
                backoff_until: now + 1_000,
                gone_as_of: aside ? (store.instances.get(instance_id)?.updated_at ?? null) : null,
                epoch: 0,
              },
            ],
          );
        },
      ],
      ['loadLanes', (store) => store.deliveries.loadLanes([{ instance_id, meeting_id, after_seq: limit - 1, limit }])],
      ['loadAside', (store) => store.deliveries.loadAside(instance_id, now, limit)],
      ['pendingLanes', (store) => store.deliveries.pendingLanes(flag ? { instance_id, meeting_id } : null, limit)],
      ['pendingAside', (store) => store.deliveries.pendingAside(flag ? instance_id : null, limit)],
      ['noteTime', (store) => store.deliveries.noteTime({ ran_until: now, ...hold })],
      ['timeNoted', (store) => store.deliveries.timeNoted()],
      ['boundAside', (store) => store.deliveries.boundAside(now + (flag ? 1_000 : 60_000), 1_000)],
      ['get delivery', (store) => store.deliveries.get(delivery_id, now)],
      [
        'list deliveries',
        (store) => store.deliveries.list({ limit, ...(flag ? { instance_id } : { meeting_id }) }, now),
      ],
      ['list by state', (store) => store.deliveries.list({ limit: 100, state }, now)],
      ['retry', (store) => store.deliveries.retry(delivery_id, now, expires_at)],
      ['recover', (store) => store.deliveries.recover(recovery, limit, now, expires_at)],
      ['recoverable', (store) => store.deliveries.countRecoverable(recovery, limit)],
      [
        'missed',
        (store) => store.deliveries.countMissed(instance_id, { since_ms: wall - 60_000, until_ms: wall }, 1_000),
      ],
      [
        'expire lanes',
        (store) => {
          const after = flag ? null : { instance_id, meeting_id, seq: aside ? limit : null };
          return store.deliveries.expireLanes(after, limit, now, wall, hold);
        },
      ],
      [
        'expire aside',
        (store) => {
          const after = flag ? null : { instance_id, next_attempt_at: now, delivery_id };
          return store.deliveries.expireAside(after, now, wall, hold);
        },
      ],
      ['count', (store) => store.deliveries.countPending()],
      ['count instances', (store) => store.instances.count(flag ? instance_id : null, limit)],
      [
        'patch',
        (store) => store.instances.patch(instance_id, aside ? { is_active: flag } : { webhook_enabled: flag }, wall),
      ],
      ['webhook urls', (store) => store.instances.webhookUrls(flag ? instance_id : null, limit)],
      ['heartbeat', (store) => store.instances.heartbeat(instance_id, wall)],
      ['rotate', (store) => store.instances.rotateSecret(instance_id, SECRET, 1_000, wall)],
      ['get', (store) => store.instances.get(instance_id)],
      ['load', (store) => store.instances.load([instance_id, 'i0', 'nobody'])],
      ['list', (store) => store.instances.list({ limit, ...(flag ? { meeting_id } : { is_active: aside }) })],
      ['meetings', (store) => store.meetings.list({ limit })],
      ['members', (store) => store.meetings.instances(meeting_id, { limit, include_left: flag })],
      ['messages', (store) => store.messages.list(meeting_id, { limit, chars_max: 20, ...(flag && { after_seq: 1 }) })],
      ['last', (store) => store.messages.last()],
      [
        'since',
        (store) => store.messages.since(flag ? store.messages.last() : null, { scan: 9, limit, chars_max: 20 }),
      ],
      [
        'since, of some',
        (store) =>
          store.messages.since(null, {
            scan: aside ? 9 : 1_000,
            limit,
            chars_max: 20,
            ...(flag ? { instance_id } : { meeting_ids: [meeting_id] }),
          }),
      ],
      ['remove', (store) => (limit < 3 ? store.instances.remove(instance_id, limit, wall) : null)],
    ];
    // Half of all commands create something.
    return random.chance(0.5) ? (draws[random.below(5)] as [string, Command]) : random.pick(draws);
  }
}

function answerOf(command: Command, store: StoreOperations): unknown {
  try {
    const answer = command(store);
    return answer === undefined ? null : (JSON.parse(JSON.stringify(answer)) as unknown);
  } catch (error) {
    return { problem: (error as { code?: string }).code ?? String(error) };
  }
}

test('the model store answers as SQLite does', () => {
  const answered = new Map<string, number>();
  for (let seed = 1; seed <= LOGS; seed++) {
    const commands = new Commands(seed);
    const model = new ModelStore(() => commands.wall);
    const sqlite = sqliteOperations(() => commands.wall);
    for (let k = 0; k < COMMANDS; k++) {
      const [name, command] = commands.next();
      const expected = answerOf(command, sqlite);
      assert.deepEqual(answerOf(command, model), expected, `seed ${seed}, command ${k}: ${name}`);
      commands.received(expected);
      answered.set(name, (answered.get(name) ?? 0) + 1);
    }
  }
  assert.ok(answered.size >= 26, 'every command was drawn');
});
