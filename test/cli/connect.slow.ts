/** `convoke connect`: its questions, the files that it stores, and the files that it writes for systemd and launchd. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { json as readJson, text as readAll } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient } from '@convoke/sdk';
import { type ConnectOptions, connectWith } from '../../src/cli/program/commands/connect/connect_with.ts';
import { connectionFile, readConnection } from '../../src/cli/program/commands/connect/connection.ts';
import { unitFor } from '../../src/cli/program/commands/connect/unit.ts';
import { convoke, deadUrl, start, temporaryDirectory } from '../support/command_line.ts';
import { startReceiver } from '../support/receiver.ts';
import { startService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

const TO = 'http://127.0.0.1:9000/convoke';
const TOKEN = 'token-of-the-runtime';
const SECRET = `whsec_${Buffer.alloc(32, 's').toString('base64')}`;

/** Timers take a hundred times as long, so that on a busy machine too a second signal is sent before a limit is over. */
const SLOW_TIMERS = `--import=data:text/javascript,${encodeURIComponent(
  'const { setTimeout } = globalThis; globalThis.setTimeout = (end, ms, ...of) => setTimeout(end, 100 * ms, ...of);',
)}`;

/** Makes a new home directory, so that the test reads and writes no files of this user. */
function home(t: TestContext): { HOME: string; XDG_CONFIG_HOME: string } {
  const HOME = temporaryDirectory(t);
  return { HOME, XDG_CONFIG_HOME: join(HOME, 'config') };
}

const isPrivate = (path: string): boolean => (statSync(path).mode & 0o077) === 0;

