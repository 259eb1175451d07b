/** A backup of a running service has every message that was accepted before the backup began, and can be restored. */
import assert from 'node:assert/strict';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient, ConvokeError } from '@convoke/sdk';
import { give } from '../../src/cli/program/commands/backup.ts';
import { copyOf } from '../../src/store/sqlite/file/backups.ts';
import { copyDataFile, copyDatabase, inspectCopy } from '../../src/store/sqlite/file/copy.ts';
import { MIGRATIONS } from '../../src/store/sqlite/migrations.ts';
import { convoke, serve, type Service, stop, temporaryDirectory } from '../support/command_line.ts';
import { AUDIT_ENTRIES, makeDataFile } from '../support/data_file.ts';
import { contentsOf } from '../support/files.ts';
import { startCopies } from '../support/copies.ts';
import { makeDatabase } from '../support/postgres.ts';
import { headerOf, pushOf, type Receiver, startReceiver } from '../support/receiver.ts';
import { assertProblem, ON_A_FILE, startService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

const MEETINGS = ['a', 'b', 'c'];
const WAITING = 200;

/** Starts a service whose only machine is down. */
async function startBehindMachine(t: TestContext): Promise<{ data: string; service: Service; receiver: Receiver }> {
  const data = join(temporaryDirectory(t), 'data');
  const service = await serve(data);
  t.after(() => stop(service, 'SIGKILL'));
  const receiver = await startReceiver(t);
  const client = new ConvokeClient({ base_url: service.url });
  const instance = { instance_id: 'machine', instance_name: 'n', agent_ids: ['x'], webhook_url: receiver.url };
  await client.register(instance);
  for (const meeting_id of MEETINGS) {
    await client.joinMeeting({ instance_id: 'machine', meeting_id, agent_ids: ['x'] });
  }
  await receiver.down();
  return { data, service, receiver };
}

/** Sends to all meetings until the test stops this. Returns the highest accepted seq of each meeting. */
function speak(client: ConvokeClient): { received: () => Map<string, number>; end: () => Promise<void> } {
  const answered = new Map<string, number>(MEETINGS.map((meeting_id) => [meeting_id, 0]));
  const told = new AbortController();
  const speaking = MEETINGS.map(async (meeting_id) => {
    while (!told.signal.aborted) {
      const { seq } = await client.sendMessage(meeting_id, { content: 'x'.repeat(300) });
      answered.set(meeting_id, seq);
    }
  });
  return {
    received: () => new Map(answered),
    async end() {
      told.abort();
      await Promise.all(speaking);
    },
  };
}

test('made under load and put back in another directory, it delivers what was pending, under the same ids and in order', async (t) => {
  const { data, service, receiver } = await startBehindMachine(t);
  const client = new ConvokeClient({ base_url: service.url });
  const speaking = speak(client);
  await until(
    'deliveries that wait',
    () => [...speaking.received().values()].reduce((sum, seq) => sum + seq),
    (count) => count >= WAITING,
  );

  const before = speaking.received();
  const file = join(dirname(data), 'monday.db');
  const made = await convoke(['backup', file, '--url', service.url]);
  const after = speaking.received();
  await speaking.end();
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /monday\.db is whole: \d+ [KM]iB.*\n1 instance, 3 meetings, 3 memberships, \d+ messages, /);
  assert.match(
    made.stderr,
    /under the data key [0-9a-f]{16}\. The copy does not have that key: it is in encryption\.key/,
  );
  assert.equal(statSync(file).mode & 0o777, 0o600);
  for (const rest of [`${file}-wal`, copyOf(join(data, 'convoke.db'))]) assert.ok(!existsSync(rest), rest);
  assert.deepEqual(partsIn(dirname(file)), []);
  assert.ok(
    MEETINGS.some((meeting_id) => after.get(meeting_id)! > before.get(meeting_id)!),
    'it was spoken meanwhile',
  );
  const { pending_deliveries } = inspectCopy(file);
  const ids = await deliveryIds(client);
  const { data: entries } = await client.listAudit({ action: 'service.backup' });
  assert.equal(entries[0]?.principal, 'open', 'who took the data is on record');
  assert.equal(await stop(service), 0);

  const restored = join(dirname(data), 'restored');
  mkdirSync(restored);
  copyFileSync(file, join(restored, 'convoke.db'));
  copyFileSync(join(data, 'encryption.key'), join(restored, 'encryption.key'));
  const again = await serve(restored);
  t.after(() => stop(again, 'SIGKILL'));
  await receiver.up();
  const client_again = new ConvokeClient({ base_url: again.url });
  await client_again.heartbeat('machine');
  const pushes = await receiver.count(pending_deliveries);
  const lanes = new Map<string, number[]>(MEETINGS.map((meeting_id) => [meeting_id, []]));
  for (const push of pushes) {
    const { meeting_id } = pushOf(push);
    const seq = Number(headerOf(push, 'convoke-seq'));
    lanes.get(meeting_id)!.push(seq);
    assert.equal(headerOf(push, 'webhook-id'), ids.get(`${meeting_id} ${seq}`));
  }
  for (const [meeting_id, seqs] of lanes) {
    assert.deepEqual(
      seqs,
      Array.from(seqs, (_, i) => i + 1),
      'in order and without a gap',
    );
    assert.ok(seqs.length >= before.get(meeting_id)!, 'all that was answered before it began');
  }
  assert.equal((await convoke(['audit', 'verify', '--url', again.url])).code, 0);
  assert.equal(await stop(again), 0);
});

