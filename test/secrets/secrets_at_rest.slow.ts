/**
 * Secrets in a data file: no secret is in plain text, only the key of the file decrypts them, and the key can be
 * changed.
 */
import assert from 'node:assert/strict';
import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, test, type TestContext } from 'node:test';
import { KEY_FILE } from '../../src/domain/data_directory.ts';
import type { DataKeys } from '../../src/store/secrets/data_keys.ts';
import { encrypt, makeDataKey } from '../../src/store/secrets/secret_cipher.ts';
import { Database } from '../../src/store/sqlite/database.ts';
import { apiKeyOperations } from '../../src/store/sqlite/api_keys.ts';
import { instanceOperations } from '../../src/store/sqlite/instances.ts';
import { MIGRATIONS } from '../../src/store/sqlite/migrations.ts';
import type { Instance } from '../../src/domain/instance.ts';
import { SECRET_COLUMNS } from '../../src/store/secrets/instance_secrets.ts';
import { NumberSource } from '../../src/domain/id.ts';
import { Recipients } from '../../src/store/sqlite/meeting_recipients.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import type { Registration } from '../../src/store/contract/instances.ts';
import type { Store } from '../../src/store/store.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { contentsOf, copyFiles } from '../support/files.ts';
import { MINUTE, SECOND, SECRET, startNode, temporaryFile } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

const WALL = 1_767_225_600_000;

/** Makes a random text that occurs nowhere else. */
const canary = (name: string): string => `CANARY-${name}-${randomBytes(12).toString('hex')}`;

function makeSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

function registrationOf(instance_id: string, changes: Partial<Registration> = {}): Registration {
  return {
    instance_id,
    instance_name: instance_id,
    agent_ids: ['a'],
    webhook_url: `http://${instance_id}.test/`,
    webhook_headers: { authorization: `Bearer ${canary('header')}` },
    runtime: { name: 'openai', options: { model: 'm', system: canary('option') } },
    webhook_secret: makeSecret(),
    new_secret: makeSecret(),
    success_statuses: undefined,
    ...changes,
  };
}

type GivenKeys = { current: KeyObject; previous: KeyObject | null };

const randomKey = (): KeyObject => createSecretKey(randomBytes(32));

async function openStore(t: TestContext, file: string, keys: GivenKeys | null = null): Promise<Store> {
  const { store, opened } = openSqliteStore(file, keys);
  t.after(() => store.close());
  await opened;
  return store;
}

/** Asserts that the store does not open. Returns the error. Then no process has the file open. */
async function refusal(file: string, keys: GivenKeys | null = null): Promise<StoreError> {
  const { store, opened } = openSqliteStore(file, keys);
  try {
    await opened;
  } catch (error) {
    assert.ok(error instanceof StoreError);
    return error;
  }
  await store.close();
  assert.fail('this must not open');
}

/** The secrets that are in plain text in the data file or in a file beside it, each with the name of the file. */
function legible(file: string, secrets: readonly string[]): string[] {
  const found: string[] = [];
  for (const [name, bytes] of contentsOf(dirname(file))) {
    for (const secret of secrets) {
      for (const text of [secret, secret.replace('whsec_', ''), secret.replace('Bearer ', '')]) {
        if (bytes.includes(text)) found.push(`${text} in ${name}`);
      }
    }
  }
  return found;
}

const bearerOf = ({ webhook_headers }: Registration): string => webhook_headers!['authorization']!;

const optionOf = ({ runtime }: Registration): string => runtime!.options['system'] as string;

/** Writes into the file without the store. */
function tamper(file: string, sql: string, ...parameters: string[]): void {
  const db = new DatabaseSync(file);
  assert.equal(db.prepare(sql).run(...parameters).changes, 1);
  db.close();
}

function sealedOf(file: string, instance_id: string, column: string): string {
  const db = new DatabaseSync(file);
  const row = db.prepare(`SELECT ${column} AS text FROM instances WHERE instance_id = ?`).get(instance_id);
  db.close();
  return (row as { text: string }).text;
}

function secretsBefore(instance: Instance | undefined): string[] {
  return instance?.earlier_secrets.map(({ value }) => value) ?? [];
}

