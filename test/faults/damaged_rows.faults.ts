/**
 * A damaged row does not stop the service, and delays nothing but itself. The tests damage each column of each table,
 * each column in another row, while a service runs and before it starts. The log names the row and the column.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { test, type TestContext } from 'node:test';
import type { InviteWithLink, Page, SentMessage, Session } from '@convoke/sdk';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { temporaryDirectory } from '../support/command_line.ts';
import { makeDatabase } from '../support/postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { instancePath, messagesPath, type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

type Value = string | bigint;

/** Values that the type of a column allows, and that this service never writes. */
const NONSENSE: Record<'json' | 'text' | 'integer', Value[]> = {
  json: ['', '{"a":', '[1,{}]', 'null'],
  text: ['nonsense'],
  integer: [-1n, 2n ** 53n + 1n, 2n ** 63n - 1n],
};
const JSON_COLUMNS = new Set([
  'agent_ids',
  'last_failure',
  'target_agents',
  'attempts',
  'scopes',
  'meeting_ids',
  'result',
  'details',
]);

/** How to find the rows of each victim. */
const OF_VICTIM: Record<string, (victim: Victim) => string> = {
  instances: ({ name }) => `instance_id = '${name}'`,
  meetings: ({ name }) => `meeting_id = '${name}'`,
  meeting_settings: ({ name }) => `meeting_id = '${name}'`,
  memberships: ({ name }) => `meeting_id = '${name}' AND instance_id = '${name}'`,
  messages: ({ name }) => `meeting_id = '${name}'`,
  deliveries: ({ name }) => `instance_id = '${name}'`,
  idempotency_keys: ({ name }) => `meeting_id = '${name}'`,
  instance_agents: ({ name }) => `instance_id = '${name}'`,
  recipients: ({ name }) => `instance_id = '${name}'`,
  api_keys: ({ key_id }) => `key_id = '${key_id}'`,
  sessions: ({ key_id }) => `key_id = '${key_id}'`,
  invites: ({ invite_id }) => `invite_id = '${invite_id}'`,
};
/** Tables that have no row for each victim: all victims share one row. */
const SHARED: Record<string, string> = {
  audit_log: 'seq = 2',
  nodes: 'node_no > 0',
  runs: 'true',
  batches: 'true',
  sweeps: 'true',
};
/**
 * Tables that the test does not damage. After damage in some of them the service refuses to start and says why
 * (test/cli/migrate.slow.ts, test/secrets/reencrypt.slow.ts). For the others nothing can be expected.
 */
const OF_THE_STORE = new Set([
  'this_file',
  'this_database',
  'encryption_keys',
  'schema_version',
  'audit_head',
  'instance_count',
  'partitions',
  'sqlite_sequence',
]);

/** Columns that the test does not damage: with other values in them, another node seems to hold the partitions. */
const LEASES = new Set(['nodes.node_no', 'nodes.node_id', 'nodes.lease_until']);

interface Column {
  table: string;
  column: string;
  kind: keyof typeof NONSENSE;
}

interface Damage extends Column {
  value: Value;
}

interface Victim {
  name: string;
  /** Whether the instance pulls; it may also reply. */
  pulls: boolean;
  key_id: string;
  /** The headers of a session of this key. */
  signed_in: Record<string, string>;
  invite_id: string;
  /** The secret of the link of the invite. */
  secret: string;
  /** The message that was sent before the damage. */
  message_id: string;
  damage: Damage;
}

interface Engine {
  name: string;
  settings: (t: TestContext) => Promise<Record<string, string>>;
  /** Calls `run`. The function that it passes to `run` executes statements on the data of the service. */
  on: (
    settings: Record<string, string>,
    run: (sql: (text: string) => Promise<Record<string, unknown>[]>) => Promise<void>,
  ) => Promise<void>;
  columns: string;
  before_audit: string[];
  /** Whether another program may write to the data while the service runs. */
  shared: boolean;
}

