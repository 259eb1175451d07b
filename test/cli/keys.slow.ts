/** `convoke keys`, and keys in the other commands: real processes, with a service and without. */
import assert from 'node:assert/strict';
import { chmodSync, existsSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type ApiKey, type ApiKeyWithToken, ConvokeClient, type CreateKeyInput } from '@convoke/sdk';
import {
  convoke,
  deadUrl,
  type Ended,
  serve,
  serveOnTerminal,
  type Service,
  stop,
  temporaryDirectory,
} from '../support/command_line.ts';
import { failureOfFile } from '../../src/cli/program/service_or_file.ts';
import { makeDatabase } from '../support/postgres.ts';

describe('without a service', () => {
  test('serve on a public address says which command makes the first key, and starts when that was run', async (t) => {
    const data = temporaryDirectory(t);
    const flags = ['--host', '0.0.0.0', '--port', '0', '--data', data];
    const refused = await convoke(['serve', ...flags]);
    assert.equal(refused.code, 1);
    assert.equal(refused.stdout, '');
    const advice = /^convoke: 0\.0\.0\.0 can be reached from other machines, .*: npx convoke (keys create .*)\n$/.exec(
      refused.stderr,
    );
    assert.ok(advice !== null, refused.stderr);

    const made = await convoke(advice[1]!.split(' '));
    assert.equal(made.code, 0, made.stderr);
    const token = /shown only now: (cvk_\S+)\n/.exec(made.stdout)?.[1] ?? '';
    const service = await serve(data, { flags: ['--host', '0.0.0.0'] });
    t.after(() => stop(service, 'SIGKILL'));
    const url = service.url.replace('0.0.0.0', '127.0.0.1');
    const listed = await convoke(['keys', '--url', url], { env: { CONVOKE_API_KEY: token } });
    assert.match(listed.stdout, /^KEY .*\n\w{12} .* admin .* active\n$/);
    assert.equal((await convoke(['instances', '--url', url])).code, 4);
    assert.equal(await stop(service), 0);
    assert.match(await service.stderr, /"every request needs an API key"/);
  });

  test('a data file that is there and cannot be opened is not called missing, and a full disk is named', async (t) => {
    const data = temporaryDirectory(t);
    const file = join(data, 'convoke.db');
    // Root may read every file, but nobody can follow a link to itself.
    symlinkSync(file, file);
    const says = (code: string): string => `${file} cannot be opened (${code}): run this as the user who owns the data`;
    for (const command of [['keys', 'list'], ['migrate'], ['compact'], ['backup', join(data, 'copy.db')]])
      assert.equal((await convoke([...command, '--data', data])).stderr, `convoke: ${says('ELOOP')}\n`);
    const failed = (code: string, of: string) =>
      (failureOfFile(Object.assign(new Error(), { code }), of) as Error).message;
    for (const code of ['SQLITE_CANTOPEN', 'SQLITE_READONLY', 'SQLITE_IOERR'])
      assert.equal(failed(code, file), says(code));
    const full = (of: string): string => `the disk of ${of} is full; make room, and run this again`;
    for (const code of ['SQLITE_FULL', 'ENOSPC']) assert.equal(failed(code, file), full(data));
    // There is never room in /proc, where the system has it.
    if (existsSync('/proc/self')) assert.equal(failed('SQLITE_IOERR', '/proc/convoke.db'), full('/proc'));
    // Control: the disk failed, and not the permission.
    assert.equal(failed('SQLITE_IOERR', data), '');
  });

  test('a text of the store names a command as it is typed here', async (t) => {
    const data = temporaryDirectory(t);
    assert.equal((await convoke(['keys', 'create', '--scope', 'admin', '--data', data])).code, 0);
    chmodSync(join(data, 'encryption.key'), 0o644);
    assert.match((await convoke(['keys', '--data', data])).stderr, /`npx convoke keys reencrypt`/);
    const { stdout } = await convoke(['doctor', '--port', '0', '--data', data]);
    assert.match(stdout, /\nfail +data key .*`npx convoke keys reencrypt`/);
  });

  test('an empty variable counts as not set', async (t) => {
    const data = temporaryDirectory(t);
    const made = await convoke(['keys', 'create', '--scope', 'admin', '--data', data]);
    assert.equal(made.code, 0, made.stderr);
    const env = { CONVOKE_URL: '', CONVOKE_API_KEY: '', CONVOKE_DATA: data };
    const listed = await convoke(['keys'], { env });
    assert.match(listed.stdout, /^KEY .*\n\w{12} .* admin .* active\n$/, listed.stderr);
    // Control: an empty option is a mistake.
    assert.equal((await convoke(['keys', '--url', ''], { env })).code, 2);
  });

  test('serve on a terminal shows a link that signs in an admin, once, and writes it nowhere else', async (t) => {
    const data = temporaryDirectory(t);
    const made = await convoke(['keys', 'create', '--scope', 'admin', '--data', data]);
    assert.equal(made.code, 0, made.stderr);
    // Control: without a terminal, nothing is shown.
    const service = await serve(data);
    await stop(service);
    assert.doesNotMatch(`${await service.stderr}${service.lines.join('\n')}`, /sign-in/);

    const served = await serveOnTerminal(t, data);
    if (served === null) return t.skip('there is no `script` of util-linux here');
    const { url, terminal } = served;
    const link = /sign in on (http:\S+)/.exec(terminal)?.[1] ?? '';
    assert.equal(new URL(link).origin, url, terminal);
    const token = link.split('#sign-in=')[1] ?? '';
    const client = new ConvokeClient({ base_url: url });
    const { state, scopes } = await client.signInByLink(token);
    assert.deepEqual([state, scopes], ['signed_in', ['admin']]);
    await assert.rejects(client.signInByLink(token), { code: 'sign_in_link_not_valid' });
  });

  test('works on the data file, which needs no key, and makes none where there was none', async (t) => {
    const data = join(temporaryDirectory(t), 'below');
    const run = (...args: string[]): Promise<Ended> => convoke(['keys', ...args, '--data', data, '--json']);
    const missing = await run('list');
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /^convoke: there is no \S+convoke\.db; give --data .*\n$/);
    assert.ok(!existsSync(data));

    const refused = await run('create', '--scope', 'read');
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /\(first_key_not_admin\)\n$/);
    const admin = JSON.parse((await run('create', '--scope', 'admin', '--name', 'operator')).stdout) as ApiKeyWithToken;
    const input = ['--scope', 'instance', '--scope', 'send', '--meeting', 'm1', '--meeting', 'm2', '--instance', 'box'];
    const limited = JSON.parse((await run('create', ...input)).stdout) as ApiKeyWithToken;
    assert.deepEqual(
      [limited.scopes, limited.meeting_ids, limited.instance_id],
      [['instance', 'send'], ['m1', 'm2'], 'box'],
    );
    assert.equal((await run('revoke', limited.key_id)).code, 0);
    assert.match((await run('revoke', admin.key_id)).stderr, /\(last_admin_key\)\n$/);
    const rotated = JSON.parse((await run('rotate', admin.key_id, '--overlap', '0')).stdout) as ApiKeyWithToken;
    assert.notEqual(rotated.token, admin.token);
    const keys = JSON.parse((await run()).stdout) as ApiKey[];
    assert.deepEqual(
      keys.map(({ revoked_at }) => revoked_at === null),
      [true, false],
    );
  });

  test('--data wins over CONVOKE_URL: the key is made where the command line says, also when no service is left', async (t) => {
    const [here, elsewhere] = [temporaryDirectory(t), temporaryDirectory(t)];
    const service = await serve(elsewhere);
    t.after(() => stop(service, 'SIGKILL'));
    const env = { CONVOKE_URL: service.url };
    const made = await convoke(['keys', 'create', '--scope', 'admin', '--data', here], { env });
    assert.equal(made.code, 0, made.stderr);
    const open = await new ConvokeClient({ base_url: service.url }).listKeys();
    assert.deepEqual(open.data, []);
    assert.equal(await stop(service), 0);
    const listed = await convoke(['keys', '--data', here], { env });
    assert.match(listed.stdout, /^KEY .*\n\w{12} .* admin .* active\n$/, listed.stderr);
  });

  test('sessions are listed and ended on the data file too', async (t) => {
    const data = temporaryDirectory(t);
    const { stdout } = await convoke(['keys', 'create', '--scope', 'admin', '--data', data, '--json']);
    const { token } = JSON.parse(stdout) as ApiKeyWithToken;
    const service = await serve(data);
    t.after(() => stop(service, 'SIGKILL'));
    const headers = { authorization: `Bearer ${token}` };
    const signed_in = await fetch(`${service.url}/api/v1/session/`, { method: 'POST', headers });
    assert.equal(signed_in.status, 201);
    assert.equal(await stop(service), 0);
    const run = (...args: string[]): Promise<Ended> => convoke(['keys', ...args, '--data', data]);
    const listed = await run('sessions', '--json');
    assert.equal(listed.code, 0, listed.stderr);
    const [session] = JSON.parse(listed.stdout) as { session_id: string }[];
    const ended = await run('end-session', session!.session_id);
    assert.equal(ended.code, 0, ended.stderr);
    assert.deepEqual(JSON.parse((await run('sessions', '--json')).stdout), []);
  });

  test('a scope that there is not ends with 2', async () => {
    const { code, stderr } = await convoke(['keys', 'create', '--scope', 'root']);
    assert.equal(code, 2);
    assert.match(stderr, /Allowed choices are admin, send, read, instance/);
  });
});