describe('in the file', () => {
  test('no secret is legible: given, made, previous, nor a header; neither while it is open nor later', async (t) => {
    const file = temporaryFile(t);
    const store = await openStore(t, file);
    const given = registrationOf('given');
    const made = registrationOf('made', { webhook_secret: undefined });
    const rotated = registrationOf('rotated');
    const new_secret = makeSecret();
    const new_header = canary('patched');
    for (const each of [given, made, rotated]) await store.instances.register(each, WALL);
    await store.instances.rotateSecret('rotated', new_secret, 60_000, WALL);
    const newest_secret = makeSecret();
    await store.instances.rotateSecret('rotated', newest_secret, 60_000, WALL);
    await store.instances.patch('given', { webhook_headers: { 'x-key': new_header } }, WALL);

    const secrets = [given.webhook_secret!, made.new_secret, rotated.webhook_secret!, new_secret, newest_secret];
    secrets.push(new_header);
    secrets.push(...[given, made, rotated].flatMap((each) => [bearerOf(each), optionOf(each)]));
    assert.deepEqual(legible(file, secrets), []);
    await store.close();
    assert.deepEqual(legible(file, secrets), []);

    const again = await openStore(t, file);
    const [a, b, c] = await again.instances.load(['given', 'made', 'rotated']);
    assert.deepEqual(a?.webhook_headers, { 'x-key': new_header });
    assert.deepEqual(a?.runtime, given.runtime);
    assert.equal(b?.webhook_secret, made.new_secret);
    assert.deepEqual([c?.webhook_secret, ...secretsBefore(c)], [newest_secret, new_secret, rotated.webhook_secret]);
  });

  test('control: with the cipher taken out, each of them is found', (t) => {
    const file = temporaryFile(t);
    const db = new Database(file);
    const no_cipher = { encrypt: (text: string) => text, decrypt: (text: string) => text } as unknown as DataKeys;
    const instances = instanceOperations(
      db,
      no_cipher,
      new NumberSource(Date.now, 0),
      new Recipients(db),
      apiKeyOperations(db),
    );
    const registration = registrationOf('plain');
    instances.register(registration, WALL);
    const new_secret = makeSecret();
    instances.rotateSecret('plain', new_secret, 60_000, WALL);
    const secrets = [registration.webhook_secret!, bearerOf(registration), optionOf(registration), new_secret];
    for (const secret of secrets) assert.notDeepEqual(legible(file, [secret]), [], secret);
    db.close();
    for (const secret of secrets) assert.notDeepEqual(legible(file, [secret]), [], secret);
  });

  test('registering again keeps, or replaces, secret and previous secret as it did before they were encrypted', async (t) => {
    const store = await openStore(t, temporaryFile(t));
    const first = registrationOf('i');
    await store.instances.register(first, WALL);
    const second = makeSecret();
    await store.instances.rotateSecret('i', second, 60_000, WALL);

    const kept = registrationOf('i', { webhook_secret: undefined, webhook_headers: undefined });
    const { instance } = await store.instances.register(kept, WALL);
    assert.deepEqual([instance.webhook_secret, ...secretsBefore(instance)], [second, first.webhook_secret]);
    assert.deepEqual(instance.webhook_headers, first.webhook_headers);

    const same = await store.instances.register({ ...kept, webhook_secret: second }, WALL);
    assert.deepEqual(secretsBefore(same.instance), [first.webhook_secret], 'the same secret is no new one');

    const third = makeSecret();
    const replaced = await store.instances.register({ ...kept, webhook_secret: third, webhook_headers: {} }, WALL);
    assert.deepEqual([replaced.instance.webhook_secret, ...secretsBefore(replaced.instance)], [third]);
    assert.deepEqual(replaced.instance.webhook_headers, {});
  });

  test('a ciphertext that was moved to another row or column, or changed, cannot be decrypted; other rows can', async (t) => {
    const file = temporaryFile(t);
    const store = await openStore(t, file);
    const mine = registrationOf('mine');
    for (const each of [mine, registrationOf('theirs'), registrationOf('third')]) {
      await store.instances.register(each, WALL);
    }
    await store.close();
    const secret = sealedOf(file, 'mine', 'webhook_secret');
    const headers = sealedOf(file, 'mine', 'webhook_headers');
    const flipped = secret.slice(0, -10) + (secret.at(-10) === 'A' ? 'B' : 'A') + secret.slice(-9);

    for (const [column, text] of [
      // Otherwise pushes to `theirs` would carry credentials of `mine`, or a signature with the secret that the machine
      // of `mine` knows.
      ['webhook_secret', secret],
      ['webhook_headers', headers],
      ['webhook_headers', sealedOf(file, 'theirs', 'webhook_secret')],
      ['previous_secret', sealedOf(file, 'theirs', 'webhook_secret')],
      ['webhook_secret', flipped],
      ['webhook_secret', mine.webhook_secret!],
    ] as const) {
      const copy = join(dirname(temporaryFile(t)), 'convoke.db');
      copyFiles(dirname(file), dirname(copy));
      tamper(copy, `UPDATE instances SET ${column} = ? WHERE instance_id = 'theirs'`, text);
      const opened = await openStore(t, copy);
      await assert.rejects(opened.instances.load(['theirs']), { name: 'StoreError', code: 'SECRET_UNREADABLE' });
      await assert.rejects(opened.instances.get('theirs'), { name: 'StoreError', code: 'SECRET_UNREADABLE' });
      assert.equal((await opened.instances.load(['mine', 'third'])).length, 2);
      // New secrets repair the instance.
      const repaired = registrationOf('theirs');
      await opened.instances.register(repaired, WALL);
      assert.equal((await opened.instances.get('theirs'))?.webhook_secret, repaired.webhook_secret);
      await opened.close();
    }

    // Control: when the secrets are back in their own rows, they can be decrypted.
    tamper(file, `UPDATE instances SET webhook_secret = ? WHERE instance_id = 'mine'`, secret);
    const untouched = await openStore(t, file);
    assert.equal((await untouched.instances.get('mine'))?.webhook_secret, mine.webhook_secret);
  });
});

