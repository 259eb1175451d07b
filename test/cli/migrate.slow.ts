/** `convoke migrate`: reports the schema, brings it up to date, and does not change a newer schema. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { MIGRATIONS } from '../../src/store/sqlite/migrations.ts';
import { convoke, serve, stop, temporaryDirectory } from '../support/command_line.ts';

const WANTED = MIGRATIONS.length;

function makeFile(data: string, version: number): string {
  const file = join(data, 'convoke.db');
  const db = new DatabaseSync(file);
  db.exec('PRAGMA journal_mode = WAL');
  for (const step of MIGRATIONS.slice(0, version)) db.exec(step);
  db.exec(`PRAGMA user_version = ${version}`);
  if (version <= WANTED) db.exec("INSERT INTO this_file (tag) VALUES ('formertag')");
  db.close();
  return file;
}

test('an older schema is reported, brought up to date on request, and the service starts on it', async (t) => {
  const data = temporaryDirectory(t);
  const file = makeFile(data, 1);
  const before = readFileSync(file);
  const outdated = await convoke(['migrate', '--check', '--data', data]);
  assert.deepEqual([outdated.code, outdated.stderr], [1, '']);
  assert.match(
    outdated.stdout,
    new RegExp(`^the schema is 1, and this Convoke wants ${WANTED}: run (npx )?convoke migrate`),
  );
  assert.deepEqual(readFileSync(file), before, '--check changes nothing');

  const done = await convoke(['migrate', '--data', data]);
  assert.deepEqual([done.code, done.stdout], [0, `the schema was 1, and is ${WANTED} now\n`], done.stderr);
  const again = await convoke(['migrate', '--data', data, '--json']);
  assert.deepEqual(JSON.parse(again.stdout), { present: WANTED, wanted: WANTED, was: WANTED });
  const checked = await convoke(['migrate', '--check', '--data', data]);
  assert.deepEqual([checked.code, checked.stdout.includes('nothing to do')], [0, true]);

  const service = await serve(data);
  t.after(() => stop(service, 'SIGKILL'));
  const in_use = await convoke(['migrate', '--data', data]);
  assert.equal(in_use.code, 1);
  assert.match(in_use.stderr, /a running service has .* open, and brought it up to date when it started/);
  assert.equal(await stop(service), 0);
});

test('a newer schema is refused with a sentence, and stays as it is', async (t) => {
  const data = temporaryDirectory(t);
  const file = makeFile(data, WANTED + 1);
  const before = readFileSync(file);
  for (const flags of [[], ['--check']]) {
    const { code, stdout, stderr } = await convoke(['migrate', ...flags, '--data', data]);
    assert.equal(code, 1);
    assert.match(
      stdout + stderr,
      new RegExp(`the schema is ${WANTED + 1}, and this Convoke knows up to ${WANTED}: start the newer version`),
    );
  }
  const { code, stdout } = await convoke(['doctor', '--port', '0', '--data', data]);
  assert.equal(code, 1);
  assert.match(stdout, /\nfail +data directory +the schema is \d+, .*: start the newer version that made it\n/);
  assert.deepEqual(readFileSync(file), before);
});

test('a look at a data file leaves nothing beside it, and a link leads to the file that is in use', async (t) => {
  const data = temporaryDirectory(t);
  makeFile(data, WANTED);
  const look = ['migrate', '--check', '--data'];
  assert.equal((await convoke([...look, data])).code, 0);
  await convoke(['doctor', '--port', '0', '--data', data]);
  assert.deepEqual(readdirSync(data), ['convoke.db']);

  const service = await serve(data);
  t.after(() => stop(service, 'SIGKILL'));
  const linked = temporaryDirectory(t);
  symlinkSync(join(data, 'convoke.db'), join(linked, 'convoke.db'));
  for (const directory of [data, linked]) {
    assert.match((await convoke([...look, directory])).stderr, /a running service has .* open/, directory);
    const { stdout } = await convoke(['doctor', '--port', '0', '--data', directory]);
    assert.match(stdout, /\nwarn +data directory +\S+convoke\.db is in use/);
  }
});

test('a look at the data of a killed service leaves its directory as it is', async (t) => {
  const data = temporaryDirectory(t);
  const service = await serve(data);
  await stop(service, 'SIGKILL');
  const before = readdirSync(data);
  assert.ok(before.includes('convoke.db-wal'), 'a part of the data is in the log');
  assert.equal((await convoke(['migrate', '--check', '--data', data])).code, 0);
  assert.match((await convoke(['doctor', '--port', '0', '--data', data])).stdout, /the data file is not in use/);
  assert.deepEqual(readdirSync(data), before);
});

test('a file that is no data file is named', async (t) => {
  const data = temporaryDirectory(t);
  const file = join(data, 'convoke.db');
  writeFileSync(file, 'no database'.repeat(1000));
  const migrated = await convoke(['migrate', '--data', data]);
  const env = { CONVOKE_DATABASE_URL: 'postgres://convoke@127.0.0.1:9/convoke' };
  const imported = await convoke(['import', '--from', file, '--data', data], { env });
  for (const { code, stderr } of [migrated, imported])
    assert.deepEqual([code, stderr], [1, `convoke: ${file} cannot be read: file is not a database\n`]);
  const listed = await convoke(['keys', '--data', data]);
  const advice = 'restore it, or give another directory with --data';
  assert.equal(listed.stderr, `convoke: ${file} is not a data file of Convoke, or is damaged; ${advice}\n`);
});

test('where there is no data, none is made', async (t) => {
  const data = temporaryDirectory(t);
  const { code, stderr } = await convoke(['migrate', '--data', data]);
  assert.equal(code, 1);
  assert.match(stderr, /there is no .*convoke\.db; give --data of a data directory/);
  assert.ok(!existsSync(join(data, 'convoke.db')));
});