describe('with a service', () => {
  let service: Service;
  let data: string;
  let admin: ApiKeyWithToken;
  const cleaners: (() => void)[] = [];
  before(async () => {
    data = temporaryDirectory({ after: (clean) => void cleaners.push(clean) });
    service = await serve(data, { flags: ['--log-level', 'silent'] });
    const made = await convoke(['keys', 'create', '--scope', 'admin', '--json'], { env: { CONVOKE_URL: service.url } });
    admin = JSON.parse(made.stdout) as ApiKeyWithToken;
  });
  after(async () => {
    await stop(service);
    for (const clean of cleaners) clean();
  });

  const run = (args: readonly string[], token = admin.token): Promise<Ended> =>
    convoke(args, { env: { CONVOKE_URL: service.url, ...(token === '' ? {} : { CONVOKE_API_KEY: token }) } });

  const make = (input: CreateKeyInput): Promise<ApiKeyWithToken> =>
    new ConvokeClient({ base_url: service.url, api_key: admin.token }).createKey(input);

  test('whose data file it is, it says what to do when no key is given', async () => {
    const no_key = await run(['keys'], '');
    assert.equal(no_key.code, 4);
    assert.match(no_key.stderr, /wants an admin key: set CONVOKE_API_KEY to one; .* stop the service .* --data .*\n$/);
    const held = await convoke(['keys', 'create', '--scope', 'admin', '--data', data]);
    assert.equal(held.code, 1);
    assert.match(
      held.stderr,
      /^convoke: a running service has \S+convoke\.db open: give its address with --url, .*CONVOKE_API_KEY.*\n$/,
    );
    const lost = await convoke(['keys', '--url', await deadUrl()]);
    assert.equal(lost.code, 3);
  });

  test('every other command sends the given key, and names its variable when none is given', async () => {
    for (const args of [['deliveries'], ['send', 'm', 'x'], ['webhook-test', 'x']]) {
      const { code, stderr } = await run(args, '');
      assert.equal(code, 4, args.join(' '));
      assert.match(
        stderr,
        /^convoke: the service wants an API key: set CONVOKE_API_KEY to one; .*\(api_key_missing\)\n$/,
      );
    }
    for (const args of [['send', 'm', 'x'], ['instances'], ['meetings']])
      assert.equal((await run(args)).code, 0, args[0]);
    assert.equal((await run(['messages', 'm', '--api-key', admin.token], '')).code, 0);
  });

  test('a key does what its scope says, until it is revoked', async () => {
    const reader = await make({ scopes: ['read'], meeting_ids: ['m'] });
    assert.equal((await run(['messages', 'm'], reader.token)).code, 0);
    assert.match(
      (await run(['send', 'm', 'x'], reader.token)).stderr,
      /needs the scope send or instance or admin\. .*\(not_permitted\)\n$/,
    );
    assert.match(
      (await run(['messages', 'other'], reader.token)).stderr,
      /limited to certain meetings.*\(not_permitted\)\n$/,
    );
    assert.match((await run(['keys', 'revoke', reader.key_id])).stdout, /^the key \w{12} is revoked\n$/);
    assert.match((await run(['messages', 'm'], reader.token)).stderr, /\(api_key_revoked\)\n$/);
    assert.match((await run(['keys'])).stdout, new RegExp(`\\n${reader.key_id} +read +meetings m +.* revoked`));
  });

  test('a rotation gives a new token, and says how long the old one is accepted', async () => {
    const sender = await make({ scopes: ['send'] });
    const { stdout } = await run(['keys', 'rotate', sender.key_id]);
    const token = /new token, shown only now +(cvk_\S+)\n/.exec(stdout)?.[1] ?? '';
    assert.match(stdout, /the old one works until +\d{4}-/);
    for (const each of [token, sender.token]) assert.equal((await run(['send', 'm', 'x'], each)).code, 0);
  });

  test('sessions are listed, and ended', async () => {
    const reader = await make({ scopes: ['read'] });
    const headers = { authorization: `Bearer ${reader.token}` };
    const signed_in = await fetch(`${service.url}/api/v1/session/`, { method: 'POST', headers });
    const { csrf_token } = (await signed_in.json()) as { csrf_token: string };
    const cookie = signed_in.headers.getSetCookie()[0]!.split(';')[0]!;
    const read = () => fetch(`${service.url}/api/v1/instances/`, { headers: { cookie, 'convoke-csrf': csrf_token } });
    assert.equal((await read()).status, 200);
    const { stdout } = await run(['keys', 'sessions']);
    const session_id = new RegExp(`\\n(\\w+) +.*the key ${reader.key_id} `).exec(stdout)?.[1] ?? '';
    assert.match((await run(['keys', 'end-session', session_id])).stdout, /^the session \w+ is ended\n$/);
    assert.equal((await read()).status, 401);
    assert.match((await run(['keys', 'end-session', session_id])).stderr, /\(session_does_not_exist\)\n$/);
    assert.deepEqual(JSON.parse((await run(['keys', 'sessions', '--json'])).stdout), []);
  });

  test('a machine registers what it owns, and show says whose it is', async () => {
    const machine = await make({ scopes: ['instance'] });
    const register = ['instances', 'register', 'box', '--agent', 'a', '--webhook', await deadUrl()];
    assert.equal((await run(register, machine.token)).code, 0);
    assert.equal((await run(['join', 'box', 'm'], machine.token)).code, 0);
    assert.match(
      (await run(['instances', 'show', 'box'])).stdout,
      new RegExp(`\\nowner +the key ${machine.key_id}\\n`),
    );
    const other = await make({ scopes: ['instance'] });
    assert.match((await run(register, other.token)).stderr, /\(instance_id_taken\)\n$/);
    assert.match((await run(['instances', 'show', 'box'], other.token)).stderr, /\(instance_does_not_exist\)\n$/);

    await run(['keys', 'revoke', machine.key_id]);
    const owner = (token?: string) => run(['instances', 'show', 'box'], token);
    const revoked = `\nowner +the key ${machine.key_id}, revoked [^\n]*: only admins may change the instance\n`;
    assert.match((await owner()).stdout, new RegExp(revoked));
    const reader = await make({ scopes: ['read'] });
    assert.match((await owner(reader.token)).stdout, new RegExp(`\nowner +the key ${machine.key_id}\n`));
  });

  test('an empty list says that the key sees only a part, and says nothing to an admin', async () => {
    const blind = /\nThis key has no scope read: it sees only what belongs to its own instances\.\n$/;
    const machine = await make({ scopes: ['instance'] });
    for (const list of ['instances', 'deliveries'])
      assert.match((await run([list], machine.token)).stderr, blind, list);
    assert.match((await run(['status'], machine.token)).stderr, /^This key has no scope read/);
    const reader = await make({ scopes: ['read'], meeting_ids: ['elsewhere'] });
    const lists = [['instances'], ['deliveries'], ['meetings'], ['find', 'nothing like it', '--meeting', 'elsewhere']];
    for (const list of lists) {
      const { stderr } = await run(list, reader.token);
      assert.match(stderr, /\nThis key sees only what is in elsewhere\.\n$/, list[0]);
    }
    assert.match((await run(['find', 'nothing like it'])).stderr, /^No message fits\.\n$/);
  });

  test('demo and doctor use the key', async () => {
    const demo = await run(['demo']);
    assert.equal(demo.code, 0, demo.stderr);
    assert.match(demo.stdout, /already running/);
    const { port } = new URL(service.url);
    const doctor = await run(['doctor', '--data', data, '--port', port, '--url', service.url], '');
    assert.match(doctor.stdout, /\nwarn +name lookup .* set CONVOKE_API_KEY to a key with the scope read\n/);
    assert.match((await run(['doctor', '--data', data, '--port', port])).stdout, /\nok +name lookup /);
  });
});

test('with PostgreSQL they work on the database, from wherever they are run', async (t) => {
  const env = { CONVOKE_DATABASE_URL: await makeDatabase() };
  const data = temporaryDirectory(t);
  const on = (...args: string[]) => convoke([...args, '--data', data], { env });
  const made = await on('keys', 'create', '--scope', 'admin', '--name', 'operator');
  assert.equal(made.code, 0, made.stderr);
  const listed = await on('keys', 'list');
  assert.match(listed.stdout, /operator/, listed.stderr);
  assert.equal((await on('audit', 'verify')).code, 0);
  assert.ok(!existsSync(join(data, 'convoke.db')));
});