/** The copies in a directory that are not complete. */
function partsIn(directory: string): string[] {
  return readdirSync(directory).filter((name) => name.endsWith('.part'));
}

/** The id of every delivery, by meeting and seq. */
async function deliveryIds(client: ConvokeClient): Promise<Map<string, string>> {
  const ids = new Map<string, string>();
  for (let cursor: string | undefined; ;) {
    const page = await client.listDeliveries({ limit: 500, cursor });
    for (const { meeting_id, seq, delivery_id } of page.data) ids.set(`${meeting_id} ${seq}`, delivery_id);
    if (page.next_cursor === null) return ids;
    cursor = page.next_cursor;
  }
}

test('control: copying the file of a running service loses accepted messages', async (t) => {
  const { data, service } = await startBehindMachine(t);
  const client = new ConvokeClient({ base_url: service.url });
  const { seq } = await client.sendMessage('a', {});
  const copied = join(dirname(data), 'copied.db');
  copyFileSync(join(data, 'convoke.db'), copied);
  assert.equal(seq, 1);
  assert.throws(() => assert.equal(inspectCopy(copied).messages, 1));
});

describe('the command', () => {
  test('overwrites nothing, and leaves nothing half done', async (t) => {
    const directory = temporaryDirectory(t);
    const file = join(directory, 'kept.db');
    writeFileSync(file, 'kept');
    const refused = await convoke(['backup', file, '--data', directory]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /kept\.db exists, and a backup overwrites nothing: give another name/);
    assert.equal(readFileSync(file, 'utf8'), 'kept');
    const nothing = await convoke(['backup', join(directory, 'new.db'), '--data', directory]);
    assert.equal(nothing.code, 1);
    assert.match(nothing.stderr, /there is no .*convoke\.db/);
    assert.deepEqual(readdirSync(directory), ['kept.db']);
  });

  test('leaves another backup to the same name alone: the first that is whole has the name', async (t) => {
    const service = await startService(t, ON_A_FILE);
    await service.send('m', { content: 'hello' });
    const { url, held, release } = await holdFirstCopy(t, service.url);
    const directory = temporaryDirectory(t);
    const file = join(directory, 'monday.db');
    const slow = convoke(['backup', file, '--url', url]);
    await inTime('the first copy', held);
    const [part = ''] = partsIn(directory);
    const fast = await convoke(['backup', file, '--url', url]);
    assert.equal(fast.code, 0, fast.stderr);
    release();
    const { code, stderr } = await slow;
    assert.equal(code, 1);
    assert.match(stderr, /monday\.db exists, and a backup overwrites nothing: give another name/);
    assert.equal(inspectCopy(file).messages, 1);
    assert.deepEqual(readdirSync(directory), ['monday.db']);
    assert.ok(
      fast.stderr.includes(`${join(directory, part)} is the file of a backup that still runs, or that was killed`),
    );
  });

  test('copies the file while no service runs, of an older version too and as it is; says where its key is', async (t) => {
    const data = temporaryDirectory(t);
    const file = join(data, 'convoke.db');
    const older = new DatabaseSync(file);
    older.exec(`PRAGMA journal_mode = WAL; ${MIGRATIONS[0]}; PRAGMA user_version = 1`);
    older.exec("INSERT INTO this_file (tag) VALUES ('formertag')");
    older.close();
    const made = await convoke(['backup', join(data, 'copy.db'), '--data', data, '--json']);
    assert.equal(made.code, 0, made.stderr);
    const { schema, key_ids, messages } = JSON.parse(made.stdout) as ReturnType<typeof inspectCopy>;
    assert.deepEqual([schema, key_ids, messages], [1, [], 0]);
    assert.equal((await convoke(['migrate', '--data', data])).code, 0);
    const newer = await convoke(['backup', join(data, 'copy 2.db'), '--data', data]);
    assert.equal(newer.code, 0, newer.stderr);
    assert.ok(newer.stderr.includes(join(data, 'encryption.key')), newer.stderr);
  });

  test('says what to do about a file that is in use, and about PostgreSQL', async (t) => {
    const { data, service } = await startBehindMachine(t);
    const in_use = await convoke(['backup', join(dirname(data), 'x.db'), '--data', data]);
    assert.equal(in_use.code, 1);
    assert.match(in_use.stderr, /a running service has .*convoke\.db open: give its address with --url/);
    assert.equal((await fetch(`${service.url}/readyz`)).status, 200);
    const env = { CONVOKE_DATABASE_URL: 'postgres://convoke@db/convoke' };
    const elsewhere = await convoke(['backup', join(dirname(data), 'y.db')], { env });
    assert.equal(elsewhere.code, 2);
    assert.match(elsewhere.stderr, /pg_dump --format=custom --file=convoke\.dump "\$CONVOKE_DATABASE_URL"/);
  });
});

