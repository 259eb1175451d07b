/** The commands, run as people and scripts do: as real processes, with a real service. */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, closeSync, existsSync, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join, sep } from 'node:path';
import { text as readAll } from 'node:stream/consumers';
import { before, after, describe, test, type TestContext } from 'node:test';
import {
  ConvokeClient,
  type Counts,
  type Delivery,
  type DeliveryWithAttempts,
  type Explanation,
  type ServiceHistory,
  type FoundMessage,
  type Instance,
  type Meeting,
  type MessageTrace,
  type Recovered,
  type SentMessage,
  ConvokeError,
} from '@convoke/sdk';
import type { Command } from 'commander';
import { bytesInWords, counted } from '../../src/cli/program/format.ts';
import { countsInWords, spanInWords } from '../../src/cli/program/commands/status.ts';
import { program } from '../../src/cli/program/program.ts';
import { failureOf } from '../../src/cli/program/api.ts';
import { flagOf, settingNames } from '../../src/config/settings.ts';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { NO_HOLD } from '../../src/domain/clock_hold.ts';
import { PROBLEMS } from '../../src/domain/problem.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import {
  convoke,
  deadUrl,
  type Ended,
  serve,
  type Service,
  start,
  stop,
  temporaryDirectory,
} from '../support/command_line.ts';
import { until } from '../support/wait.ts';

/** Starts a machine that responds on a free port. */
async function machine(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
}

/** The first Node on the PATH that is too old to run the program itself; null when there is none. */
function olderNode(): string | null {
  for (const directory of (process.env['PATH'] ?? '').split(delimiter)) {
    if (directory.includes(`node_modules${sep}`)) continue;
    const node = join(directory, 'node');
    try {
      accessSync(node);
      const [major] = execFileSync(node, ['--version'], { encoding: 'utf8' }).slice(1).split('.').map(Number);
      if (major! < 22) return node;
    } catch {
      // The file is missing or cannot be executed. This tries the next directory.
    }
  }
  return null;
}

const OLDER_NODE = olderNode();

function everyCommand(command: Command): Command[] {
  return [command, ...command.commands.flatMap(everyCommand)];
}

/** The names of a command and its parents, without the name of the program. */
function pathOf(command: Command): string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()];
}

function helpOf(command: Command): string {
  let help = '';
  command.configureOutput({ writeOut: (text) => (help += text) });
  command.outputHelp();
  return help;
}