describe('the key', () => {
  async function filled(t: TestContext): Promise<{ file: string; key_file: string; registration: Registration }> {
    const file = temporaryFile(t);
    const registration = registrationOf('i');
    const store = await openStore(t, file);
    await store.instances.register(registration, WALL);
    await store.close();
    return { file, key_file: join(dirname(file), KEY_FILE), registration };
  }

  test('is made at the first start, in a file of its own that this user alone may read, and found again', async (t) => {
    const { file, key_file, registration } = await filled(t);
    assert.equal(statSync(key_file).mode & 0o777, 0o600);
    const text = readFileSync(key_file, 'utf8');
    assert.match(text, /^[A-Za-z0-9+/]{43}=\n$/);
    assert.ok(!readFileSync(file).includes(Buffer.from(text, 'base64')));
    assert.ok(!readFileSync(file).includes(text.trim()));
    const again = await openStore(t, file);
    assert.equal((await again.instances.get('i'))?.webhook_secret, registration.webhook_secret);
    assert.equal(readFileSync(key_file, 'utf8'), text);
  });

  test('that is missing while something is encrypted is not replaced: the start is refused', async (t) => {
    const { file, key_file, registration } = await filled(t);
    const key = readFileSync(key_file);
    rmSync(key_file);
    const { code, message } = await refusal(file);
    assert.equal(code, 'ENCRYPTION_KEY_MISSING');
    assert.match(message, /encryption\.key is missing.*put it back from its backup/);
    assert.throws(() => statSync(key_file), 'no other was made');
    writeFileSync(key_file, key, { mode: 0o600 });
    const again = await openStore(t, file);
    assert.equal((await again.instances.get('i'))?.webhook_secret, registration.webhook_secret, 'control');
  });

  test('that belongs to another file is refused, and so is one that claims the id of the right one', async (t) => {
    const { file, key_file } = await filled(t);
    const right = readFileSync(key_file);
    const other = makeDataKey();
    writeFileSync(key_file, `${other.key.export().toString('base64')}\n`);
    const { code, message } = await refusal(file);
    assert.equal(code, 'ENCRYPTION_KEY_WRONG');
    assert.match(message, new RegExp(`and the one given is ${other.key_id}`));
    assert.ok(!message.includes(other.key.export().toString('base64').slice(0, 10)));

    // The check value decides, not the id alone.
    writeFileSync(key_file, right);
    const forged = encrypt(other, 'convoke', { table: 'encryption_keys', column: 'check_value', row: 'x' });
    tamper(file, 'UPDATE encryption_keys SET check_value = ?', forged);
    assert.equal((await refusal(file)).code, 'ENCRYPTION_KEY_WRONG');
  });

  test('that others may read is refused until its mode is right', async (t) => {
    const { file, key_file } = await filled(t);
    for (const mode of [0o640, 0o604, 0o620, 0o666, 0o601]) {
      chmodSync(key_file, mode);
      const { code, message } = await refusal(file);
      assert.equal(code, 'ENCRYPTION_KEY_UNPROTECTED');
      assert.match(message, new RegExp(`mode ${mode.toString(8)}\\): run chmod 600`));
    }
    for (const mode of [0o600, 0o400]) {
      chmodSync(key_file, mode);
      await (await openStore(t, file)).close();
    }
  });

  test('that is damaged is refused, and the error does not contain it', async (t) => {
    const { file, key_file } = await filled(t);
    const key = readFileSync(key_file, 'utf8');
    for (const text of ['', '\n', key.slice(1), `${key}${key}${key}`, `${key}nothing\n`, `#${key}`]) {
      writeFileSync(key_file, text);
      const { code, message } = await refusal(file);
      assert.equal(code, 'ENCRYPTION_KEY_MALFORMED', JSON.stringify(text));
      assert.ok(!message.includes(key.slice(1, 9)));
    }
  });

  test('that is a setting is used instead, and no file is made', async (t) => {
    const file = temporaryFile(t);
    const keys = { current: randomKey(), previous: null };
    const registration = registrationOf('i');
    const store = await openStore(t, file, keys);
    await store.instances.register(registration, WALL);
    await assert.rejects(store.encryption.changeKey(WALL), { name: 'Problem', code: 'encryption_key_given' });
    await store.close();
    assert.throws(() => statSync(join(dirname(file), KEY_FILE)));
    assert.equal((await refusal(file)).code, 'ENCRYPTION_KEY_MISSING');
    const { code, message } = await refusal(file, { current: randomKey(), previous: null });
    assert.equal(code, 'ENCRYPTION_KEY_WRONG');
    assert.match(message, /CONVOKE_ENCRYPTION_KEY_PREVIOUS/);
    const again = await openStore(t, file, keys);
    assert.equal((await again.instances.get('i'))?.webhook_secret, registration.webhook_secret);
  });

  test('whose record was removed from the file does not let what is encrypted pass for plain text', async (t) => {
    const { file } = await filled(t);
    tamper(file, 'DELETE FROM encryption_keys');
    const { code } = await refusal(file);
    assert.equal(code, 'SECRET_UNREADABLE');
  });
});

