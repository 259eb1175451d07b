/** `convoke import`: after the import, a service with data from SQLite goes on in PostgreSQL without any difference. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { copyFileSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient } from '@convoke/sdk';
import pg from 'pg';
import { Webhook } from 'standardwebhooks';
import { MIGRATIONS } from '../../src/store/sqlite/migrations.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { convoke, serve, stop, temporaryDirectory } from '../support/command_line.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { makeDataFile } from '../support/data_file.ts';
import { makeDatabase } from '../support/postgres.ts';
import { headerOf, pushOf, type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';

const MEETINGS = ['a', 'b', 'c'];
const PENDING_PER_MEETING = 30;
const AUTHORIZATION = 'Bearer of-the-runtime';

/** A message that a JSON parser, or jsonb, would change. */
const ODD_MESSAGE = String.raw`{"b":1.0,"a":12345678901234567890,"nul":"\u0000","half":"\ud800","created_at":"x\u0000y","é":"é 🎉"}`;

interface Left {
  directory: string;
  file: string;
  token: string;
  webhook_secret: string;
  receiver: Receiver;
  /** The id of every delivery, by meeting and seq. */
  delivery_ids: Map<string, string>;
  first_message: { message_id: string; seq: number; deliveries_queued: number };
}

/** Makes the data of a service on SQLite that stopped while its machine was down. It has messages of each kind. */
async function leaveData(t: TestContext): Promise<Left> {
  const directory = join(temporaryDirectory(t), 'data');
  const service = await serve(directory);
  t.after(() => stop(service, 'SIGKILL'));
  const receiver = await startReceiver(t);
  const open = new ConvokeClient({ base_url: service.url });
  const { key_id, token } = await open.createKey({ name: 'operator', scopes: ['admin'] });
  const client = new ConvokeClient({ base_url: service.url, api_key: token });
  const { webhook_secret } = await client.register({
    instance_id: 'machine',
    instance_name: 'n',
    agent_ids: ['x', 'y'],
    webhook_url: receiver.url,
    webhook_headers: { authorization: AUTHORIZATION },
  });
  for (const meeting_id of MEETINGS) {
    await client.joinMeeting({ instance_id: 'machine', meeting_id, agent_ids: ['x', 'y'] });
  }
  const first_message = await client.sendMessage('a', { content: 'first' }, { idempotency_key: 'once' });
  await receiver.count(1);
  // While the response is on its way, the receiver must not go down: it would cut the connection.
  await until(
    'the first delivery to be delivered',
    async () => (await client.listDeliveries({ meeting_id: 'a' })).data.map(({ state }) => state),
    (states) => states.join() === 'delivered',
  );
  await receiver.down();
  for (const meeting_id of MEETINGS) {
    await sendText(service.url, token, meeting_id, `{"message":${ODD_MESSAGE},"target_agents":["y"]}`);
    for (let i = 1; i < PENDING_PER_MEETING; i++) await client.sendMessage(meeting_id, { content: `${i}` });
  }
  // The test goes on with the token and the secret of before, which work for another day.
  for (let n = 0; n < 2; n++) {
    await client.rotateKey(key_id);
    await client.rotateSecret('machine');
  }
  const delivery_ids = new Map<string, string>();
  const { data } = await client.listDeliveries({ limit: 500 });
  for (const { meeting_id, seq, delivery_id } of data) delivery_ids.set(`${meeting_id} ${seq}`, delivery_id);
  assert.equal(await stop(service), 0);
  const file = join(directory, 'convoke.db');
  return { directory, file, token, webhook_secret: webhook_secret!, receiver, delivery_ids, first_message };
}

async function sendText(url: string, token: string, meeting_id: string, body: string): Promise<void> {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
  const answer = await fetch(`${url}/api/v1/meetings/${meeting_id}/messages/`, { method: 'POST', headers, body });
  assert.equal(answer.status, 201, await answer.text());
}

async function query<Row>(url: string, sql: string): Promise<Row[]> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    return (await client.query(sql)).rows as Row[];
  } finally {
    await client.end();
  }
}