test('where the data is in PostgreSQL, the file from before the import is no backup, also when CONVOKE_DATA names it', async (t) => {
  const file = await makeDataFile(t);
  const data = dirname(file);
  const to = join(data, 'copy.db');
  const env = { CONVOKE_DATABASE_URL: 'postgres://convoke@db/convoke', CONVOKE_DATA: data };
  const refused = await convoke(['backup', to], { env });
  assert.deepEqual([refused.code, existsSync(to)], [2, false], refused.stdout);
  assert.match(refused.stderr, /pg_dump --format=custom/);
  // The control: the option names the file on purpose.
  const wanted = await convoke(['backup', to, '--data', data], { env });
  assert.equal(wanted.code, 0, wanted.stderr);
});

test('on a file system without hard links a backup gets its name too, and overwrites nothing', async (t) => {
  const directory = temporaryDirectory(t);
  const [part, to] = [join(directory, 'a.part'), join(directory, 'monday.db')];
  const refuse = () => Promise.reject(Object.assign(new Error('no links here'), { code: 'EPERM' }));
  writeFileSync(part, 'whole');
  await give(part, to, refuse);
  assert.deepEqual([readdirSync(directory), readFileSync(to, 'utf8')], [['monday.db'], 'whole']);
  writeFileSync(part, 'another');
  await assert.rejects(give(part, to, refuse), /monday\.db exists, and a backup overwrites nothing/);
  assert.equal(readFileSync(to, 'utf8'), 'whole');
});

test('a backup makes no directory: a missing one may be that of a disk that is not mounted', async (t) => {
  const data = dirname(await makeDataFile(t));
  const missing = join(temporaryDirectory(t), 'backup');
  const { code, stderr } = await convoke(['backup', join(missing, 'copy.db'), '--data', data]);
  assert.deepEqual([code, stderr], [1, `convoke: there is no directory ${missing}: make it, or mount its disk\n`]);
  assert.equal(existsSync(missing), false);
});