describe('changing the key', () => {
  const COUNT = 30;

  async function fleet(t: TestContext, keys: GivenKeys | null = null) {
    const file = temporaryFile(t);
    const store = await openStore(t, file, keys);
    const registrations = Array.from({ length: COUNT }, (_, i) => registrationOf(`i${i}`));
    await Promise.all(registrations.map((each) => store.instances.register(each, WALL)));
    for (const secret of [makeSecret(), makeSecret()]) await store.instances.rotateSecret('i7', secret, 60_000, WALL);
    return { file, store, registrations };
  }

  async function finish(store: Store): Promise<number> {
    await store.encryption.changeKey(WALL);
    let rewritten = 0;
    for (let after: string | null = null; ;) {
      const step = await store.encryption.reencrypt(after, 7);
      rewritten += step.rewritten;
      after = step.next;
      if (after === null) break;
    }
    await store.encryption.endChange();
    await store.encryption.forgetPreviousKey();
    return rewritten;
  }

  async function assertAllOpen(store: Store, registrations: Registration[]): Promise<void> {
    const instances = await store.instances.load(registrations.map(({ instance_id }) => instance_id));
    assert.equal(instances.length, registrations.length);
    for (const { instance_id, webhook_headers, webhook_secret } of registrations) {
      const found = instances.find((each) => each.instance_id === instance_id);
      assert.deepEqual(found?.webhook_headers, webhook_headers);
      const secrets = [found?.webhook_secret, ...secretsBefore(found)];
      assert.ok(secrets.includes(webhook_secret), instance_id);
    }
  }

  const keyLines = (file: string): string[] =>
    readFileSync(join(dirname(file), KEY_FILE), 'utf8')
      .trimEnd()
      .split('\n');

  test('rewrites every row, drops the old key, and leaves no row under it', async (t) => {
    const { file, store, registrations } = await fleet(t);
    const before = await store.encryption.keyIds();
    const [old_key] = keyLines(file);
    assert.equal(await finish(store), COUNT);
    const after = await store.encryption.keyIds();
    assert.notEqual(after.key_id, before.key_id);
    assert.deepEqual(after.previous_key_ids, []);
    await assertAllOpen(store, registrations);
    await store.close();

    assert.equal(keyLines(file).length, 1);
    assert.notEqual(keyLines(file)[0], old_key);
    assert.equal(statSync(join(dirname(file), KEY_FILE)).mode & 0o777, 0o600);
    for (const column of SECRET_COLUMNS) {
      assert.ok(sealedOf(file, 'i7', column).startsWith(`v1.${after.key_id}.`), column);
    }
    await assertAllOpen(await openStore(t, file), registrations);
  });

  test('with what comes meanwhile: new instances, rotated secrets, patched headers', async (t) => {
    const { store, registrations } = await fleet(t);
    await store.encryption.changeKey(WALL);
    const { next } = await store.encryption.reencrypt(null, 10);
    const early = registrationOf('a-before-the-cursor');
    const late = registrationOf('z-behind-the-cursor');
    await Promise.all([store.instances.register(early, WALL), store.instances.register(late, WALL)]);
    await store.instances.rotateSecret('i9', makeSecret(), 60_000, WALL);
    await store.instances.patch('i8', { webhook_headers: { 'x-new': 'x' } }, WALL);
    registrations[8]!.webhook_headers = { 'x-new': 'x' };
    assert.notEqual(next, null);
    await finish(store);
    await assertAllOpen(store, [...registrations, early, late]);
  });

  test('that is killed at any moment leaves files that open, and can be ended by running it again', async (t) => {
    const { file, store, registrations } = await fleet(t);
    const key_file = join(dirname(file), KEY_FILE);
    const moments: string[] = [];
    const snapshot = (): string => {
      const copy = temporaryFile(t);
      copyFiles(dirname(file), dirname(copy));
      moments.push(copy);
      return copy;
    };
    const before = snapshot();
    await store.encryption.changeKey(WALL);
    // A kill when the new key was in its file, but the transaction that notes it had not ended.
    copyFileSync(key_file, join(dirname(before), KEY_FILE));
    snapshot();
    let rewritten = 0;
    for (let after: string | null = null; ;) {
      const step = await store.encryption.reencrypt(after, 7);
      rewritten += step.rewritten;
      snapshot();
      after = step.next;
      if (after === null) break;
    }
    assert.equal(rewritten, COUNT);
    await store.encryption.endChange();
    // The key file still holds the previous key.
    const ended = snapshot();
    await store.encryption.forgetPreviousKey();
    snapshot();
    assert.ok(moments.length >= 8);

    for (const [i, moment] of moments.entries()) {
      const opened = await openStore(t, moment);
      await assertAllOpen(opened, registrations);
      const { key_id, previous_key_ids } = await opened.encryption.keyIds();
      if (previous_key_ids.length > 0) {
        assert.equal(keyLines(moment).length, 2, `moment ${i}`);
        await finish(opened);
        assert.equal((await opened.encryption.keyIds()).key_id, key_id, 'the same change, and not another');
      } else {
        assert.ok(moment === ended || i === moments.length - 1);
      }
      assert.equal(keyLines(moment).length, 1);
      await assertAllOpen(opened, registrations);
      await opened.close();
    }
  });

  test('control: without the old key, a file in the middle of a change does not open', async (t) => {
    const { file, store } = await fleet(t);
    await store.encryption.changeKey(WALL);
    await store.encryption.reencrypt(null, 7);
    await store.close();
    writeFileSync(join(dirname(file), KEY_FILE), `${keyLines(file)[0]}\n`);
    assert.equal((await refusal(file)).code, 'ENCRYPTION_KEY_WRONG');
  });

  test('leaves files that name both keys when one is missing, whichever it is', async (t) => {
    const { file, store } = await fleet(t);
    await store.encryption.changeKey(WALL);
    const { key_id, previous_key_ids } = await store.encryption.keyIds();
    await store.close();
    for (const line of keyLines(file)) {
      const alone = temporaryFile(t);
      copyFiles(dirname(file), dirname(alone));
      writeFileSync(join(dirname(alone), KEY_FILE), `${line}\n`);
      const { message } = await refusal(alone);
      for (const id of [key_id, ...previous_key_ids]) assert.ok(message.includes(id), message);
      assert.match(message, /put both keys into \S+encryption\.key, each on a line of its own/);
      const given = { current: createSecretKey(line, 'base64'), previous: null };
      assert.match((await refusal(alone, given)).message, /give both, as CONVOKE_ENCRYPTION_KEY and \S+_PREVIOUS\./);
    }
  });

  test('is not over while something is under the old key', async (t) => {
    const { store, registrations } = await fleet(t);
    await store.encryption.changeKey(WALL);
    await store.encryption.reencrypt(null, 7);
    await assert.rejects(store.encryption.endChange());
    await store.encryption.forgetPreviousKey();
    await assertAllOpen(store, registrations);
    assert.equal((await store.encryption.keyIds()).previous_key_ids.length, 1);
  });

  test('that is a setting: the new one and the old one are given, then only the new one', async (t) => {
    const old_key = randomKey();
    const { file, store, registrations } = await fleet(t, { current: old_key, previous: null });
    await store.close();
    const new_key = randomKey();
    const both = await openStore(t, file, { current: new_key, previous: old_key });
    await assertAllOpen(both, registrations);
    assert.equal((await both.encryption.keyIds()).previous_key_ids.length, 1);
    await both.close();
    assert.equal((await refusal(file, { current: new_key, previous: null })).code, 'ENCRYPTION_KEY_WRONG');
    const again = await openStore(t, file, { current: new_key, previous: old_key });
    assert.equal(await finish(again), COUNT);
    await again.close();
    const alone = await openStore(t, file, { current: new_key, previous: null });
    await assertAllOpen(alone, registrations);
    assert.equal(
      (await refusal(temporaryCopy(t, file), { current: old_key, previous: null })).code,
      'ENCRYPTION_KEY_WRONG',
    );
  });

  test('from a file to a setting, and back', async (t) => {
    const { file, store, registrations } = await fleet(t);
    await store.close();
    const key_file = join(dirname(file), KEY_FILE);
    const old_key = createSecretKey(Buffer.from(keyLines(file)[0]!, 'base64'));
    const new_key = randomKey();
    const given = await openStore(t, file, { current: new_key, previous: old_key });
    await finish(given);
    await given.close();
    writeFileSync(key_file, `${new_key.export().toString('base64')}\n`, { mode: 0o600 });
    await assertAllOpen(await openStore(t, file), registrations);
  });
});