describe('connect', () => {
  test('says what is missing before it asks the service for anything', async (t) => {
    process.env['XDG_CONFIG_HOME'] = home(t).XDG_CONFIG_HOME;
    const cases: [string | undefined, Partial<ConnectOptions>, RegExp][] = [
      [undefined, {}, /name the agent with --agent, or give the link of an invite/],
      [undefined, { agent: ['anna'] }, /say with --to where the runtime listens/],
      [undefined, { agent: ['anna'], to: 'ftp://x' }, /--to must be an http or https URL/],
      [undefined, { agent: ['anna'], to: TO, header: [TOKEN] }, /^(?!.*token).*--header must look like/],
      [
        undefined,
        { agent: ['anna'], to: TO, header: [`x-key: ${TOKEN}…`] },
        /^(?!.*token).*--header x-key has a character that no header can have/,
      ],
      [undefined, { agent: ['anna'], to: TO, header: ['x key: 1'] }, /--header .* the name of a header/],
      ['nobody', {}, /nobody\.json: there is no saved connection of this name/],
      ['https://convoke.example/elsewhere', { to: TO }, /the link of an invite looks like/],
      ['https://convoke.example/invite/abc', {}, /say with --to where the runtime listens/],
    ];
    for (const [link_or_instance, options, message] of cases) {
      const asked = connectWith(link_or_instance, { url: 'http://127.0.0.1:1', ...options }, () => false);
      await assert.rejects(asked, { name: 'CommandFailure', exit_code: 2, message });
    }
  });

  test('--install keeps the connection for this user alone, and writes a unit without a secret in it', async (t) => {
    if (process.platform !== 'linux') return t.skip('the unit of this test is one of systemd');
    const env = home(t);
    const to = ['--to', TO, '--header', `Authorization: Bearer ${TOKEN}`];
    const rules = ['--wake', 'targeted', '--catch-up', 'latest'];
    const args = [
      'connect',
      '--agent',
      'anna',
      '--meeting',
      'standup 42',
      ...rules,
      ...to,
      '--secret',
      SECRET,
      '--api-key',
      'cvk_key',
      '--install',
    ];
    const { code, stdout, stderr } = await convoke(args, { env });
    assert.equal(code, 0, stderr);
    const name = 'convoke-connect-anna.service';
    assert.match(
      stdout,
      new RegExp(`reload && systemctl --user enable ${name} && systemctl --user restart ${name}\\n`),
    );
    const saved = join(env.XDG_CONFIG_HOME, 'convoke/connections/anna.json');
    assert.equal(isPrivate(saved), true);
    assert.deepEqual(JSON.parse(readFileSync(saved, 'utf8')), {
      url: 'http://127.0.0.1:8080',
      api_key: 'cvk_key',
      instance_id: 'anna',
      instance_name: 'anna',
      agent_ids: ['anna'],
      meeting_ids: ['standup 42'],
      to: TO,
      webhook_secret: SECRET,
      headers: { authorization: `Bearer ${TOKEN}` },
      success_statuses: null,
      ack_timeout_s: null,
      replies: false,
      rules: { wake: 'targeted', catch_up: 'latest' },
    });
    const path = join(env.XDG_CONFIG_HOME, 'systemd/user/convoke-connect-anna.service');
    const unit = readFileSync(path, 'utf8');
    assert.match(unit, /^ExecStart="\/.+" "\/.+main\.ts" "connect" "anna"$/m);
    for (const secret of [TOKEN, SECRET, 'cvk_key']) assert(!unit.includes(secret));
    const verified = spawnSync('systemd-analyze', ['verify', '--user', path], { encoding: 'utf8' });
    if (verified.error === undefined && !/Failed to (initialize|connect)/.test(verified.stderr)) {
      assert.equal(verified.stderr, '');
    }
  });

  test('a saved connection is taken up again, and its file keeps no other mode', async (t) => {
    const env = home(t);
    const directory = join(env.XDG_CONFIG_HOME, 'convoke/connections');
    mkdirSync(directory, { recursive: true });
    const saved = { url: 'http://127.0.0.1:1', instance_id: 'anna', agent_ids: ['anna'], to: 'http://old/' };
    writeFileSync(join(directory, 'anna.json'), JSON.stringify(saved), { mode: 0o644 });
    const { code } = await convoke(['connect', 'anna', '--to', TO, '--install'], { env });
    assert.equal(code, process.platform === 'linux' || process.platform === 'darwin' ? 0 : 2);
    const kept = JSON.parse(readFileSync(join(directory, 'anna.json'), 'utf8')) as object;
    assert.deepEqual({ ...kept }, { ...kept, url: 'http://127.0.0.1:1', to: TO });
    assert.equal(isPrivate(join(directory, 'anna.json')), true);
  });

  test('every id has a file of its own, also a long id in letters of another script', async (t) => {
    if (process.platform !== 'linux') return t.skip('the unit of this test is one of systemd');
    const env = home(t);
    const ids = ['box.1', 'box_1', '会议助手'.repeat(50)];
    for (const id of ids) {
      const key = ['--api-key', `cvk_of_${ids.indexOf(id)}`];
      const { code, stderr } = await convoke(['connect', '--agent', id, '--to', TO, ...key, '--install'], { env });
      assert.equal(code, 0, stderr);
    }
    process.env['XDG_CONFIG_HOME'] = env.XDG_CONFIG_HOME;
    for (const [i, id] of ids.entries()) assert.equal((await readConnection(id)).api_key, `cvk_of_${i}`);
  });

  test('a file under the name of an earlier version is found, and the file of another instance is not taken', async (t) => {
    process.env['XDG_CONFIG_HOME'] = home(t).XDG_CONFIG_HOME;
    const directory = dirname(connectionFile('anna'));
    mkdirSync(directory, { recursive: true });
    const saved = { instance_id: 'anna@laptop.1', api_key: 'cvk_key' };
    writeFileSync(join(directory, 'anna_40laptop_1.json'), JSON.stringify(saved));
    assert.deepEqual(await readConnection('anna@laptop.1'), saved);
    await assert.rejects(
      readConnection('anna_40laptop_1'),
      /it is the connection of anna@laptop\.1, not of anna_40laptop/,
    );
    await assert.rejects(readConnection('anna@laptop_1'), /there is no saved connection of this name/);
  });

  test('the words of a unit arrive as they are, whatever an id has in it', () => {
    const command = ['/opt/my node', 'connect', '50% "of" $HOME\\<&>'];
    const { text: unit, path } = unitFor('50% "of" $HOME', command, 'linux');
    assert.match(unit, /^ExecStart="\/opt\/my node" "connect" "50%% \\"of\\" \$\$HOME\\\\<&>"$/m);
    assert.match(path, /convoke-connect-[\w.-]+\.service$/);
    const { text: plist } = unitFor('anna', command, 'darwin');
    assert(plist.includes('<string>50% "of" $HOME\\&lt;&amp;&gt;</string>'));
    assert.throws(() => unitFor('anna', command, 'win32'), /--install knows systemd and launchd/);
  });

  test('a unit finds the connection where it was saved, and has the certificates and the proxy of this shell', () => {
    const texts = (env: NodeJS.ProcessEnv): string[] =>
      (['linux', 'darwin'] as const).map((platform) => unitFor('anna', ['node'], platform, env).text);
    const env = {
      XDG_CONFIG_HOME: '/else where/&',
      NODE_EXTRA_CA_CERTS: '/etc/100%.pem',
      HTTPS_PROXY: 'http://proxy:1',
      no_proxy: 'localhost',
      OTHER: 'x',
    };
    const [unit = '', plist = ''] = texts({ ...env, NODE_USE_ENV_PROXY: '1' });
    assert.deepEqual(unit.match(/(?<=^Environment=).*$/gm), [
      '"XDG_CONFIG_HOME=/else where/&"',
      '"NODE_EXTRA_CA_CERTS=/etc/100%%.pem"',
      '"NODE_USE_ENV_PROXY=1"',
      '"HTTPS_PROXY=http://proxy:1"',
      '"no_proxy=localhost"',
    ]);
    const [, variables = ''] = /<key>EnvironmentVariables<\/key>\s*<dict>(.*?)<\/dict>/s.exec(plist) ?? [];
    const words = [
      'XDG_CONFIG_HOME',
      '/else where/&amp;',
      'NODE_EXTRA_CA_CERTS',
      '/etc/100%.pem',
      'NODE_USE_ENV_PROXY',
      '1',
    ];
    words.push('HTTPS_PROXY', 'http://proxy:1', 'no_proxy', 'localhost');
    assert.deepEqual(variables.match(/(?<=>)[^\s<][^<]*(?=<)/g), words);
    // Node does not use the proxy then, so its password need not be in the unit.
    for (const text of texts(env)) assert(text.includes('NODE_EXTRA_CA_CERTS') && !/proxy/i.test(text));
    assert.doesNotMatch(texts({})[0]!, /Environment/);
    // A unit starts in the home directory.
    for (const text of texts({ NODE_EXTRA_CA_CERTS: 'certs/ca.pem' })) assert(text.includes(resolve('certs/ca.pem')));
  });

  test('another --install takes effect, and a unit that is stopped has the time to end its pushes', () => {
    const [systemd, launchd] = (['linux', 'darwin'] as const).map((platform) => unitFor('anna', ['node'], platform));
    assert.match(systemd!.commands[0]!, / restart convoke-connect-anna\.service$/);
    assert.match(systemd!.text, /^TimeoutStopSec=600$/m);
    assert.match(launchd!.commands[0]!, /^launchctl bootout gui\/\S+ -u\)\/convoke\.connect\.anna /);
    assert.match(launchd!.commands[1]!, /^launchctl bootstrap gui\/\S+ -u\) '.*\/convoke\.connect\.anna\.plist'$/);
    assert.match(launchd!.text, /<key>ExitTimeOut<\/key>\s*<integer>600<\/integer>/);
  });

  test('--runtime spec ends the runtime of a saved connection, and without --runtime it stays', async (t) => {
    if (process.platform !== 'linux') return t.skip('the unit of this test is one of systemd');
    process.env['XDG_CONFIG_HOME'] = home(t).XDG_CONFIG_HOME;
    const install = async (link_or_instance: string | undefined, options: Partial<ConnectOptions>) => {
      await connectWith(link_or_instance, { url: 'http://127.0.0.1:1', install: true, ...options }, () => false);
      return (await readConnection('anna')).runtime;
    };
    const openai = { name: 'openai', options: { model: 'x' } };
    assert.deepEqual(await install(undefined, { agent: ['anna'], to: TO, runtime: 'openai', model: 'x' }), openai);
    assert.deepEqual(await install('anna', {}), openai);
    assert.equal(await install('anna', { runtime: 'spec' }), undefined);
  });

  test('an invite that was used up is refused in the words of the service', async (t) => {
    const server = createServer((_, response) => {
      const problem = { detail: 'It was redeemed at 2026-03-01 09:30 UTC.', code: 'invite_ended' };
      response.writeHead(410, { 'content-type': 'application/problem+json' }).end(JSON.stringify(problem));
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    t.after(() => server.close().closeAllConnections());
    const link = `http://127.0.0.1:${(server.address() as AddressInfo).port}/invite/abc`;
    const { code, stderr } = await convoke(['connect', link, '--to', TO], { env: home(t) });
    assert.equal(code, 4);
    assert.equal(stderr, 'convoke: It was redeemed at 2026-03-01 09:30 UTC. (invite_ended)\n');
  });

  test('a machine with the key of an invite comes back when its instance was deleted, and stays away when that happens twice within a minute', async (t) => {
    const service = await startService(t);
    const admin = new ConvokeClient({ base_url: service.url, api_key: (await service.endOpenMode()).token });
    const { link, instance_id } = await admin.createInvite({ meeting_ids: ['m'], agent_ids: ['anna'] });
    const runtime = await startReceiver(t);
    const connect = start(['connect', link, '--to', runtime.url], { env: home(t) });
    t.after(() => void connect.kill('SIGKILL'));
    const stderr = readAll(connect.stderr!);
    const ended = once(connect, 'exit');
    for (let count = 1; count <= 2; count++) {
      await until(
        'the machine in the meeting',
        async () => (await admin.listMeetingInstances('m').catch(() => null))?.data.length,
        (length) => length === 1,
      );
      await admin.sendMessage('m', { count });
      await runtime.count(count);
      await admin.deleteInstance(instance_id);
    }
    assert.deepEqual(await ended, [4, null]);
    assert.match(await stderr, /no longer registered; registering it again\n[^]*\nconvoke: No instance .*_exist\)\n$/);
  });

  test('one Ctrl-C that arrives as two signals lets the push in progress end', async (t) => {
    const service = await startService(t);
    const client = new ConvokeClient({ base_url: service.url });
    const begun = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const runtime = createServer(async (_, response) => {
      begun.resolve();
      await release.promise;
      response.end();
    });
    await once(runtime.listen(0, '127.0.0.1'), 'listening');
    t.after(() => runtime.close().closeAllConnections());
    const to = `http://127.0.0.1:${(runtime.address() as AddressInfo).port}/`;
    const options = ['--agent', 'anna', '--meeting', 'twice', '--to', to, '--url', service.url];
    const connect = start(['connect', ...options], { env: { ...home(t), NODE_OPTIONS: SLOW_TIMERS } });
    t.after(() => void connect.kill('SIGKILL'));
    const ended = once(connect, 'exit');
    const lines = createInterface({ input: connect.stderr! });
    await once(lines, 'line');
    await client.sendMessage('twice', {});
    await begun.promise;
    connect.kill('SIGINT');
    await once(lines, 'line');
    connect.kill('SIGINT');
    release.resolve();
    assert.deepEqual(await ended, [0, null]);
    // The service writes a result soon after it has responded to it.
    await until(
      'the delivery to be delivered',
      async () => (await client.listDeliveries({ meeting_id: 'twice' })).data.map(({ state }) => state),
      (states) => states.join() === 'delivered',
    );
  });

  test('waits while something else responds at the address of the service, and says so at once', async (t) => {
    const server = createServer((_, response) => {
      response.writeHead(404, { 'content-type': 'text/plain' }).end('404 page not found');
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    t.after(() => server.close().closeAllConnections());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const connect = start(['connect', '--agent', 'anna', '--to', TO, '--url', url], { env: home(t) });
    t.after(() => void connect.kill('SIGKILL'));
    const ended = once(connect, 'exit');
    const [note] = (await once(createInterface({ input: connect.stderr! }), 'line')) as [string];
    assert.match(
      note,
      /responded 404 with text\/plain, which is no response of Convoke; check --url, .*; trying again$/,
    );
    connect.kill('SIGTERM');
    assert.deepEqual(await ended, [0, null]);
  });

  test('no invite is redeemed with an option that would take the place of its key or its instance', async (t) => {
    const env = home(t);
    const link = `${await deadUrl()}/invite/abc`;
    for (const more of [
      ['--api-key', 'cvk_other'],
      ['--instance', 'other'],
    ]) {
      const { code, stderr } = await convoke(['connect', link, '--to', TO, ...more], { env });
      assert.equal(code, 2, stderr);
      assert.match(stderr, /leave out --instance and --api-key/);
    }
  });

  test('says that nothing can be saved in a directory in which the system makes none, such as /proc', async (t) => {
    if (process.platform !== 'linux') return t.skip('/proc is of Linux');
    const child = start(['connect', '--agent', 'anna', '--to', TO, '--install'], {
      env: { HOME: home(t).HOME, XDG_CONFIG_HOME: '/proc/none', XDG_CACHE_HOME: '/proc/none' },
    });
    t.after(() => void child.kill('SIGKILL'));
    assert.match(await inTime('the end', readAll(child.stderr!)), /cannot be saved there \(ENOENT\)/);
  });

  test('a push with which no request can be made fails alone', async (t) => {
    const reported = Promise.withResolvers<{ status_code: number; body: string }>();
    const push = {
      delivery_id: 'dlv_1',
      attempt: 1,
      headers: { 'webhook-id': 'dlv_1', tracestate: 'a\nb' },
      body: JSON.stringify({ event: 'new_message', meeting_id: 'm', message: {}, target_agents: [], timestamp: '' }),
      deadline_at: new Date(Date.now() + 60_000).toISOString(),
    };
    const pushes = [push];
    const service = createServer(async (request, response) => {
      const { results } = (await readJson(request)) as { results?: { status_code: number; body: string }[] };
      if (results === undefined) return void response.end(JSON.stringify({ instance_id: 'anna' }));
      if (results[0] !== undefined) reported.resolve(results[0]);
      if (pushes.length > 0) response.end(JSON.stringify({ pushes: pushes.splice(0) }));
    });
    await once(service.listen(0, '127.0.0.1'), 'listening');
    t.after(() => service.close().closeAllConnections());
    const url = `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
    const runtime = await startReceiver(t);
    const connect = start(['connect', '--agent', 'anna', '--to', runtime.url, '--url', url], { env: home(t) });
    t.after(() => void connect.kill('SIGKILL'));
    const { status_code, body } = await inTime('the result', reported.promise);
    assert.equal(status_code, 500);
    assert.match(body, /Invalid character in header content \["tracestate"\]/);
  });

  test('says what to do when the response with the key of an invite is lost', async (t) => {
    const server = createServer((request) => request.socket.destroy());
    await once(server.listen(0, '127.0.0.1'), 'listening');
    t.after(() => server.close());
    const link = `http://127.0.0.1:${(server.address() as AddressInfo).port}/invite/abc`;
    const { code, stderr } = await convoke(['connect', link, '--to', TO], { env: home(t) });
    assert.equal(code, 3);
    assert.match(stderr, /; run this again; if the service says then that the link was redeemed, .* another link\n$/);
  });

  test('no invite is redeemed when its key cannot be saved, and the text says what to do', async (t) => {
    let requests = 0;
    const server = createServer((_, response) => {
      requests++;
      response.writeHead(500).end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    t.after(() => server.close().closeAllConnections());
    const link = `http://127.0.0.1:${(server.address() as AddressInfo).port}/invite/abc`;
    const { HOME, XDG_CONFIG_HOME } = home(t);
    writeFileSync(XDG_CONFIG_HOME, 'no directory');
    const { code, stderr } = await convoke(['connect', link, '--to', TO], { env: { HOME, XDG_CONFIG_HOME } });
    assert.deepEqual([code, requests], [1, 0]);
    assert.match(stderr, /cannot be saved there \(ENOTDIR\); .* XDG_CONFIG_HOME .* a link still works/);
  });

  test('control: an invite is asked for where its key can be saved, and a failure leaves no file', async (t) => {
    const env = home(t);
    const link = `${await deadUrl()}/invite/abc`;
    assert.equal((await convoke(['connect', link, '--to', TO], { env })).code, 3);
    assert.deepEqual(readdirSync(join(env.XDG_CONFIG_HOME, 'convoke/connections')), []);
  });
});