/** A service at another address, which holds back the end of the first copy until it is released. */
async function holdFirstCopy(
  t: TestContext,
  origin: string,
): Promise<{ url: string; held: Promise<void>; release: () => void }> {
  const { promise: held, resolve: hold } = Promise.withResolvers<void>();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  let copies = 0;
  const server = createServer(async ({ method = '', url = '' }, response) => {
    const answer = await fetch(origin + url, { method });
    const type = answer.headers.get('content-type') ?? '';
    const body = Buffer.from(await answer.arrayBuffer());
    response.writeHead(answer.status, { 'content-type': type });
    if (type === 'application/octet-stream' && copies++ === 0) {
      response.write(body.subarray(0, 4096));
      hold();
      await released;
      response.end(body.subarray(4096));
    } else response.end(body);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    release();
    server.close().closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, held, release };
}

test('a backup in the place of the file of a killed service is refused beside the log of that file, and stays as it is', async (t) => {
  const data = temporaryDirectory(t);
  const service = await serve(data);
  const client = new ConvokeClient({ base_url: service.url });
  const backup = join(temporaryDirectory(t), 'backup.db');
  await client.sendMessage('before', {});
  assert.equal((await convoke(['backup', backup, '--url', service.url])).code, 0);
  await client.sendMessage('after', {});
  await stop(service, 'SIGKILL');
  const log = join(data, 'convoke.db-wal');
  copyFileSync(backup, join(data, 'convoke.db'));
  const files = contentsOf(data);

  const commands = [
    ['migrate', '--check'],
    ['compact'],
    ['keys', 'list'],
    ['backup', `${backup}.2`],
    ['serve', '--port', '0'],
  ];
  for (const command of commands) {
    const { code, stdout, stderr } = await convoke([...command, '--data', data]);
    assert.deepEqual([code, stdout], [1, ''], command.join(' '));
    assert.match(stderr, /convoke\.db-wal belongs to the file that \S+convoke\.db has replaced.*: remove \S+-wal, /);
  }
  const doctor = await convoke(['doctor', '--data', data, '--port', '0']);
  assert.match(doctor.stdout, /fail +data directory +\S+-wal belongs to the file/);
  assert.deepEqual(contentsOf(data), files);

  rmSync(log);
  const restored = await serve(data);
  t.after(() => stop(restored, 'SIGKILL'));
  const { data: meetings } = await new ConvokeClient({ base_url: restored.url }).listMeetings();
  assert.deepEqual(
    meetings.map(({ meeting_id }) => meeting_id),
    ['before'],
  );
  assert.equal(await stop(restored), 0);
});

describe('over the API', () => {
  test('one copy is made at a time, and handed over once', async (t) => {
    const service = await startService(t, ON_A_FILE);
    await service.send('m', { content: 'hello' });
    const begun = await service.post<{ backup_id: string }>('/api/v1/backups/');
    assert.equal(begun.status, 201, begun.text);
    assertProblem(await service.post('/api/v1/backups/'), 409, 'backup_under_way');
    assertProblem(await service.get('/api/v1/backups/another/'), 404, 'backup_does_not_exist');
    const path = `/api/v1/backups/${begun.body.backup_id}/`;
    const whole = await until(
      'the copy',
      () => service.get(path),
      ({ status }) => status !== 202,
    );
    assert.equal(whole.status, 200);
    assert.equal(whole.headers['content-type'], 'application/octet-stream');
    assert.ok(whole.text.startsWith('SQLite format 3\0'));
    assertProblem(await service.get(path), 404, 'backup_does_not_exist');
    assert.equal((await service.post('/api/v1/backups/')).status, 201, 'the next one may be made');
  });

  test('a service that stops while a copy is made stops as ever, and leaves none behind', async (t) => {
    const { data, service } = await startBehindMachine(t);
    const client = new ConvokeClient({ base_url: service.url });
    await client.beginBackup();
    assert.equal(await stop(service), 0);
    assert.ok(!existsSync(copyOf(join(data, 'convoke.db'))));
    assert.ok(!existsSync(join(data, 'convoke.db-wal')), 'the file is closed');
  });

  test('a disk that is too small for another data file stays as it is', async (t) => {
    const { data, service } = await startBehindMachine(t);
    const client = new ConvokeClient({ base_url: service.url });
    const file = join(data, 'convoke.db');
    const { size } = statSync(file);
    const { bavail, bsize } = statfsSync(data);
    // A hole at the end takes no space, and SQLite uses the number of pages in the header.
    truncateSync(file, size + 2 * bavail * bsize);
    await assert.rejects(
      client.beginBackup(),
      (error) => error instanceof ConvokeError && error.code === 'backup_no_room' && error.status === 507,
    );
    assert.ok(!existsSync(copyOf(file)));
    truncateSync(file, size);
    await client.beginBackup();
  });

  test('a service on PostgreSQL leaves it to the tools of that', async (t) => {
    const service = await startService(t, { database_url: await makeDatabase() });
    const { detail } = assertProblem(await service.post('/api/v1/backups/'), 409, 'backup_not_made_here');
    assert.match(detail, /pg_dump/);
    assertProblem(await service.get('/api/v1/backups/one/'), 409, 'backup_not_made_here');
  });

  test('the SDK says which copies there are not', async (t) => {
    const service = await startService(t, ON_A_FILE);
    const client = new ConvokeClient({ base_url: service.url });
    await assert.rejects(
      client.fetchBackup('none'),
      (error) => error instanceof ConvokeError && error.code === 'backup_does_not_exist',
    );
  });
});

test('a backup that fails at once says why to the next request, and the next backup may begin', async (t) => {
  const data = temporaryDirectory(t);
  const service = await serve(data);
  t.after(() => stop(service, 'SIGKILL'));
  const in_the_way = copyOf(join(data, 'convoke.db'));
  mkdirSync(in_the_way);
  const to = join(temporaryDirectory(t), 'backup.db');
  const failed = await convoke(['backup', to, '--url', service.url]);
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /EISDIR/);
  rmdirSync(in_the_way);
  const made = await convoke(['backup', to, '--url', service.url]);
  assert.equal(made.code, 0, made.stderr);
});