test('an instance whose secrets cannot be decrypted delays no other, is reported, and continues in order with new ones', async (t) => {
  const file = temporaryFile(t);
  const node = await startNode(t, { file });
  await node.meeting('m', 'well', 'tampered');
  node.transport.answer('tampered', HANGS);
  node.transport.answer('well', HANGS);
  await node.sendMany('m', 3);
  await node.clock.advance(SECOND);
  await node.close();
  tamper(file, `UPDATE instances SET webhook_secret = 'v1.0.' WHERE instance_id = 'tampered'`);

  node.transport.cut();
  node.clock.forgetTimers();
  for (const instance_id of ['well', 'tampered']) node.transport.answer(instance_id, 200);
  const pushed = (instance_id: string): number[] => node.transport.to(instance_id).map(({ seq }) => seq);
  const before = pushed('tampered').length;
  await node.open();
  await node.clock.advance(SECOND);
  assert.deepEqual(pushed('well').slice(-3), [1, 2, 3]);
  assert.equal(pushed('tampered').length, before);
  assert.deepEqual(
    node.storage_errors.map((error) => (error as { code: string }).code),
    ['SECRET_UNREADABLE'],
  );
  await node.sendMany('m', 2);
  await node.clock.advance(2 * MINUTE);
  assert.deepEqual(pushed('well').slice(-2), [4, 5]);
  assert.equal(pushed('tampered').length, before);
  assert.equal(node.storage_errors.length, 3, 'once a minute');

  const registration = registrationOf('tampered', { webhook_url: 'http://tampered.test/hook', webhook_secret: SECRET });
  const { instance } = await node.store.instances.register(registration, node.clock.wall());
  node.engine.instanceChanged(instance, true);
  await node.clock.advance(SECOND);
  assert.deepEqual(pushed('tampered').slice(before), [1, 2, 3, 4, 5]);
});