const ENGINES: Engine[] = [
  {
    name: 'SQLite',
    settings: async (t) => ({ data: temporaryDirectory(t) }),
    on: async (settings, run) => {
      const db = new DatabaseSync(join(settings['data']!, DATABASE_FILE));
      await run(async (text) => {
        const statement = db.prepare(text);
        return /^\s*(?:SELECT|WITH)/.test(text) ? statement.all() : (statement.run(), []);
      });
      db.close();
    },
    columns: `SELECT t.name AS "table", c.name AS "column", lower(c.type) AS type FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'`,
    before_audit: ['DROP TRIGGER audit_log_is_not_changed'],
    shared: false,
  },
  {
    name: 'PostgreSQL',
    settings: async () => ({ database_url: await makeDatabase(), encryption_key: randomBytes(32).toString('base64') }),
    on: async (settings, run) => {
      const client = new pg.Client(settings['database_url']);
      await client.connect();
      await run(async (text) => (await client.query<Record<string, unknown>>(text)).rows);
      await client.end();
    },
    columns: `SELECT table_name AS "table", column_name AS "column", data_type AS type FROM information_schema.columns
      WHERE table_schema = 'public' AND table_name IN (SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE')`,
    before_audit: ['DROP TRIGGER audit_log_is_not_changed ON audit_log'],
    shared: true,
  },
];

const literal = (value: Value): string => (typeof value === 'bigint' ? String(value) : `'${value}'`);

async function columnsOf(engine: Engine, settings: Record<string, string>): Promise<Column[]> {
  const columns: Column[] = [];
  await engine.on(settings, async (sql) => {
    for (const { table, column, type } of (await sql(engine.columns)) as Record<string, string>[]) {
      if (OF_THE_STORE.has(table!) || LEASES.has(`${table!}.${column!}`) || table!.startsWith('sqlite_')) continue;
      const kind = type!.includes('int') ? 'integer' : JSON_COLUMNS.has(column!) ? 'json' : 'text';
      columns.push({ table: table!, column: column!, kind });
    }
  });
  return columns;
}

/**
 * Makes the rows to damage. Each damage gets its own instance, meeting, message and delivery, and a key, a session or
 * an invite.
 */
async function makeVictims(service: Service, damages: Damage[], neighbour: string): Promise<Victim[]> {
  const victims: Victim[] = [];
  // The use of a column of an instance depends on the transport, so most columns are damaged for each transport. Damage
  // that the log must name is made only once, because the log has room for some sixty lines about a table.
  const each = damages.flatMap((damage) =>
    damage.table === 'instances' && !NAMED.has(`instances.${damage.column}`)
      ? [false, true].map((pulls) => ({ damage, pulls }))
      : [{ damage, pulls: false }],
  );
  // A start reads the rows in the order of their names. So the rows that the log must name come first.
  each.sort((a, b) => Number(isNamed(b)) - Number(isNamed(a)));
  for (const [i, { damage, pulls }] of each.entries()) {
    const name = `victim-${String(i).padStart(4, '0')}-${damage.table}-${damage.column}`;
    const way = pulls ? { transport: 'pull' } : { webhook_url: 'http://127.0.0.1:1/' };
    const body = { instance_id: name, instance_name: name, agent_ids: ['a'], webhook_secret: SECRET, replies: pulls };
    const registered = await service.post('/api/v1/instances/register/', { ...body, ...way });
    assert.equal(registered.status, 201, registered.text);
    await service.join(name, name, ['a']);
    await service.join(name, neighbour, ['a']);
    const sent = await service.post<SentMessage>(
      messagesPath(name),
      { message: { n: 1 }, target_agents: ['a'], from_agent: 'b' },
      { 'idempotency-key': 'first' },
    );
    assert.equal(sent.status, 201, sent.text);
    const victim: Victim = {
      name,
      pulls,
      key_id: '',
      signed_in: {},
      invite_id: '',
      secret: '',
      message_id: sent.body.message_id,
      damage,
    };
    if (damage.table === 'api_keys') {
      victim.key_id = (await service.createKey({ scopes: ['read'], meeting_ids: [name] })).key_id;
    }
    if (damage.table === 'sessions') await signIn(service, victim);
    if (damage.table === 'invites') {
      const invite = { meeting_ids: [name], agent_ids: ['a'], instance_id: `${name}-invited` };
      const { body: made } = await service.post<InviteWithLink>('/api/v1/invites/', invite);
      Object.assign(victim, { invite_id: made.invite_id, secret: made.link.split('/').at(-1) });
    }
    victims.push(victim);
  }
  return victims;
}