test('a service that stopped with pending deliveries continues in PostgreSQL: same ids, same order, same keys', async (t) => {
  const left = await leaveData(t);
  const { file, token, receiver } = left;
  const data = temporaryDirectory(t);
  const env = {
    CONVOKE_DATABASE_URL: await makeDatabase({ migrated: false }),
    // A new key, and not that of the data file: nodes on PostgreSQL share a key.
    CONVOKE_ENCRYPTION_KEY: randomBytes(32).toString('base64'),
  };
  const moved = await convoke(['import', '--from', file, '--data', data], { env });
  assert.equal(moved.code, 0, moved.stderr);
  assert.match(
    moved.stdout,
    /1 instance, 3 meetings, 3 memberships, 91 messages, 91 deliveries \(90 pending\), 1 API key/,
  );
  assert.match(moved.stderr, /Never start a service on .*convoke\.db again/);
  const [key_id] = /(?<=under the data key )[0-9a-f]{16}/.exec(moved.stderr) ?? [];
  const secrets = await query<{ webhook_secret: string }>(
    env.CONVOKE_DATABASE_URL,
    'SELECT webhook_secret FROM instances',
  );
  assert.ok(secrets.every(({ webhook_secret }) => webhook_secret.startsWith(`v1.${key_id}.`)));

  const service = await serve(data, { env });
  t.after(() => stop(service, 'SIGKILL'));
  const client = new ConvokeClient({ base_url: service.url, api_key: token });
  await receiver.up();
  await client.heartbeat('machine');
  const pushes = (await receiver.count(1 + left.delivery_ids.size - 1)).slice(1);
  assertSpoken(pushes, left, 2);

  // What the service promised before the import still holds.
  const again = await client.sendMessage('a', { content: 'first' }, { idempotency_key: 'once' });
  assert.deepEqual(again, left.first_message);
  const next = await client.sendMessage('a', { content: 'after' });
  assert.equal(next.seq, PENDING_PER_MEETING + 2);
  assert.ok(next.message_id > left.first_message.message_id, 'numbers go on above those that are taken');
  const { delivery_id } = (await client.listDeliveries({ meeting_id: 'b', limit: 1 })).data[0]!;
  assert.equal((await client.getDelivery(delivery_id)).delivery_id, delivery_id);
  assert.equal((await client.getDelivery(left.delivery_ids.get('a 1')!)).state, 'delivered');
  const history = await fetch(`${service.url}/api/v1/meetings/b/messages/?after_seq=0&limit=1`, {
    headers: { authorization: `Bearer ${token}` },
  });
  assert.ok((await history.text()).includes(`"message":${ODD_MESSAGE}`), 'to the byte');
  const verified = await convoke(['audit', 'verify', '--url', service.url], { env: { CONVOKE_API_KEY: token } });
  assert.equal(verified.code, 0, verified.stderr);
  const { data: entries } = await client.listAudit({ action: 'service.import' });
  assert.equal(entries[0]?.details['pending_deliveries'], 90);
  assert.equal(await stop(service), 0);
});

/**
 * Asserts that every lane continues from a seq in order and without a gap. Each delivery has its previous id, and is
 * signed with the secret that the machine has.
 */
function assertSpoken(pushes: Received[], { delivery_ids, webhook_secret }: Left, first_seq_of_a: number): void {
  const webhook = new Webhook(webhook_secret);
  const lanes = new Map<string, number[]>(MEETINGS.map((meeting_id) => [meeting_id, []]));
  for (const push of pushes) {
    const { meeting_id, message } = pushOf(push);
    const seq = Number(headerOf(push, 'convoke-seq'));
    lanes.get(meeting_id)!.push(seq);
    assert.equal(headerOf(push, 'webhook-id'), delivery_ids.get(`${meeting_id} ${seq}`));
    assert.equal(headerOf(push, 'authorization'), AUTHORIZATION);
    webhook.verify(push.text, {
      'webhook-id': headerOf(push, 'webhook-id'),
      'webhook-timestamp': headerOf(push, 'webhook-timestamp'),
      'webhook-signature': headerOf(push, 'webhook-signature'),
    });
    if (!('b' in message)) continue;
    assert.ok(push.text.includes(`"message":${ODD_MESSAGE},"target_agents":["y"],"timestamp":"x\\u0000y"`), push.text);
  }
  for (const [meeting_id, seqs] of lanes) {
    const first = meeting_id === 'a' ? first_seq_of_a : 1;
    assert.deepEqual(
      seqs,
      Array.from({ length: PENDING_PER_MEETING }, (_, i) => first + i),
    );
  }
}