function temporaryCopy(t: TestContext, file: string): string {
  const copy = temporaryFile(t);
  copyFiles(dirname(file), dirname(copy));
  return copy;
}

describe('a file of the previous version', () => {
  const COUNT = 200;

  /** A file as version 0.1.0 wrote it and a kill left it: with secrets in free pages and in the WAL. */
  function formerFile(t: TestContext): { file: string; current: Registration[]; gone: string[] } {
    const made = temporaryFile(t);
    mkdirSync(dirname(made), { recursive: true });
    const db = new DatabaseSync(made);
    db.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0');
    db.exec(MIGRATIONS[0]!);
    db.exec("PRAGMA user_version = 1; INSERT INTO this_file (tag) VALUES ('formertag')");
    const insert =
      db.prepare(`INSERT INTO instances (instance_id, instance_name, agent_ids, webhook_url, webhook_headers,
      webhook_secret, previous_secret, success_statuses, webhook_enabled, is_active, created_at, updated_at)
      VALUES (?, 'n', '["a"]', 'http://i.test/', ?, ?, ?, '200', 1, 1, 0, 0)`);
    const write = (instance_id: string): Registration => {
      const registration = registrationOf(instance_id, { new_secret: makeSecret() });
      const { webhook_headers, webhook_secret, new_secret } = registration;
      insert.run(instance_id, JSON.stringify(webhook_headers), webhook_secret!, new_secret);
      return registration;
    };
    const removed = Array.from({ length: COUNT }, (_, i) => write(`removed${i}`));
    const current = Array.from({ length: COUNT }, (_, i) => write(`i${i}`));
    db.exec('PRAGMA wal_checkpoint(PASSIVE)');
    db.exec("DELETE FROM instances WHERE instance_id LIKE 'removed%'");
    const rotated = current[3]!;
    const former_secret = rotated.webhook_secret!;
    rotated.webhook_secret = makeSecret();
    db.prepare('UPDATE instances SET webhook_secret = ? WHERE instance_id = ?').run(rotated.webhook_secret, 'i3');

    const file = temporaryFile(t);
    copyFileSync(made, file);
    copyFileSync(`${made}-wal`, `${file}-wal`);
    db.close();
    return { file, current, gone: [former_secret, ...removed.map(({ webhook_secret }) => webhook_secret!)] };
  }

  const secretsOf = (registrations: Registration[]): string[] =>
    registrations.flatMap((each) => [each.webhook_secret!, each.new_secret, bearerOf(each)]);

  test('is encrypted at its first start: no secret is left in any file, not even of what was deleted', async (t) => {
    const { file, current, gone } = formerFile(t);
    for (const secrets of [secretsOf(current), gone]) {
      assert.notDeepEqual(legible(file, secrets), [], 'control: they are there before');
    }
    const store = await openStore(t, file);
    assert.deepEqual(legible(file, [...secretsOf(current), ...gone]), []);
    const instances = await store.instances.load(current.map(({ instance_id }) => instance_id));
    assert.equal(instances.length, COUNT);
    for (const { instance_id, webhook_secret, earlier_secrets, webhook_headers } of instances) {
      const previous = current.find((each) => each.instance_id === instance_id)!;
      assert.deepEqual(
        [webhook_secret, earlier_secrets[0]?.value, webhook_headers],
        [previous.webhook_secret, previous.new_secret, previous.webhook_headers],
      );
    }
    await store.close();
    assert.deepEqual(legible(file, [...secretsOf(current), ...gone]), []);
    await openStore(t, file);
  });

  test('control: without the rewriting of the file, what was deleted or replaced is still found', async (t) => {
    const { file, current, gone } = formerFile(t);
    const db = new DatabaseSync(file);
    for (const step of MIGRATIONS.slice(1)) db.exec(step);
    db.exec(`PRAGMA user_version = ${MIGRATIONS.length}; UPDATE this_file SET plain_text_left = 0`);
    db.close();
    await (await openStore(t, file)).close();
    assert.notDeepEqual(legible(file, [...secretsOf(current), ...gone]), []);
  });

  test('is rewritten at the next start when the first one was killed before', async (t) => {
    const { file, current, gone } = formerFile(t);
    const db = new DatabaseSync(file);
    for (const step of MIGRATIONS.slice(1)) db.exec(step);
    // The rows are encrypted and committed; the file is not rewritten yet.
    db.exec(`PRAGMA user_version = ${MIGRATIONS.length}; UPDATE this_file SET plain_text_left = 0`);
    db.close();
    await (await openStore(t, file)).close();
    tamper(file, 'UPDATE this_file SET plain_text_left = 1');
    await openStore(t, file);
    assert.deepEqual(legible(file, [...secretsOf(current), ...gone]), []);
  });
});