async function signIn(service: Service, victim: Victim): Promise<void> {
  const { key_id, token } = await service.createKey({ scopes: ['read'] });
  const authorization = `Bearer ${token}`;
  const begun = await service.request<Session>('POST', '/api/v1/session/', { headers: { cookie: '', authorization } });
  const cookie = String(begun.headers['set-cookie']?.[0]).split(';')[0] as string;
  victim.key_id = key_id;
  victim.signed_in = { cookie, origin: service.url, 'convoke-csrf': begun.body.csrf_token ?? '' };
}

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

async function damageAll(
  engine: Engine,
  settings: Record<string, string>,
  victims: Victim[],
  shared: Damage[],
): Promise<Victim[]> {
  const damaged: Victim[] = [];
  await engine.on(settings, async (sql) => {
    for (const text of engine.before_audit) await sql(text);
    const set = ({ table, column, value }: Damage, where: string): Promise<unknown> =>
      sql(`UPDATE ${table} SET ${column} = ${literal(value)} WHERE ${where}`);
    for (const victim of victims) {
      // The database itself refuses some values, and values that a unique column already has.
      const done = await set(victim.damage, OF_VICTIM[victim.damage.table]!(victim)).then(
        () => true,
        () => false,
      );
      if (done) damaged.push(victim);
    }
    for (const damage of shared) await set(damage, SHARED[damage.table]!).catch(() => {});
  });
  return damaged;
}

const LISTS = ['instances', 'meetings', 'deliveries', 'keys', 'audit', 'invites', 'sessions', 'nodes'].map((noun) =>
  noun === 'sessions' || noun === 'nodes' ? `/api/v1/${noun}/` : `/api/v1/${noun}/?limit=500`,
);

/** Reads every damaged row in every way. No response is a 500, and no list fails because of one of its rows. */
async function askAll(service: Service, victims: Victim[]): Promise<void> {
  const failed: string[] = [];
  // Rows that the log must name come first, because the log has room for some sixty lines about a table at a time.
  for (const victim of victims.toSorted((a, b) => Number(isNamed(b)) - Number(isNamed(a)))) {
    const { name, pulls, key_id, damage } = victim;
    const asked: [method: string, path: string, options?: object][] = [
      ['GET', instancePath(name)],
      ['POST', `${instancePath(name)}heartbeat/`],
      ['GET', messagesPath(name)],
      ['GET', `/api/v1/meetings/${name}/instances/`],
      ['GET', `/api/v1/deliveries/?meeting_id=${name}`],
      ['GET', `/api/v1/keys/${key_id || 'none'}/`],
      ['POST', `${instancePath(name)}recover/`, { body: { since: '2020-01-01T00:00:00Z' } }],
      ['GET', `/api/v1/meetings/${name}/`],
      ['PATCH', `/api/v1/meetings/${name}/`, { body: { hop_limit: 16 } }],
      ['GET', `/api/v1/meetings/${name}/explain/?from_agent=b`],
      ['GET', `/api/v1/messages/${victim.message_id}/`],
    ];
    if (pulls) asked.push(['POST', `${instancePath(name)}pull/`, { body: { wait_s: 0 } }]);
    if (damage.table === 'sessions') asked.push(['GET', '/api/v1/instances/', { headers: victim.signed_in }]);
    if (damage.table === 'invites') {
      asked.push(['GET', `/invite/${victim.secret}`, { headers: { cookie: '' } }]);
      asked.push(['POST', '/api/v1/invites/redeem/', { body: { secret: victim.secret }, headers: { cookie: '' } }]);
      asked.push(['DELETE', `/api/v1/invites/${victim.invite_id}/`]);
    }
    for (const [method, path, options = {}] of asked) {
      const { status, text } = await service.request(method, path, options);
      // Only a secret that cannot be decrypted may fail a request. A damaged instance id has the same effect, because
      // the id is part of the encryption; the invite of the instance then names the damaged id.
      const of_a_secret = /^(?:webhook_|previous_secret|runtime$)|^instance_id$/.test(damage.column);
      const may_fail = of_a_secret && status === 503 && text.includes('SECRET_UNREADABLE');
      if (status >= 500 && !may_fail)
        failed.push(`${method} ${path} with ${damage.table}.${damage.column} = ${damage.value}: ${status} ${text}`);
      if (path.startsWith('/api/')) assert.doesNotThrow(() => void (text === '' || JSON.parse(text)), path);
    }
  }
  assert.deepEqual(failed, []);
  for (const list of LISTS) {
    const { status, text } = await service.get<Page<unknown>>(list);
    assert.equal(status, 200, `${list}: ${text.slice(0, 300)}`);
  }
}