describe('help', () => {
  test('every command says what it does, and shows examples that are commands', () => {
    const [root, ...commands] = everyCommand(program());
    assert.match(
      helpOf(root!),
      /\nIds:\n  meetings, instances, agents +you choose them.*\n  messages, deliveries +Convoke makes them/,
    );
    assert.match(helpOf(root!), /Exit codes:\n  0  .*\n  1  .*\n  2  .*\n  3  .*\n  4  /);
    assert(commands.length > 20);
    for (const command of commands) {
      const help = helpOf(command);
      assert.notEqual(command.description(), '', command.name());
      assert.match(help, /\nExamples:\n  \$ (CONVOKE_\S+ )?npx convoke /, command.name());
      assert.doesNotMatch(help, /\b(msg|dlv|inv)_(?![0-9a-v]+\b)/, `${command.name()}: an id has another form`);
      assert.doesNotMatch(help, /`convoke /, `${command.name()}: a command is not as it is typed here`);
    }
  });

  test('an option without which a command does nothing is marked, and every command that a help names is there', () => {
    const [root, ...commands] = everyCommand(program());
    const names = new Set(commands.map((command) => pathOf(command).join(' ')));
    const required = new Set<string>();
    for (const command of [root!, ...commands]) {
      const help = helpOf(command);
      for (const option of command.options.filter(({ mandatory }) => mandatory)) {
        const at = `${pathOf(command).join(' ')} ${option.long}`;
        required.add(at);
        const entry = help.split(/\n(?=  -)/).find((text) => text.includes(`${option.long} `));
        assert.match(entry ?? '', /\(required\)/, at);
      }
      for (const [, example = ''] of help.matchAll(/^ +\$ (?:CONVOKE_\S+ )?npx convoke ([^\n]*)/gm)) {
        const words = example.split(' ').filter((word) => /^[a-z]+$/.test(word));
        assert(words.length === 0 || names.has(words[0]!) || names.has(words.slice(0, 2).join(' ')), example);
      }
    }
    assert(required.has('instances recover --since'), [...required].join());
  });

  test('it lists the settings that a command uses, and the command takes the flags of the others too', async () => {
    const settings = new Set<string | undefined>(settingNames().map(flagOf));
    const shown = (name: string): (string | undefined)[] => {
      const command = everyCommand(program()).find((each) => each.name() === name)!;
      return [...helpOf(command).matchAll(/^ {2}(--[\w-]+)/gm)]
        .map(([, flag]) => flag)
        .filter((flag) => settings.has(flag));
    };
    for (const name of ['import', 'compact', 'migrate']) assert.deepEqual(shown(name), ['--data'], name);
    assert(shown('doctor').includes('--port') && !shown('doctor').includes('--retry-schedule'));
    for (const name of ['serve', 'config']) assert.equal(shown(name).length, settingNames().length - 3, name);
    for (const command of everyCommand(program())) assert.doesNotMatch(helpOf(command), /preset/, command.name());
    const taken = await convoke(['migrate', '--retry-schedule', 'never']);
    assert.match(taken.stderr, /^convoke: --retry-schedule "never" must be/);
  });

  test('it goes to stdout with exit code 0, and to stderr with 2 when it is the answer to a mistake', async () => {
    const asked = await convoke(['instances', '--help']);
    assert.equal(asked.code, 0);
    assert.match(asked.stdout, /register/);
    const mistaken = await convoke(['instances', 'register', 'box', '--webhook', 'http://x', '--agnet', 'a']);
    assert.equal(mistaken.code, 2);
    assert.equal(mistaken.stdout, '');
    assert.match(mistaken.stderr, /^convoke: unknown option '--agnet'\n\(Did you mean --agent\?\)/);
  });
});

describe('serve', () => {
  test('prints one ready line on stdout with the real port, logs JSON to stderr, and ends with 0 on SIGTERM', async (t) => {
    const service = await serve(temporaryDirectory(t));
    t.after(() => stop(service, 'SIGKILL'));
    const answer = await fetch(`${service.url}/healthz`);
    assert.equal(answer.status, 200);
    assert.equal(await stop(service), 0);
    assert.deepEqual(service.lines, [`convoke ready ${service.url}`]);
    const lines = (await service.stderr)
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { msg: string });
    assert(lines.some(({ msg }) => msg === 'open: no key is needed, and only this machine can reach it'));
    assert.equal(lines.at(-1)!.msg, 'stopped');
  });

  test('the ready line is the same when the log is for people', async (t) => {
    const service = await serve(temporaryDirectory(t), { flags: ['--log-format', 'pretty'] });
    t.after(() => stop(service, 'SIGKILL'));
    assert.equal(await stop(service), 0);
    assert.deepEqual(service.lines, [`convoke ready ${service.url}`]);
    assert.match(await service.stderr, /^Convoke listens on http/m);
  });

  test('a Ctrl-C that arrives twice, as under npm, is one: the service ends in order, with 0', async (t) => {
    const service = await serve(temporaryDirectory(t));
    t.after(() => stop(service, 'SIGKILL'));
    const closed = once(service.child, 'close');
    // They arrive in the same moment, however busy the machine is. Two SIGINT would then be one.
    for (const signal of ['SIGSTOP', 'SIGINT', 'SIGTERM', 'SIGCONT'] as const) service.child.kill(signal);
    await closed;
    assert.equal(service.child.exitCode, 0);
  });

  test('says in one line what stands against starting, and ends with 1', async (t) => {
    const data = temporaryDirectory(t);
    const service = await serve(data);
    t.after(() => stop(service, 'SIGKILL'));
    const port = new URL(service.url).port;
    const not_a_directory = join(data, 'file');
    writeFileSync(not_a_directory, '');
    const damaged = temporaryDirectory(t);
    writeFileSync(join(damaged, 'convoke.db'), 'no database'.repeat(1000));

    const faults: [string[], RegExp][] = [
      [['--port', port, '--data', temporaryDirectory(t)], /port \d+ of 127\.0\.0\.1 is in use/],
      [['--port', '0', '--data', data], /convoke\.db is in use by another process/],
      [['--port', '0', '--data', not_a_directory], /is not a directory/],
      [['--port', '0', '--data', join(not_a_directory, 'below')], /is not a directory/],
      [['--port', '0', '--data', damaged], /is not a data file of Convoke, or is damaged/],
    ];
    for (const [flags, expected] of faults) {
      const { code, stdout, stderr } = await convoke(['serve', '--log-level', 'silent', ...flags]);
      assert.equal(code, 1, stderr);
      assert.equal(stdout, '');
      assert.match(stderr, expected);
      assert.match(stderr, /^convoke: [^\n]+\n$/);
    }
  });

  test('settings that are not valid end it with 2, each on a line of its own', async () => {
    const { code, stderr } = await convoke(['serve', '--port', 'x'], { env: { CONVOKE_PROT: '1' } });
    assert.equal(code, 2);
    assert.equal(
      stderr,
      'convoke: CONVOKE_PROT is not a setting; did you mean CONVOKE_PORT?\n' +
        'convoke: --port "x" must be a whole number from 0 to 65535\n',
    );
  });
});

describe('with a Node that is too old', { skip: OLDER_NODE === null && 'there is none on the PATH' }, () => {
  test('the same command runs with the Node of the repository, and SIGTERM ends it with 0', async (t) => {
    const service = await serve(temporaryDirectory(t), { node: OLDER_NODE! });
    t.after(() => stop(service, 'SIGKILL'));
    assert.equal((await fetch(`${service.url}/readyz`)).status, 200);
    assert.equal(await stop(service), 0);
  });

  test('killing it leaves no service behind: the data can be opened again at once', async (t) => {
    const data = temporaryDirectory(t);
    const service = await serve(data, { node: OLDER_NODE! });
    await stop(service, 'SIGKILL');
    const next = await serve(data);
    assert.equal(await stop(next), 0);
  });

  test('arguments, output and exit code go through', async () => {
    const child = start(['config', '--json', '--port', '7'], { node: OLDER_NODE! });
    const [stdout] = await Promise.all([readAll(child.stdout!), once(child, 'close')]);
    assert.deepEqual((JSON.parse(stdout) as { name: string }[])[1], { name: 'port', from: 'flag', value: '7' });
    const refused = start(['config', '--port', 'x'], { node: OLDER_NODE! });
    await once(refused, 'close');
    assert.equal(refused.exitCode, 2);
  });
});

describe('the commands that call the API', () => {
  let service: Service;
  let client: ConvokeClient;
  let data: string;
  before(async () => {
    data = mkdtempSync(join(tmpdir(), 'convoke-cli-'));
    service = await serve(data, { flags: ['--log-level', 'silent'] });
    client = new ConvokeClient({ base_url: service.url });
  });
  after(async () => {
    await stop(service);
    rmSync(data, { recursive: true, force: true });
  });

  const run = (args: readonly string[], input?: string | Buffer): Promise<Ended> =>
    convoke(args, { env: { CONVOKE_URL: service.url }, ...(input !== undefined && { input }) });

  /** Runs a command that must succeed, and parses the JSON that it prints. */
  async function json<T>(args: readonly string[]): Promise<T> {
    const { code, stdout, stderr } = await run([...args, '--json']);
    assert.equal(code, 0, stderr);
    return JSON.parse(stdout) as T;
  }

  /** Resolves with the delivery of the instance when its first attempt is stored. */
  async function attempted(instance_id: string): Promise<Delivery> {
    for (;;) {
      const { data: deliveries } = await client.listDeliveries({ instance_id });
      const delivery = deliveries.find(({ attempt_count }) => attempt_count > 0);
      if (delivery !== undefined) return delivery;
    }
  }

  test('take a meeting from the first registration to a delivered message', async (t) => {
    const heard = Promise.withResolvers<string>();
    const webhook = await machine(t, (request, response) => {
      heard.resolve(readAll(request));
      response.end();
    });
    const registered = await run([
      'instances',
      'register',
      'box',
      '--agent',
      'a1',
      '--agent',
      'a2',
      '--webhook',
      webhook,
    ]);
    assert.equal(registered.code, 0, registered.stderr);
    assert.match(registered.stdout, /secret, shown only now: whsec_\S{40,}\n/);
    assert.match((await run(['join', 'box', 'standup'])).stdout, /^box is in standup with a1, a2\n$/);

    const sent = await run(['send', 'standup', '--message', '-', '--to', 'a2'], '{"n": 12345678901234567890}');
    assert.match(sent.stdout, /^msg_\S+ is message 1 of standup, on its way to 1 instance\n$/);
    assert.match(await heard.promise, /"message":\{"n": ?12345678901234567890\},"target_agents":\["a2"\]/);

    const { delivery_id } = await attempted('box');
    assert.match((await run(['deliveries'])).stdout, new RegExp(`${delivery_id}  standup  1 .* delivered\n$`));
    assert.match((await run(['deliveries', 'show', delivery_id])).stdout, /\n {2}1\. \S+ {2}answered 200 after /);
    assert.match((await run(['meetings'])).stdout, /\nstandup {2,}1 {2,}1 {2,}2 /);
    assert.match(
      (await run(['meetings', 'show', 'standup'])).stdout,
      /\nbox {2,}box {2,}a1, a2 {2,}all {2,}all {2,}up/,
    );
    const [message_id = ''] = sent.stdout.split(' ');
    const answer = [
      'send',
      'standup',
      'Done',
      '--from',
      'a1',
      '--reply-to',
      message_id,
      '--expires-in',
      '60',
      '--to',
      'a1',
    ];
    assert.match((await run(answer)).stdout, / is message 2 of standup/);
    assert.match((await run(['messages', 'standup'])).stdout, /\n1 .* - +a2 .*\n2 .* a1 +a1 /s);
    assert.match((await run(['leave', 'box', 'standup'])).stdout, /^box has left standup\n$/);
    assert.match((await run(['instances', 'remove', 'box'])).stdout, /^box is removed\n$/);
  });

  test('--json prints what the API answers', async () => {
    const webhook = await deadUrl();
    await json(['instances', 'register', 'json-box', '--agent', 'j1', '--webhook', webhook, '--name', 'The box']);
    const instances = await json<{ instance_name: string }[]>(['instances', '--agent', 'j1']);
    assert.equal(instances[0]?.instance_name, 'The box');
    assert.deepEqual(await json(['meetings', '--search', 'nowhere']), []);
    const membership = await json<{ agent_ids: string[] }>(['join', 'json-box', 'json-meeting', '--agent', 'other']);
    assert.deepEqual(membership.agent_ids, ['other']);
    const sent = await json<{ seq: number; deliveries_queued: number }>(['send', 'json-meeting', 'Hello']);
    assert.deepEqual([sent.seq, sent.deliveries_queued], [1, 1]);
    assert.deepEqual(await json(['instances', 'remove', 'json-box']), { instance_id: 'json-box', removed: true });
  });

  test('status counts what there is, and says what happened lately', async (t) => {
    const webhook = await machine(t, (_request, response) => response.end());
    await run(['instances', 'register', 'counted', '--agent', 'c1', '--webhook', webhook]);
    await run(['join', 'counted', 'counting']);
    await run(['send', 'counting', 'Hello']);
    await attempted('counted');
    const { stdout, stderr } = await run(['status', '--span', '1h']);
    assert.match(
      stdout,
      /^instances {6}\d+ up, \d+ failing, \d+ down, \d+ not tried yet, \d+ off; \d+ connected\n/,
      stderr,
    );
    assert.match(stdout, /\npending {8}\d+ deliver(y|ies)/);
    assert.match(
      stdout,
      /\nlast [\d.]+ (m?s|min) {2,}\d+ messages? accepted, \d+ deliver(y|ies) succeeded, \d+ failed; \d+ attempts? failed\n/,
    );
    assert.match(stdout, /\nlatency {8}.*\ncounted since {2}.* ago\n$/);
    const { counts, history } = await json<{ counts: Counts; history: ServiceHistory }>(['status']);
    assert.ok(counts.instances.up >= 1);
    assert.equal(history.step_s, 1);
  });

  test('find shows messages by text, id and number, in a meeting and a time, and says how to follow the only one', async () => {
    const sentAs = async (meeting: string, text: string): Promise<string> =>
      (await json<SentMessage>(['send', meeting, text])).message_id;
    const first = await sentAs('finding', 'a quarterly report');
    const second = await sentAs('finding', 'another quarterly report');
    const elsewhere = await sentAs('finding-2', 'one more quarterly report');
    const found = async (...args: string[]): Promise<string[]> =>
      (await json<FoundMessage[]>(['find', ...args])).map(({ message_id }) => message_id);
    assert.deepEqual(await found('Quarterly REPORT'), [elsewhere, second, first]);
    assert.deepEqual(await found('quarterly', '--meeting', 'finding'), [second, first]);
    assert.deepEqual(await found(first), [first]);
    assert.deepEqual(await found('--meeting', 'finding', '--seq', '2'), [second]);
    const { accepted_at } = await json<MessageTrace>(['trace', second]);
    assert.deepEqual(await found('quarterly', '--since', '2100-01-01T00:00:00Z'), []);
    assert.ok(!(await found('quarterly', '--until', accepted_at)).includes(second));
    const one = await run(['find', '--meeting', 'finding', '--seq', '1']);
    assert.match(one.stdout, /MESSAGE_ID.*\n.*finding +1 .*a quarterly report/);
    assert.match(one.stderr, new RegExp(`convoke trace ${first}.* shows where it went`));
    assert.match((await run(['find', 'nothing like it'])).stderr, /No message fits\./);
    const usage = await run(['find']);
    assert.deepEqual([usage.code, usage.stdout], [2, '']);
    assert.match(usage.stderr, /give a text, an id, or --meeting and --seq/);
    const deep = await fetch(`${service.url}/api/v1/meetings/finding/messages/`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
      },
      body: '{"message":{}}',
    });
    const { message_id } = (await deep.json()) as SentMessage;
    assert.match((await run(['trace', message_id])).stdout, /\ntrace +4bf92f3577b34da6a3ce929d0e0e4736\n/);
  });

  test('find and trace show every digit of a number', async () => {
    const digits = '12345678901234567890';
    const { message_id } = await json<SentMessage>(['send', 'every-digit', '--message', `{"id":${digits},"one":1.10}`]);
    for (const args of [
      ['find', digits],
      ['find', '--meeting', 'every-digit', '--seq', '1'],
      ['trace', message_id],
    ]) {
      assert.match((await run(args)).stdout, /\{"id":12345678901234567890,"one":1\.10\}/);
      assert.match((await run([...args, '--json'])).stdout, /"id": 12345678901234567890,\n +"one": 1\.10\n/);
    }
  });

  test('recover counts first with --dry-run, keeps to --until, and says what was missed while it was switched off', async (t) => {
    let status = 202;
    const webhook = await machine(t, (_request, response) => response.writeHead(status).end());
    await run(['instances', 'register', 'lossy', '--agent', 'l1', '--webhook', webhook]);
    await run(['join', 'lossy', 'losses']);
    for (let k = 0; k < 3; k++) await run(['send', 'losses', `lost ${k}`]);
    const failed = async () => json<Delivery[]>(['deliveries', '--instance', 'lossy', '--state', 'failed']);
    await until('three failures', failed, ({ length }) => length === 3);
    await run(['instances', 'disable', 'lossy']);
    await run(['send', 'losses', 'nobody is there']);
    const recover = ['instances', 'recover', 'lossy', '--since', '2026-01-01T00:00:00Z'];
    const counted = await run([...recover, '--dry-run']);
    assert.equal(counted.stdout, 'would be queued again: 3 deliveries\n');
    assert.match(counted.stderr, /missed while it was switched off: 1 message, without a delivery/);
    assert.equal((await failed()).length, 3, 'a dry run changes nothing');
    const before = [...recover, '--until', '2026-01-02T00:00:00Z'];
    assert.equal((await run(before)).stdout, 'queued again: 0 deliveries\n');
    assert.equal((await failed()).length, 3);
    status = 200;
    await run(['instances', 'enable', 'lossy']);
    assert.equal((await json<Recovered>(recover)).recovered, 3);
    await until('nothing failed', failed, ({ length }) => length === 0);
    assert.equal((await run([...recover.slice(0, 3), '--since', 'yesterday'])).code, 4);
  });

  test('status shows the span that is asked for, or the time since the start if that is less, and refuses another', async () => {
    const spans = { '5m': 'last 5 min', '1h': 'last hour', '24h': 'last day' } as const;
    const steps = [];
    for (const span of ['5m', '1h', '24h'] as const) {
      assert.equal(spanInWords(span, 90_000_000), spans[span]);
      assert.equal(spanInWords(span, 42_000), 'last 42 s');
      steps.push((await json<{ history: ServiceHistory }>(['status', '--span', span])).history.step_s);
    }
    assert.deepEqual(steps, [1, 10, 60]);
    const refused = await run(['status', '--span', '2h']);
    assert.equal(refused.code, 2);
    assert.match(refused.stderr, /5m, 1h, 24h/);
  });

  test('status says from when counts are that the service has kept', () => {
    const counts = {
      counted_at: '2026-03-01T09:30:00.000Z',
      instances: { up: 1, failing: 0, down: 0, unknown: 0, off: 0, connected: 0 },
      deliveries: { pending: 0, oldest_pending_at: null },
    };
    const at_ms = Date.parse(counts.counted_at);
    assert.equal(countsInWords(counts, at_ms + 40_000)['as of'], '40 s ago');
    assert.equal(countsInWords(counts, at_ms + 900)['as of'], undefined);
  });

  test('status and instances show say since when an instance is down, what it answered, and when the next attempt is made', async (t) => {
    const webhook = await machine(t, (_request, response) => response.writeHead(500).end('out of\nGPU memory'));
    for (const id of ['failing', 'paused']) {
      await run(['instances', 'register', id, '--agent', `${id}-agent`, '--webhook', webhook]);
      for (let k = 0; k < 5; k++) await run(['join', id, `room-${k}`]);
    }
    for (let k = 0; k < 5; k++) await run(['send', `room-${k}`, 'Hello']);
    for (const id of ['failing', 'paused']) {
      await until(
        `${id} to be down`,
        () => json<Instance>(['instances', 'show', id]),
        ({ health, next_try_at }) => health === 'down' && next_try_at !== undefined,
      );
    }
    await client.updateInstance('paused', { webhook_enabled: false });
    // On a slow machine the back-off may end meanwhile, and another attempt fails.
    const failures = async () => (await client.getInstance('failing')).consecutive_failures;
    const before = await failures();
    const { stdout } = await run(['instances', 'show', 'failing']);
    const [, shown] = /\nhealth +down since \S+Z \(.*\), (\d+) failures in a row\n/.exec(stdout) ?? [];
    assert.ok(Number(shown) >= before && Number(shown) <= (await failures()), stdout);
    assert.match(stdout, /\nlast failure .*500\nthe receiver said +out of GPU memory\nwhat to do +500: /);
    assert.match(stdout, /\nnext try +(\S+Z \((in .*|now)\)|as soon as a delivery waits)\n/);
    // The service keeps its counts 19 times as long as it took to count, so a slow machine shows old ones for a while.
    const status = await until(
      'status to count the instance that is down',
      async () => (await run(['status'])).stdout,
      (shown) => /\ndown .*failing since /.test(shown),
    );
    assert.match(status, /failing since [^;]*, next try (\S+Z|as soon)/);
    assert.doesNotMatch(status, /paused since/);
    const listed = async (flag: string) =>
      (await json<Instance[]>(['instances', 'list', flag])).map((each) => each.instance_id);
    assert.ok((await listed('--paused')).includes('paused'));
    assert.ok(!(await listed('--no-paused')).includes('paused'));
  });

  test('say why something was not delivered, and what to do about it', async (t) => {
    const webhook = `${await deadUrl()}/hook`;
    await run(['instances', 'register', 'dead', '--agent', 'd1', '--webhook', webhook]);
    await run(['join', 'dead', 'silence']);
    await run(['send', 'silence', 'Anybody?']);
    const { delivery_id } = await attempted('dead');
    const shown = (await run(['deliveries', 'show', delivery_id])).stdout;
    assert.match(shown, /state +pending: waiting until its instance is tried again/);
    assert.match(shown, /1\. \S+ {2}connection refused: port \d+ after/);
    assert.match(
      shown,
      /Nothing listens at that address and port: .*\n.*convoke instances show dead says how its instance is/,
    );
    assert.doesNotMatch(shown, /next attempt/, 'the time is over, because the instance backs off');

    const { message_id } = await client.getDelivery(delivery_id);
    const why = /\n.*dlv_.* pending: waiting until its instance is tried again \(connection refused: port \d+\)\n$/;
    assert.match((await run(['trace', message_id])).stdout, why);
    assert.match((await run(['deliveries', '--instance', 'dead'])).stdout, why);
    const unheard = await client.sendMessage(
      'silence',
      { content: 'x' },
      { target_agents: ["o'neil"], from_agent: 'd1' },
    );
    const asked =
      /woke nobody: `npx convoke explain --to 'o'\\''neil' --from d1 silence` says why, for a message sent now/;
    assert.match((await run(['trace', unheard.message_id])).stdout, asked);

    const tested = await run(['webhook-test', 'dead']);
    assert.equal(tested.code, 1);
    assert.match(tested.stdout, /The push failed after .* start the runtime/);

    await run(['instances', 'disable', 'dead']);
    assert.match(
      (await run(['deliveries', 'show', delivery_id])).stdout,
      /convoke instances enable dead lets it go on/,
    );
    const working = await machine(t, (_, response) => response.end());
    await run(['instances', 'register', 'dead', '--agent', 'd1', '--webhook', working]);
    assert.equal((await run(['webhook-test', 'dead'])).code, 0);
    await run(['instances', 'remove', 'dead']);
  });

  test('pause a meeting, count what waits there, drop it, and resume', async () => {
    await run(['instances', 'register', 'calm', '--agent', 'c1', '--webhook', await deadUrl()]);
    await run(['join', 'calm', 'loud']);
    assert.match((await run(['meetings', 'pause', 'loud'])).stdout, /^loud is paused; pending: 0 deliveries\n/);
    const { message_id } = await json<{ message_id: string }>(['send', 'loud', 'Hello']);
    assert.match((await run(['meetings', '--search', 'loud'])).stdout, /1, paused/);
    const [waiting] = await json<{ delivery_id: string }[]>(['deliveries', '--message', message_id]);
    const shown = (await run(['deliveries', 'show', waiting!.delivery_id])).stdout;
    assert.match(shown, /waiting: its meeting is paused/);
    assert.match(shown, /convoke meetings resume loud lets it go on/);
    assert.equal((await run(['deliveries', 'drop'])).code, 2);
    const counted = await run(['deliveries', 'drop', '--meeting', 'loud']);
    assert.equal(counted.stdout, 'would be dropped: 1 delivery; --yes drops them\n');
    assert.match((await run(['deliveries', 'drop', '--meeting', 'loud', '--yes'])).stdout, /^dropped: 1 delivery;/);
    assert.match((await run(['deliveries', 'show', waiting!.delivery_id])).stdout, /cancelled: somebody dropped/);
    assert.match((await run(['meetings', 'resume', 'loud'])).stdout, /^loud is resumed; pending: 0 deliveries\n/);
    const again = (await run(['deliveries', 'retry', waiting!.delivery_id])).stdout;
    assert.match(again, /is queued again; `npx convoke deliveries show dlv_\w+` shows the result/);
    await run(['instances', 'remove', 'calm']);
    const refused = await run(['deliveries', 'retry', waiting!.delivery_id]);
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /cancelled when its instance was deleted/);
  });

  test('meetings limit shows when agents are stopped, sets it for one meeting, and takes it back', async () => {
    await run(['instances', 'register', 'limited', '--agent', 'm1', '--webhook', await deadUrl()]);
    await run(['join', 'limited', 'limits']);
    const limit = async (...options: string[]) => (await run(['meetings', 'limit', 'limits', ...options])).stdout;
    const defaults = 'limits: at most 16 messages of agents in a row\nat most 20 from one agent to one other in 60 s\n';
    assert.equal(await limit(), defaults);
    assert.equal(
      await limit('--hops', '40', '--pair', '5', '--window', '10'),
      'limits: at most 40 messages of agents in a row\nat most 5 from one agent to one other in 10 s\n',
    );
    assert.match(await limit('--hops', '0', '--pair', '0'), /any number of messages .+\nany number from one agent/);
    const { hop_limit, limits } = await json<Meeting>(['meetings', 'limit', 'limits']);
    assert.deepEqual([hop_limit, limits], [0, { hop_limit: 0, pair_limit: 0, pair_window_s: 10 }]);
    const back = await run([
      'meetings',
      'limit',
      'limits',
      '--hops',
      'default',
      '--pair',
      'default',
      '--window',
      'default',
    ]);
    assert.equal(`${back.stdout}${back.stderr}`, defaults);
    assert.equal((await run(['meetings', 'limit', 'limits', '--hops', 'many'])).code, 2);
    const refused = await run(['meetings', 'limit', 'nowhere-at-all']);
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /nowhere-at-all/);
    await run(['instances', 'remove', 'limited']);
  });

  test('explain says who would hear a message, and why the others would not, and sends nothing', async (t) => {
    const webhook = await machine(t, (_request, response) => response.end());
    for (const [name, agent] of Object.entries({ hears: 'x1', asked: 'x2', gone: 'x3' })) {
      await run(['instances', 'register', name, '--agent', agent, '--webhook', webhook]);
      await run(['join', name, 'why', ...(name === 'asked' ? ['--wake', 'targeted'] : [])]);
    }
    await run(['leave', 'gone', 'why']);
    const explained = async (...options: string[]) => {
      const { stdout } = await run(['explain', 'why', ...options]);
      const lines = stdout.split('\n').map((line) => line.trim().split(/ {2,}/));
      return Object.fromEntries(lines.map(([instance = '', ...told]) => [instance, told.slice(1)]));
    };
    const to_all = await explained();
    assert.deepEqual(to_all['hears'], ['now', 'x1']);
    assert.deepEqual(to_all['asked'], ['no', 'none', 'it does not wake it']);
    assert.deepEqual(to_all['gone'], ['no', 'none', 'it has left']);
    assert.deepEqual((await explained('--from', 'x1'))['hears'], ['no', 'none', 'its agent says it']);
    const to_one = await explained('--to', 'x2');
    assert.deepEqual(to_one['hears'], ['no', 'none', 'the message names none of its agents']);
    assert.deepEqual(to_one['asked'], ['now', 'x2']);
    await run(['meetings', 'pause', 'why']);
    assert.deepEqual((await explained())['hears'], ['later', 'x1', 'when the meeting goes on']);
    const rows = await json<Explanation[]>(['explain', 'why']);
    assert.deepEqual(Object.fromEntries(rows.map(({ instance_id, why }) => [instance_id, why])), {
      hears: 'paused',
      asked: 'wake',
      gone: 'left',
    });
    assert.deepEqual(await json<Delivery[]>(['deliveries', '--meeting', 'why']), []);
    assert.equal((await run(['explain', 'nowhere-at-all'])).code, 4);
    await run(['instances', 'register', 'away', '--agent', 'x4', '--webhook', 'http://127.0.0.1:1/']);
    await run(['join', 'away', 'why-away']);
    await run(['send', 'why-away', 'hello']);
    await until(
      'the back-off',
      async () => (await run(['explain', 'why-away'])).stdout,
      (shown) => /later {2,}x4 {2,}when it is tried again/.test(shown),
    );
    await run(['instances', 'remove', 'away']);
    for (const { instance_id } of rows) await run(['instances', 'remove', instance_id]);
  });

  test('what a machine answers cannot command the terminal', async (t) => {
    const webhook = await machine(t, (_, response) =>
      response.writeHead(500).end('\x1b]0;owned\x07\x1b[31mred\u202e\nnext'),
    );
    await run(['instances', 'register', 'rude', '--agent', 'r1', '--webhook', webhook]);
    await run(['join', 'rude', 'shouting']);
    await run(['send', 'shouting', 'Hello']);
    const { delivery_id } = await attempted('rude');
    for (const args of [
      ['deliveries', 'show', delivery_id],
      ['webhook-test', 'rude'],
      ['instances', 'show', 'rude'],
    ]) {
      const { stdout } = await run(args);
      assert.doesNotMatch(stdout, /[^\P{Cc}\n]|\u202e/u, args[0]);
    }
    assert.match((await run(['deliveries', 'show', delivery_id])).stdout, /the receiver said: .*red. next\n/);
    await run(['instances', 'remove', 'rude']);
  });

  test('what somebody chose as a name or wrote in a message cannot turn the text of the terminal around', async () => {
    const agent_id = 'a\u202egent';
    const register = { instance_id: 'turned', instance_name: 't', agent_ids: [agent_id, 'x\u202e'] };
    await client.register({ ...register, webhook_url: `${await deadUrl()}/\u202e` });
    await run(['join', 'turned', 'turning']);
    await client.sendMessage('turning', { content: '\u009b31m \u202e \u007f' });
    const { delivery_id } = await attempted('turned');
    const { message_id } = await client.sendMessage('turning', {}, { target_agents: ['nobody\u202e'] });
    for (const args of [
      ['deliveries', 'show', delivery_id, '--curl'],
      ['deliveries', 'show', delivery_id],
      ['trace', message_id],
      ['send', 'turning', 'x', '--to', 'nobody\u202e'],
      ['meetings', 'member', 'turning', 'turned', '--wake', 'all'],
      ['join', 'turned', 'turning'],
      ['join', 'turned', 'turning', '--agent', 'other'],
    ]) {
      const { code, stdout, stderr } = await run(args);
      assert.equal(code, 0, stderr);
      assert.doesNotMatch(`${stdout}${stderr}`, /[^\P{Cc}\n]|\u202e/u, args.join(' '));
    }
    const { stdout } = await run(['deliveries', 'show', delivery_id, '--curl']);
    const [, body = ''] = /--data-binary '(.*)'/.exec(stdout) ?? [];
    const { message } = JSON.parse(body) as { message: object };
    assert.deepEqual(message, { content: '\u009b31m \u202e \u007f' });
    await run(['instances', 'remove', 'turned']);
  });

  test('a failed delivery that is retried keeps its id', async (t) => {
    let status = 410;
    const webhook = await machine(t, (_, response) => response.writeHead(status).end());
    await run(['instances', 'register', 'flaky', '--agent', 'f1', '--webhook', webhook]);
    await run(['join', 'flaky', 'again']);
    await run(['send', 'again', 'Hello']);
    const { delivery_id } = await attempted('flaky');
    const failed = await json<DeliveryWithAttempts>(['deliveries', 'show', delivery_id]);
    assert.deepEqual([failed.state, failed.reason], ['failed', 'gone']);
    status = 200;
    await run(['instances', 'enable', 'flaky']);
    assert.equal((await run(['deliveries', 'retry', delivery_id])).code, 0);
    for (let state = 'pending'; state !== 'delivered';) ({ state } = await client.getDelivery(delivery_id));
    await run(['instances', 'remove', 'flaky']);
  });

  test('join says which agents are no longer in the meeting, and which the instance does not host', async () => {
    const { url } = service;
    const register = ['instances', 'register', 'joiner', '--agent', 'anna', '--webhook', 'http://127.0.0.1:9/'];
    assert.equal((await convoke([...register, '--url', url])).code, 0);
    const join = (...agents: string[]): Promise<Ended> =>
      convoke(['join', 'joiner', 'surprises', '--url', url, ...agents.flatMap((agent) => ['--agent', agent])]);
    assert.equal((await join('anna')).stderr, '');
    const mistyped = await join('ana');
    assert.equal(mistyped.code, 0);
    assert.match(mistyped.stderr, /These agents no longer take part: anna\./);
    assert.match(mistyped.stderr, /joiner does not host ana; it is registered with anna\./);
  });

  test('join says so also in a meeting whose members fill more than a page', async () => {
    const webhook_url = 'http://127.0.0.1:9/';
    for (let k = 0; k < 60; k++) {
      const instance_id = `crowd-${String(k).padStart(2, '0')}`;
      await client.register({ instance_id, instance_name: 'n', agent_ids: ['x', 'y'], webhook_url });
      await client.joinMeeting({ instance_id, meeting_id: 'crowd', agent_ids: ['x'] });
    }
    const last = await run(['join', 'crowd-59', 'crowd', '--agent', 'y']);
    assert.match(last.stderr, /These agents no longer take part: x\./);
  });

  test('messages prints each number as its sender wrote it, and send refuses bytes that are not UTF-8', async () => {
    const text = '{"n":12345678901234567890,"price":1.10,"text":"\\ud83c\\udf89\u202e"}';
    assert.equal((await run(['send', 'digits', '--message', '-'], text)).code, 0);
    const { stdout } = await run(['messages', 'digits', '--json']);
    assert.match(stdout, /"n": 12345678901234567890,\n +"price": 1\.10,\n/);
    assert.doesNotMatch(stdout, /\u202e/);
    assert.deepEqual(
      (JSON.parse(stdout) as { seq: number }[]).map(({ seq }) => seq),
      [1],
    );
    assert.match((await run(['messages', 'digits'])).stdout, /everybody +\{"n":12345678901234567890,"price":1\.10,/);
    const latin1 = Buffer.from('{"text":"caf\u00e9"}', 'latin1');
    const refused = await run(['send', 'digits', '--message', '-'], latin1);
    assert.equal(refused.code, 2);
    assert.match(refused.stderr, /standard input is not UTF-8/);
    assert.equal((await client.listMessages('digits')).data.length, 1);
    const to_nobody = await client.sendMessage('digits', { content: 'to an empty list' }, { target_agents: [] });
    assert.match((await run(['messages', 'digits'])).stdout, /everybody +\{"content":"to an empty list"/);
    assert.match((await run(['trace', to_nobody.message_id])).stdout, /^to +everybody$/m);
  });

  test('join says what a machine gets of what waited, and the list of members shows it', async () => {
    const { url } = service;
    const register = ['instances', 'register', 'sleeper', '--agent', 'anna', '--webhook', 'http://127.0.0.1:9/'];
    assert.equal((await convoke([...register, '--url', url])).code, 0);
    const rules = ['--catch-up', 'latest', '--max-age', '3600'];
    assert.equal((await convoke(['join', 'sleeper', 'night', ...rules, '--url', url])).code, 0);
    const shown = await convoke(['meetings', 'show', 'night', '--url', url]);
    assert.match(shown.stdout, /sleeper .* all {2,}latest, up to 60 min old/);
    const member = ['meetings', 'member', 'night', 'sleeper', '--url', url];
    const changed = await convoke([...member, '--wake', 'people', '--max-age', '0']);
    assert.equal(changed.stdout, 'sleeper is in night with anna\nwake: people, catch up: latest, of any age\n');
    assert.equal((await convoke(['leave', 'sleeper', 'night', '--url', url])).code, 0);
    const too_late = await convoke([...member, '--wake', 'all']);
    assert.equal(too_late.code, 4);
    assert.match(too_late.stderr, /\(membership_does_not_exist\)/);
  });

  test('what the service refuses ends with 4 and the reason, in one line', async () => {
    const refusals: [string[], RegExp][] = [
      [['instances', 'show', 'nobody'], /nobody.*\(instance_does_not_exist\)/],
      [['join', 'nobody', 'm', '--agent', 'a'], /\(instance_does_not_exist\)/],
      [['instances', 'register', 'x', '--webhook', 'ftp://x'], /webhook_url.*http/],
      [['deliveries', 'show', 'dlv_none'], /\(delivery_does_not_exist\)/],
    ];
    for (const [args, expected] of refusals) {
      const { code, stdout, stderr } = await run(args);
      assert.equal(code, 4, stderr);
      assert.equal(stdout, '');
      assert.match(stderr, expected);
      assert.match(stderr, /^convoke: [^\n]+\n$/);
    }
  });

  test('a refusal whose detail says only what to do has its title too', () => {
    const { advice } = PROBLEMS.api_key_malformed;
    const { message } = failureOf(new ConvokeError('api_key_malformed', advice, { status: 401 }));
    assert.equal(message, 'This API key is incomplete or mistyped. Copy the whole key again. (api_key_malformed)');
  });

  test('what cannot be meant ends with 2 before anything is sent', async () => {
    const mistakes: [string[], RegExp][] = [
      [['send', 'm'], /give either a text or --message/],
      [['send', 'm', 'text', '--message', '{}'], /give either a text or --message/],
      [['send', 'm', '--message', '[1]'], /must be a JSON object/],
      [['send', 'm', '--message', '{'], /must be a JSON object/],
      [['instances', 'show', '.'], /cannot be "\."/],
      [['instances', 'register', 'x', '--webhook', 'http://x', '--header', 'Bearer secret'], /--header must look like/],
      [['instances', '--health', 'fine'], /Allowed choices are unknown, up, failing, down/],
      [['deliveries', '--limit', '0'], /whole number from 1 to 500/],
      [['frobnicate'], /unknown command 'frobnicate'/],
      [['deliveries', 'shwo', 'dlv_1', '--curl'], /^convoke: unknown command 'shwo'\n\(Did you mean show\?\)\n\(/],
      [['deliveries', ''], /^convoke: unknown command ''\n\(.*deliveries --help shows/],
      [['meetings', 'frobnicate'], /^convoke: unknown command 'frobnicate'\n\(.*meetings --help shows/],
      [['meetings', 'member', 'm', 'x'], /give what to change: --agent, --wake, --catch-up or --max-age/],
      [['instances', '--url', 'not a url'], /--url \(or CONVOKE_URL\) must be/],
      [['instances', '--api-key', 'Bearer secret\nagain'], /--api-key \(or CONVOKE_API_KEY\) must be printable ASCII/],
    ];
    for (const [args, expected] of mistakes) {
      const { code, stderr } = await run(args);
      assert.equal(code, 2, args.join(' '));
      assert.match(stderr, expected);
      assert.doesNotMatch(stderr, /Bearer secret/);
    }
  });

  test('a backup that cannot be written ends before the service makes a copy', async (t) => {
    const asked: (string | undefined)[] = [];
    const elsewhere = await machine(t, ({ url }, response) => {
      asked.push(url);
      response.writeHead(404).end('{}');
    });
    const url = new URL(elsewhere).origin;
    const directory = temporaryDirectory(t);
    // The name of the copy fits, and its longer name until it is complete does not.
    const refused = await convoke(['backup', join(directory, 'c'.repeat(250)), '--url', url]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /^convoke: ENAMETOOLONG/);
    assert.deepEqual(asked, []);
    // Control: where it can be written, the service is asked.
    await convoke(['backup', join(directory, 'copy.db'), '--url', url]);
    assert.equal(asked.length, 1);
    assert.deepEqual(readdirSync(directory), []);
  });

  test('a service that does not answer, or is something else, ends with 3', async (t) => {
    const { code, stderr } = await convoke(['instances', '--url', await deadUrl()]);
    assert.equal(code, 3);
    assert.match(stderr, /^convoke: cannot reach http:\S+ nothing listens there; is Convoke running .*\n$/);
    const outsider = await machine(t, (_, response) => response.end('<html>'));
    assert.equal((await convoke(['meetings', '--url', outsider])).code, 3);
  });

  test('demo uses the service that runs, and leaves nothing registered', async () => {
    const { code, stdout, stderr } = await run(['demo']);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /already running/);
    assert.match(stdout, /6 of 6 pushes on record as delivered/);
    assert.deepEqual(await json(['instances', '--search', 'demo-']), []);
  });

  test('send says when nobody gets the message, and names the agent that is not there', async () => {
    const nobody = await run(['send', 'empty-room', 'Anybody?']);
    assert.match(nobody.stdout, /is message 1 of empty-room; nobody gets it\n$/);
    assert.match(nobody.stderr, /^Nobody is there to receive it: `.*meetings show empty-room` lists who is\.\n$/);
    const mistyped = await run(['send', 'standup', 'Hello', '--to', 'Nobdy']);
    assert.match(mistyped.stderr, /^No agent of that name \(Nobdy\) is there to receive it: /);
  });

  test('doctor with the --url of another address says that the service of these settings runs', async () => {
    const { port } = new URL(service.url);
    const { code, stdout } = await convoke(['doctor', '--url', await deadUrl(), '--port', port, '--data', data]);
    assert.match(stdout, /\nok +port +Convoke responds at http:\S+/);
    assert.match(stdout, /\nwarn +service +no service responds at/);
    assert.equal(code, 0, 'nothing tells to stop the service that runs');
  });

  test('doctor finds the service that runs', async () => {
    const checks = await json<{ check: string; finding: string; detail: string }[]>([
      'doctor',
      '--data',
      data,
      '--port',
      new URL(service.url).port,
    ]);
    assert(
      checks.every(({ finding }) => finding === 'ok'),
      JSON.stringify(checks),
    );
    assert(checks.some(({ detail }) => detail === 'ready: it accepts messages'));
    assert(checks.some(({ check, detail }) => check === 'data directory' && detail.endsWith('is in use')));
  });
});

test('doctor counts the stored webhook addresses that the settings refuse, and names the setting', async (t) => {
  const data = temporaryDirectory(t);
  const service = await serve(data);
  t.after(() => service.child.kill('SIGKILL'));
  const client = new ConvokeClient({ base_url: service.url });
  for (const [instance_id, webhook_url] of [
    ['here', 'http://127.0.0.1:9/'],
    ['there', 'http://10.0.0.1/'],
  ] as const)
    await client.register({ instance_id, instance_name: instance_id, agent_ids: [], webhook_url });
  const doctor = async (egress: string): Promise<string> => {
    const flags = ['--data', data, '--port', new URL(service.url).port, '--egress', egress];
    const { code, stdout } = await convoke(['doctor', ...flags]);
    assert.equal(code, 0, stdout);
    return stdout;
  };
  assert.match(await doctor('local'), /\nok +egress +2 webhook addresses allowed/);
  assert.match(await doctor('lan'), /\nwarn +egress +1 of 2 .* that of here .*CONVOKE_EGRESS=local would allow it/);
});

test('doctor checks no address of a machine that pulls: nothing is pushed there', async (t) => {
  const service = await serve(temporaryDirectory(t));
  t.after(() => service.child.kill('SIGKILL'));
  const client = new ConvokeClient({ base_url: service.url });
  const pulling = { agent_ids: ['a'], instance_name: 'pulls', transport: 'pull' as const };
  await client.register({ instance_id: 'pulls', webhook_url: 'http://name.invalid:9/', ...pulling });
  const { stdout } = await convoke([
    'doctor',
    '--url',
    service.url,
    '--egress',
    'public',
    '--data',
    temporaryDirectory(t),
  ]);
  assert.match(stdout, /\nok +name lookup +0 host names/);
  assert.match(stdout, /\nok +egress +0 webhook addresses allowed/);
});

test('doctor says that a start would be refused, for a key that is damaged and for a database that does not respond', async (t) => {
  const data = temporaryDirectory(t);
  writeFileSync(join(data, 'encryption.key'), 'damaged', { mode: 0o600 });
  const { port } = new URL(await deadUrl());
  const CONVOKE_DATABASE_URL = `postgres://convoke@127.0.0.1:${port}/convoke`;
  const { code, stdout } = await convoke(['doctor', '--data', data, '--port', port], { env: { CONVOKE_DATABASE_URL } });
  assert.equal(code, 1);
  assert.match(stdout, /\nfail +data key +\S+encryption\.key does not hold a data key .*: put it back from its backup/);
  assert.match(stdout, /\nfail +database +PostgreSQL at 127\.0\.0\.1:\d+ does not answer /);
});

test('doctor asks below the path of --url, and refuses a --url that is none', async (t) => {
  const asked = await machine(t, ({ url }, response) =>
    response.end(url === '/convoke/readyz' ? '{"status":"ready"}' : '<html>'),
  );
  const at = new URL('/convoke/', asked).href;
  const { stdout } = await convoke(['doctor', '--url', at, '--data', temporaryDirectory(t)]);
  assert.match(stdout, /\nok +service +ready: it accepts messages/);
  const refused = await convoke(['doctor', '--url', 'localhost:8080']);
  assert.equal(refused.code, 2);
  assert.match(refused.stderr, /--url \(or CONVOKE_URL\) must be/);
});

test('an output that cannot be written is a failure in one line', async (t) => {
  if (!existsSync('/dev/full')) return t.skip('there is no /dev/full');
  const full = openSync('/dev/full', 'w');
  t.after(() => closeSync(full));
  for (const args of [['config'], ['--version']]) {
    const child = start(args, { stdout: full });
    const [stderr] = await Promise.all([readAll(child.stderr!), once(child, 'close')]);
    assert.equal(child.exitCode, 1);
    assert.match(stderr, /^convoke: the output could not be written whole: ENOSPC[^\n]*\n$/, args.join(' '));
  }
});

test('an output that nobody reads is no failure', async () => {
  for (const args of [['config'], ['--version']]) {
    const child = start(args);
    child.stdout!.destroy();
    const [stderr] = await Promise.all([readAll(child.stderr!), once(child, 'close')]);
    assert.deepEqual([child.exitCode, stderr], [0, ''], args.join(' '));
  }
});

test('a failure that was found keeps its exit code, although nobody reads the output to its end', async (t) => {
  const data = temporaryDirectory(t);
  assert.equal((await convoke(['keys', 'create', '--scope', 'admin', '--data', data])).code, 0);
  const verify = ['audit', 'verify', '--json', '--head', `9:${'0'.repeat(64)}`, '--data', data];
  for (const args of [verify, ['doctor', '--port', 'x', '--data', data]]) {
    const child = start(args);
    child.stdout!.destroy();
    child.stderr!.resume();
    await once(child, 'close');
    assert.equal(child.exitCode, 1, args.join(' '));
  }
});

test('figures for people: one is singular, and nothing that is there is 0', () => {
  assert.equal(counted(1, 'webhook address', 'webhook addresses'), '1 webhook address');
  assert.equal(counted(2, 'webhook address', 'webhook addresses'), '2 webhook addresses');
  assert.deepEqual([1, 1_024, 2 ** 20, 2 ** 30].map(bytesInWords), ['1 KiB', '1 KiB', '1 MiB', '1.0 GiB']);
});

test('doctor and the log report that the clock is far ahead of the last run of the service', async (t) => {
  const data = temporaryDirectory(t);
  const { store, opened } = openSqliteStore(join(data, DATABASE_FILE), null);
  await opened;
  await store.deliveries.noteTime({ ran_until: Date.now() - 4 * 86_400_000, ...NO_HOLD });
  await store.close();
  const doctor = async (...flags: string[]): Promise<string> =>
    (await convoke(['doctor', '--data', data, '--port', new URL(await deadUrl()).port, ...flags])).stdout;
  assert.match(
    await doctor(),
    /\nwarn +last run +it is 4 days ahead of the last run of the service: .*CONVOKE_TRUST_CLOCK=true/,
  );
  assert.doesNotMatch(await doctor('--trust-clock'), /last run/);
  const service = await serve(data);
  t.after(() => service.child.kill('SIGKILL'));
  const metrics = await (await fetch(`${service.url}/metrics`)).text();
  const [, held_s] = /^convoke_expiry_held_seconds (\S+)$/m.exec(metrics) ?? [];
  assert.equal(Math.round(Number(held_s) / 86_400), 4);
  service.child.kill('SIGTERM');
  assert.match(await service.stderr, /the clock is far ahead/);
});

test('demo without a service starts its own, shows six pushes to two runtimes, and ends by itself', async () => {
  const { code, stdout, stderr } = await convoke(['demo']);
  assert.equal(code, 0, stderr);
  assert.equal(stdout.match(/ben receives [^\n]*\n +\w+, signature verified, attempt 1, response 200/g)?.length, 3);
  assert.equal(stdout.match(/ada receives [^\n]*\n +a request of the runtime template, to the API of ada/g)?.length, 3);
  assert.deepEqual(
    [...stdout.matchAll(/receives #(\d)/g)].map(([, seq]) => seq),
    ['1', '1', '2', '3', '4', '5'],
  );
});

test('demo starts a service of its own when the one at the usual address pushes nothing to this machine', async (t) => {
  const service = await serve(temporaryDirectory(t), { flags: ['--egress', 'lan'] });
  t.after(() => stop(service, 'SIGKILL'));
  const module = new URL('../../src/cli/program/commands/demo.ts', import.meta.url).href;
  const run = `const { demo } = await import('${module}'); await demo(undefined, undefined, '${service.url}');`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', run]);
  const [stdout] = await Promise.all([readAll(child.stdout), once(child, 'close')]);
  assert.match(stdout, /already running[^]*another one, because[^]*started for this demo[^]*6 of 6 pushes on record/);
  assert.deepEqual((await new ConvokeClient({ base_url: service.url }).listInstances()).data, []);
});

test('demo with a service that does not answer ends with 3, and starts none of its own', async () => {
  const { code, stdout, stderr } = await convoke(['demo', '--url', await deadUrl()]);
  assert.equal(code, 3, stderr);
  assert.equal(stdout, '');
});

test('doctor ends with 1 when something is wrong, and says what to do', async (t) => {
  for (const body of ['not convoke', '{"code":"not_found"}', '{"type":7}']) {
    const taken = new URL(await machine(t, (_, response) => response.writeHead(404).end(body)));
    const { code, stdout } = await convoke(['doctor', '--port', taken.port, '--data', temporaryDirectory(t)]);
    assert.equal(code, 1);
    assert.match(stdout, /\nfail {2}port .*: stop it, or choose another port with --port\n/, body);
  }
  const invalid = await convoke(['doctor', '--json'], { env: { CONVOKE_PORT: 'x' } });
  assert.equal(invalid.code, 1);
  assert((JSON.parse(invalid.stdout) as { finding: string }[]).some(({ finding }) => finding === 'fail'));
});

test('config shows where each setting comes from', async () => {
  const { code, stdout } = await convoke(['config', '--port', '9000', '--egress-allow-http'], {
    env: { CONVOKE_LOG_LEVEL: 'debug' },
  });
  assert.equal(code, 0);
  assert.match(stdout, /\nport +9000 +--port\n/);
  assert.match(stdout, /\negress_allow_http +true +--egress-allow-http\n/);
  assert.match(stdout, /\nlog_level +debug +CONVOKE_LOG_LEVEL\n/);
  assert.match(stdout, /\nhost +127\.0\.0\.1 +default\n/);
});
