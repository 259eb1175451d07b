/**
 * The real process, which ends by itself, by SIGTERM or by SIGKILL. No accepted message is lost, and lanes stay in
 * order.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient, ConvokeError } from '@convoke/sdk';
import { headerOf, pushOf, type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { inTime, until } from '../support/wait.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const STOP_MS_MAX = 7_000;

/** `convoke serve` in its own process. */
class Process {
  readonly client: ConvokeClient;
  readonly url: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
    this.client = new ConvokeClient({ base_url: url, send_attempts_max: 1 });
  }

  static async start(t: TestContext, data: string): Promise<Process> {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_')));
    const child = spawn(process.execPath, ['src/cli/main.ts', 'serve', '--port', '0', '--data', data], {
      cwd: ROOT,
      env: { ...env, CONVOKE_LOG_FORMAT: 'json', CONVOKE_LOG_LEVEL: 'error' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    t.after(() => child.kill('SIGKILL'));
    const { promise: ready, resolve: isReady, reject } = Promise.withResolvers<string>();
    let [stdout, stderr] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
      const line = /^convoke ready (http:\/\/\S+)\n/m.exec(stdout);
      if (line?.[1] !== undefined) isReady(line[1]);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    child.once('exit', (code) => reject(new Error(`convoke serve ended with ${code}: ${stderr}`)));
    return new Process(child, await inTime('the ready line', ready));
  }

  /** Sends a signal; returns how the process ended, and how long that took. */
  async end(signal: 'SIGTERM' | 'SIGKILL'): Promise<{ code: number | null; duration_ms: number }> {
    const from_ms = performance.now();
    const ended = once(this.#child, 'exit') as Promise<[number | null]>;
    this.#child.kill(signal);
    const [code] = await inTime('the end of the process', ended);
    return { code, duration_ms: performance.now() - from_ms };
  }
}

async function dataDirectory(t: TestContext): Promise<string> {
  const data = await mkdtemp(join(tmpdir(), 'convoke-restart-'));
  t.after(() => rm(data, { recursive: true, force: true, maxRetries: 5 }));
  return data;
}

async function enroll(client: ConvokeClient, instance_id: string, receiver: Receiver, meetings: string[]) {
  const instance = { instance_id, instance_name: instance_id, agent_ids: ['a'], webhook_url: receiver.url };
  await client.register(instance);
  for (const meeting_id of meetings) await client.joinMeeting({ instance_id, meeting_id, agent_ids: ['a'] });
}

/** The lanes that the machine got. Each message counts once, at its first arrival. */
function lanesOf(requests: readonly Received[]): Map<string, number[]> {
  const seen = new Set<string>();
  const lanes = new Map<string, number[]>();
  for (const request of requests) {
    const id = headerOf(request, 'webhook-id');
    if (seen.has(id)) continue;
    seen.add(id);
    const { meeting_id } = pushOf(request);
    const lane = lanes.get(meeting_id) ?? [];
    lane.push(Number(headerOf(request, 'convoke-seq')));
    lanes.set(meeting_id, lane);
  }
  return lanes;
}

/** Sends to each meeting as fast as the service responds, until the test stops the senders or the service has ended. */
function speak(
  client: ConvokeClient,
  meetings: string[],
): { accepted: Map<string, number[]>; end: () => Promise<void> } {
  const accepted = new Map<string, number[]>(meetings.map((meeting_id) => [meeting_id, []]));
  const enough = new AbortController();
  const speakers = meetings.flatMap((meeting_id) =>
    [1, 2].map(async () => {
      while (!enough.signal.aborted) {
        try {
          const { seq } = await client.sendMessage(meeting_id, { content: 'x'.repeat(200) });
          accepted.get(meeting_id)?.push(seq);
        } catch (error) {
          // The service has ended, or is stopping.
          assert.ok(error instanceof ConvokeError && (error.status === null || error.status === 503), String(error));
          return;
        }
      }
    }),
  );
  return {
    accepted,
    async end() {
      enough.abort();
      await Promise.all(speakers);
    },
  };
}

const nothingPending = (client: ConvokeClient): Promise<unknown> =>
  until(
    'everything to be delivered',
    () => client.listDeliveries({ state: 'pending', limit: 1 }),
    ({ data }) => data.length === 0,
  );

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

describe('a process that ends:', { concurrency: true }, () => {
  test('killed while 1,000 deliveries wait for machines that are down: all arrive, once, in order per lane', async (t) => {
    const data = await dataDirectory(t);
    const meetings = upTo(5).map((n) => `meeting-${n}`);
    const machines = [
      { id: 'one', receiver: await startReceiver(t) },
      { id: 'two', receiver: await startReceiver(t) },
    ];
    const before = await Process.start(t, data);
    for (const { id, receiver } of machines) {
      await enroll(before.client, id, receiver, meetings);
      await receiver.down();
    }
    await Promise.all(
      meetings.map(async (meeting_id) => {
        for (const number of upTo(100)) {
          const sent = await before.client.sendMessage(meeting_id, { number });
          assert.deepEqual([sent.seq, sent.deliveries_queued], [number, 2]);
        }
      }),
    );
    await before.end('SIGKILL');

    const after = await Process.start(t, data);
    for (const { id, receiver } of machines) {
      assert.equal((await after.client.getInstance(id)).pending_deliveries, 500);
      await receiver.up();
      await after.client.heartbeat(id);
    }
    for (const { receiver } of machines) {
      const requests = await receiver.count(500);
      const lanes = lanesOf(requests);
      assert.deepEqual([...lanes.keys()].toSorted(), meetings);
      for (const seqs of lanes.values()) assert.deepEqual(seqs, upTo(100));
    }
    await nothingPending(after.client);
    assert.deepEqual(
      machines.map(({ receiver }) => receiver.requests.length),
      [500, 500],
    );
    assert.equal((await after.end('SIGTERM')).code, 0);
  });

  test('killed while it accepts and delivers: what got a 201 arrives, in order per lane', async (t) => {
    const data = await dataDirectory(t);
    const meetings = ['a', 'b', 'c'];
    const receiver = await startReceiver(t);
    const before = await Process.start(t, data);
    await enroll(before.client, 'machine', receiver, meetings);
    const speaking = speak(before.client, meetings);
    await receiver.count(200);
    await before.end('SIGKILL');
    await speaking.end();

    const after = await Process.start(t, data);
    await nothingPending(after.client);
    const lanes = lanesOf(receiver.requests);
    for (const [meeting_id, seqs] of speaking.accepted) {
      const received = lanes.get(meeting_id) ?? [];
      assert.ok(seqs.length > 0);
      assert.deepEqual(received, upTo(received.length), 'in order and without a gap');
      assert.ok(
        received.length >= Math.max(...seqs),
        `${meeting_id}: ${Math.max(...seqs)} accepted, ${received.length} received`,
      );
    }
    // A push that arrives again has the same id and the same bytes.
    const bodies = new Map<string, string>();
    for (const request of receiver.requests) {
      const id = headerOf(request, 'webhook-id');
      assert.equal(bodies.get(id) ?? request.text, request.text);
      bodies.set(id, request.text);
    }
    assert.equal((await after.end('SIGTERM')).code, 0);
  });

  test('SIGTERM under load: exit 0 within 7 s, nothing lost, nothing sent twice', async (t) => {
    const data = await dataDirectory(t);
    const meetings = ['a', 'b', 'c'];
    const machines = await Promise.all(upTo(3).map(() => startReceiver(t)));
    const before = await Process.start(t, data);
    for (const [i, receiver] of machines.entries()) await enroll(before.client, `machine-${i}`, receiver, meetings);
    const speaking = speak(before.client, meetings);
    for (const receiver of machines) await receiver.count(200);
    const { code, duration_ms } = await before.end('SIGTERM');
    assert.equal(code, 0);
    assert.ok(duration_ms < STOP_MS_MAX, `${duration_ms} ms`);
    await speaking.end();

    const after = await Process.start(t, data);
    await nothingPending(after.client);
    for (const receiver of machines) {
      const ids = receiver.requests.map((request) => headerOf(request, 'webhook-id'));
      assert.equal(new Set(ids).size, ids.length, 'something was sent twice');
      const lanes = lanesOf(receiver.requests);
      for (const [meeting_id, seqs] of speaking.accepted) {
        const received = lanes.get(meeting_id) ?? [];
        assert.deepEqual(received, upTo(received.length), 'in order and without a gap');
        assert.ok(received.length >= Math.max(...seqs));
      }
    }
    assert.equal((await after.end('SIGTERM')).code, 0);
  });

  test('SIGTERM while a machine does not respond: exit 0 within 7 s, and the attempt is on record', async (t) => {
    const data = await dataDirectory(t);
    const receiver = await startReceiver(t, 'hang');
    const before = await Process.start(t, data);
    // A service that has nothing to do tells how long a stop takes on this machine now.
    const idle = await Process.start(t, await dataDirectory(t));
    await enroll(before.client, 'mute', receiver, ['m']);
    const { message_id } = await before.client.sendMessage('m', {});
    await receiver.next();
    const [{ code, duration_ms }, of_idle] = await Promise.all([before.end('SIGTERM'), idle.end('SIGTERM')]);
    assert.equal(code, 0);
    const took = `${duration_ms} ms, and ${of_idle.duration_ms} ms without a machine`;
    assert.ok(duration_ms - of_idle.duration_ms < STOP_MS_MAX, took);

    const after = await Process.start(t, data);
    const [delivery] = (await after.client.listDeliveries({ message_id })).data;
    assert.deepEqual(
      [delivery?.state, delivery?.attempt_count, delivery?.last_attempt?.outcome],
      ['pending', 1, 'timeout'],
    );
    assert.equal((await after.end('SIGTERM')).code, 0);
  });

  test('everything that it accepted is there after a restart', async (t) => {
    const data = await dataDirectory(t);
    const receiver = await startReceiver(t);
    const before = await Process.start(t, data);
    assert.match(before.url, /^http:\/\/127\.0\.0\.1:\d+$/);
    assert.equal((await fetch(`${before.url}/readyz`)).status, 200, 'it answers as soon as the ready line is there');
    await enroll(before.client, 'machine', receiver, ['m', 'left']);
    await before.client.leaveMeeting({ instance_id: 'machine', meeting_id: 'left' });
    await before.client.sendMessage('m', { number: 1 }, { idempotency_key: 'key' });
    await nothingPending(before.client);
    const listed = async ({ client }: Process) => ({
      instances: await client.listInstances(),
      meetings: await client.listMeetings(),
      memberships: await client.listMeetingInstances('left', { include_left: true }),
      messages: await client.listMessages('m'),
      deliveries: await client.listDeliveries(),
    });
    const expected = await listed(before);
    assert.equal((await before.end('SIGTERM')).code, 0);

    const after = await Process.start(t, data);
    assert.deepEqual(await listed(after), expected);
    await after.client.sendMessage('m', { number: 1 }, { idempotency_key: 'key' });
    assert.deepEqual(await listed(after), expected, 'the key is known over a restart');
    assert.equal((await after.client.sendMessage('m', { number: 2 })).seq, 2);
    await receiver.count(2);
    assert.equal((await after.end('SIGTERM')).code, 0);
  });

  test('a service that is closed inside another program releases everything: that program can end', async (t) => {
    // This program closes a service in the middle of a delivery, again and again. If a timer or a socket were left, the
    // process would not end.
    const rounds = 5;
    const program = `
      import { Receiver } from './test/support/receiver.ts';
      import { Service } from './test/support/service.ts';
      for (let round = 0; round < ${rounds}; round++) {
        const receiver = new Receiver();
        await receiver.up();
        const service = new Service();
        await service.start();
        const { instance_id } = await service.register({ webhook_url: receiver.url });
        await service.join('m', instance_id, ['a']);
        await service.send('m', {});
        await receiver.next();
        await service.close();
        await receiver.down();
        console.log('closed');
      }`;
    const child = spawn(process.execPath, ['--eval', program], {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.after(() => child.kill('SIGKILL'));
    const ended = once(child, 'exit') as Promise<[number | null]>;
    // The work of the program may take long on a slow machine. Only after it the program must end at once.
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    for (let round = 0; round < rounds; round++) {
      const { done } = await inTime(`the end of round ${round}`, lines.next());
      assert.equal(done, false, 'each round ends');
    }
    const [code] = await inTime('the end of the program', ended);
    assert.equal(code, 0);
  });
});