describe('a copy', () => {
  test('that a person made beside the data stays when the service starts, makes a backup and stops', async (t) => {
    const data = temporaryDirectory(t);
    const theirs = ['convoke.db.copy', 'convoke.db.bak', 'convoke.db.backup'];
    for (const name of theirs) writeFileSync(join(data, name), 'theirs');
    const service = await serve(data);
    t.after(() => stop(service, 'SIGKILL'));
    assert.equal((await convoke(['backup', join(data, 'new.db'), '--url', service.url])).code, 0);
    assert.equal(await stop(service), 0);
    assert.deepEqual(readdirSync(data).toSorted(), [...theirs, 'convoke.db', 'encryption.key', 'new.db'].toSorted());
  });

  test('that no client fetches any more is removed, and the next one may be made', async (t) => {
    const { file, backups } = startCopies(t, 1);
    const { backup_id } = await backups.begin();
    await until(
      'the end of the copy',
      () => backups.wait('another', 0).then(() => existsSync(copyOf(file))),
      (exists) => !exists,
    );
    const gone = await until(
      'nothing to be in progress',
      () => backups.begin().catch(() => null),
      (begun) => begun !== null,
    );
    assert.notEqual(gone?.backup_id, backup_id);
  });

  /** A copy of a data file. */
  async function copied(t: TestContext): Promise<string> {
    const file = await makeDataFile(t);
    const to = `${file}.backup`;
    await copyDataFile(file, to);
    return to;
  }

  test('is read from end to end: whole, it is found whole', async (t) => {
    const facts = inspectCopy(await copied(t));
    assert.deepEqual([facts.messages, facts.pending_deliveries, facts.audit_head.seq], [1, 1, AUDIT_ENTRIES]);
    assert.equal(facts.schema, MIGRATIONS.length);
  });

  const DAMAGE: Record<string, [harm: (file: string) => void, says: RegExp]> = {
    'cut short': [(file) => truncateSync(file, 8192), /malformed|not a whole copy/],
    'of something else': [(file) => writeFileSync(file, 'no database'.repeat(1000)), /not a database/],
    'that is empty': [(file) => writeFileSync(file, ''), /no data file of Convoke/],
    'with a page that was overwritten': [
      (file) => {
        const text = readFileSync(file);
        const db = new DatabaseSync(file);
        const { rootpage } = db
          .prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'deliveries_in_lane'")
          .get() as { rootpage: number };
        db.close();
        text.writeUInt16BE(0, (rootpage - 1) * 4096 + 3);
        writeFileSync(file, text);
      },
      /not a whole copy of a data file: .*on page \d+/s,
    ],
    'without the message of a pending delivery': [
      (file) => change(file, 'DELETE FROM messages'),
      /1 pending deliveries have no message/,
    ],
    'whose audit log was changed': [
      (file) =>
        change(file, "DROP TRIGGER audit_log_is_not_changed; UPDATE audit_log SET principal = 'other' WHERE seq = 2"),
      /its audit log is not whole: entry 2: it was changed/,
    ],
  };

  function change(file: string, sql: string): void {
    const db = new DatabaseSync(file);
    db.exec(sql);
    db.close();
  }

  for (const [what, [harm, says]] of Object.entries(DAMAGE)) {
    test(`${what} does not count as one`, async (t) => {
      const file = await copied(t);
      harm(file);
      assert.throws(() => inspectCopy(file), says);
    });
  }

  test('that lacks what was stored before it was begun is not given out', async (t) => {
    const file = await copied(t);
    const db = new DatabaseSync(file);
    const audit_head = { seq: 0, hash: '' };
    for (const floor of [
      { last_message: { meeting_id: 'm', seq: 2 }, audit_head },
      { last_message: null, audit_head: { seq: 3, hash: 'another' } },
    ]) {
      const copying = copyDatabase(db, `${file}.2`, () => {}, floor);
      await assert.rejects(copying, /something is missing that was stored before it was begun/);
    }
    assert.ok(!existsSync(`${file}.2`));
    db.close();
  });
});