const isNamed = ({ damage }: Pick<Victim, 'damage'>): boolean => NAMED.has(`${damage.table}.${damage.column}`);

const NAMED = new Set(
  [
    [
      'instances.agent_ids',
      'instances.last_failure',
      'instances.webhook_headers',
      'instances.webhook_secret',
      'memberships.agent_ids',
    ],
    [
      'messages.target_agents',
      'messages.trace',
      'deliveries.target_agents',
      'deliveries.attempts',
      'api_keys.scopes',
      'api_keys.meeting_ids',
    ],
  ].flat(),
);

for (const engine of ENGINES) {
  test(`${engine.name}: nonsense in any column ends nothing, others' messages flow, and the log says which row`, async (t) => {
    const settings = await engine.settings(t);
    const service = await startService(t, settings);
    const receiver = await startReceiver(t);
    const neighbour = 'neighbour';
    await service.register({ instance_id: neighbour, webhook_url: receiver.url });
    await service.endOpenMode();
    await service.close();
    const columns = await columnsOf(engine, settings);
    assert.ok(columns.length > 80, `${columns.length} columns`);
    const all = columns.flatMap((column) => NONSENSE[column.kind].map((value): Damage => ({ ...column, value })));
    const strange = columns.filter(({ table }) => !(table in OF_VICTIM) && !(table in SHARED));
    assert.deepEqual(strange, [], 'every table is one of the lists above');

    const { token } = service;
    const again = await startService(t, settings);
    again.token = token;
    const victims = await makeVictims(
      again,
      all.filter(({ table }) => table in OF_VICTIM),
      neighbour,
    );
    const shared = all.filter(({ table }) => table in SHARED);
    if (!engine.shared) await again.close();
    const damaged = await damageAll(engine, settings, victims, shared);
    assert.ok(damaged.length > 100, `${damaged.length} rows are damaged`);

    const check = async (running: Service): Promise<void> => {
      await askAll(running, damaged);
      const before = receiver.requests.length;
      // Sends all messages at once, so that they share batches. Each meeting also gets a message of an agent, so that
      // the loop guard reads the earlier messages.
      const sends = damaged.flatMap(({ name, damage }) =>
        [{}, { target_agents: ['a'], from_agent: 'b' }].map(async (more) => {
          const { status, text } = await running.post(messagesPath(name), { message: { n: 2 }, ...more });
          return { damage, status, text };
        }),
      );
      const healthy = Array.from({ length: 20 }, () => running.send('healthy', { n: 2 }));
      await Promise.all(healthy);
      let accepted = 20;
      for (const { damage, status, text } of await Promise.all(sends)) {
        if (status === 201) accepted++;
        // If the meeting itself, its last seq or its newest message is damaged, the service refuses the message and
        // stores nothing.
        else
          assert.ok(
            status === 503 && /^(?:meetings|messages)$/.test(damage.table),
            `${damage.table}.${damage.column} = ${damage.value}: ${status} ${text}`,
          );
      }
      assert.ok(accepted > damaged.length, `${accepted} were accepted`);
      await until(
        'everything that was accepted to be received by who is healthy',
        () => receiver.requests.length - before,
        (received) =>
          received >=
          accepted -
            2 * damaged.filter(({ damage }) => damage.table === 'memberships' || damage.table === 'meetings').length,
      );
      assert.equal((await running.get('/readyz')).status, 200);
    };
    await again.join('healthy', neighbour, ['a']).catch(() => {});
    if (engine.shared) {
      await check(again);
      await again.close();
    }
    const started = await startService(t, settings);
    started.token = token;
    if (!engine.shared) await started.join('healthy', neighbour, ['a']);
    await check(started);
    const named = new Set(
      started.log
        .concat(again.log)
        .filter(({ msg }) => msg.endsWith('is damaged: its value is taken for an empty one'))
        .map(({ table, column }) => `${String(table)}.${String(column)}`),
    );
    for (const place of NAMED)
      assert.ok(
        named.has(place) || /webhook/.test(place),
        `${place} must be named; ${[...named].filter((x) => !x.startsWith('some')).join(' ')}`,
      );
  });
}