test('after an import, what was pending in an old file keeps its remaining time, as after a restart', async (t) => {
  const file = await makeDataFile(t);
  const stopped_at = Date.now() - 4 * 86_400_000;
  const db = new DatabaseSync(file);
  db.exec(`UPDATE this_file SET ran_until = ${stopped_at}`);
  db.exec(`UPDATE deliveries SET expires_at = ${stopped_at + 3 * 86_400_000}`);
  db.close();
  const env = { CONVOKE_DATABASE_URL: await makeDatabase() };
  const data = join(file, '..');
  const moved = await convoke(['import', '--from', file, '--data', data], { env });
  assert.equal(moved.code, 0, moved.stderr);
  const service = await serve(data, { env });
  t.after(() => stop(service, 'SIGKILL'));
  const metrics = await (await fetch(`${service.url}/metrics`)).text();
  const [, held_s] = /^convoke_expiry_held_seconds (\S+)$/m.exec(metrics) ?? [];
  assert.equal(Math.round(Number(held_s) / 86_400), 4);
  assert.equal(await stop(service), 0);
  assert.match(await service.stderr, /the clock is far ahead of the last run of the service/);
});

describe('an import', () => {
  const TABLES = ['instances', 'meetings', 'memberships', 'messages', 'deliveries', 'audit_log', 'encryption_keys'];

  async function rowsIn(url: string): Promise<number> {
    const counts = TABLES.map((table) => `(SELECT count(*) FROM ${table})`);
    const [row] = await query<{ n: string }>(url, `SELECT ${counts.join(' + ')} AS n`);
    return Number(row!.n);
  }

  test('reads a backup, and leaves it as it is', async (t) => {
    const data = join(await makeDataFile(t), '..');
    const elsewhere = temporaryDirectory(t);
    const backup = join(elsewhere, 'backup.db');
    assert.equal((await convoke(['backup', backup, '--data', data])).code, 0);
    copyFileSync(join(data, 'encryption.key'), join(elsewhere, 'encryption.key'));
    const before = readFileSync(backup);
    const env = { CONVOKE_DATABASE_URL: await makeDatabase() };
    const moved = await convoke(['import', '--from', backup, '--data', data], { env });
    assert.equal(moved.code, 0, moved.stderr);
    assert.ok(readFileSync(backup).equals(before));
    assert.deepEqual(readdirSync(elsewhere).toSorted(), ['backup.db', 'encryption.key']);
  });

  test('that fails at its end leaves nothing, and can be repeated', async (t) => {
    const file = await makeDataFile(t);
    const url = await makeDatabase();
    const env = { CONVOKE_DATABASE_URL: url };
    const run = () => convoke(['import', '--from', file, '--data', join(file, '..')], { env });
    // One delivery disappears from the target.
    await query(
      url,
      `CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
       CREATE TRIGGER lose BEFORE INSERT ON deliveries FOR EACH ROW EXECUTE FUNCTION lose();`,
    );
    const failed = await run();
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /Nothing was imported: of deliveries there are 1 in the file, and 0 arrived/);
    assert.equal(await rowsIn(url), 0);

    await query(url, 'DROP FUNCTION lose CASCADE');
    const done = await run();
    assert.equal(done.code, 0, done.stderr);
    const rows = await rowsIn(url);
    assert.ok(rows >= 6);

    const again = await run();
    assert.equal(again.code, 1);
    assert.match(again.stderr, /The database is not empty: there are rows in meetings/);
    assert.equal(await rowsIn(url), rows);
  });

  test('refuses a file that is in use, that is older, or whose key is not there; says what to do', async (t) => {
    const file = await makeDataFile(t);
    const data = join(file, '..');
    const url = await makeDatabase();
    const env = { CONVOKE_DATABASE_URL: url };
    const run = (from: string, in_directory = data) =>
      convoke(['import', '--from', from, '--data', in_directory], { env });

    const nowhere = await convoke(['import', '--from', file]);
    assert.equal(nowhere.code, 2);
    assert.match(nowhere.stderr, /set CONVOKE_DATABASE_URL/);

    const elsewhere = temporaryDirectory(t);
    const alone = join(elsewhere, 'backup.db');
    copyFileSync(file, alone);
    const without_key = await run(alone, elsewhere);
    assert.equal(without_key.code, 1);
    assert.match(without_key.stderr, /encrypted under the key [0-9a-f]{16}: put its encryption\.key beside it/);

    const older = join(elsewhere, 'older.db');
    const db = new DatabaseSync(older);
    db.exec(`${MIGRATIONS[0]}; PRAGMA user_version = 1`);
    db.close();
    const outdated = await run(older);
    assert.equal(outdated.code, 1);
    assert.match(outdated.stderr, /has schema 1, and this Convoke moves schema \d+: bring it up to date first/);

    const newer = join(elsewhere, 'newer.db');
    copyFileSync(file, newer);
    const next = new DatabaseSync(newer);
    next.exec(`PRAGMA user_version = ${MIGRATIONS.length + 1}`);
    next.close();
    assert.match((await run(newer)).stderr, /knows up to \d+: import it with the newer version/);

    const { store, opened } = openSqliteStore(file, null);
    await opened;
    const in_use = await run(file);
    assert.equal(in_use.code, 1);
    assert.match(in_use.stderr, /a running service has .*convoke\.db open: stop it/);
    await store.close();
    assert.equal(await rowsIn(url), 0);
  });

  test('whose commit gets no response says that everything or nothing is there, and how to find out', async (t) => {
    const file = await makeDataFile(t);
    const url = await makeDatabase();
    const proxied = new URL(url);
    const proxy = await CuttingProxy.start(Number(proxied.port));
    t.after(() => proxy.close());
    proxied.port = String(proxy.port);
    let commits = false;
    proxy.onRequest = (bytes) => {
      // The entry in the audit log is the last write before the commit.
      commits ||= bytes.includes('service.import');
      return 'pass';
    };
    proxy.onAnswer = (bytes) => (commits && bytes.includes('COMMIT') ? 'cut' : 'pass');
    const run = (to: string) =>
      convoke(['import', '--from', file, '--data', join(file, '..')], { env: { CONVOKE_DATABASE_URL: to } });
    const in_doubt = await run(proxied.href);
    assert.equal(in_doubt.code, 1);
    assert.match(in_doubt.stderr, /ended during the commit, so either everything is in the database, or nothing/);
    assert.match((await run(url)).stderr, /The database is not empty/);
  });

  test('leaves nothing beside the file of a killed service', async (t) => {
    const data = temporaryDirectory(t);
    const service = await serve(data);
    await new ConvokeClient({ base_url: service.url }).sendMessage('m', {});
    await stop(service, 'SIGKILL');
    const env = { CONVOKE_DATABASE_URL: await makeDatabase() };
    const moved = await convoke(['import', '--from', join(data, 'convoke.db'), '--data', data], { env });
    assert.equal(moved.code, 0, moved.stderr);
    assert.match(moved.stdout, / 1 message,/);
    assert.deepEqual(readdirSync(data), ['convoke.db', 'encryption.key']);
  });

  test('says what to do about an instance whose secret no key decrypts, and imports the file after that', async (t) => {
    const data = temporaryDirectory(t);
    const file = join(data, 'convoke.db');
    const fill = await serve(data);
    const instance = { instance_name: 'n', agent_ids: ['x'], webhook_url: 'http://127.0.0.1:9/' };
    for (const instance_id of ['whole', 'damaged'])
      await new ConvokeClient({ base_url: fill.url }).register({ ...instance, instance_id });
    assert.equal(await stop(fill), 0);
    const db = new DatabaseSync(file);
    db.exec("UPDATE instances SET webhook_secret = substr(webhook_secret, 1, 40) WHERE instance_id = 'damaged'");
    db.close();
    const env = { CONVOKE_DATABASE_URL: await makeDatabase() };
    const run = () => convoke(['import', '--from', file, '--data', data], { env });
    const refused = await run();
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /webhook_secret of "damaged" .*register that instance with a new secret/);
    const service = await serve(data);
    await new ConvokeClient({ base_url: service.url }).deleteInstance('damaged');
    assert.equal(await stop(service), 0);
    const moved = await run();
    assert.match(moved.stdout, /\n1 instance, /, moved.stderr);
  });

  test('does not go where a node is at work', async (t) => {
    const file = await makeDataFile(t);
    const url = await makeDatabase();
    const env = { CONVOKE_DATABASE_URL: url };
    await query(
      url,
      `INSERT INTO nodes (node_id, version, address, started_at, seen_at, lease_until, stopping)
       SELECT 'n', '0', 'a', now_ms, now_ms, now_ms + 3600000, 0
       FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms) clock`,
    );
    const refused = await convoke(['import', '--from', file, '--data', join(file, '..')], { env });
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /Nodes are at work on this database/);
    assert.equal(await rowsIn(url), 0);
  });
});
