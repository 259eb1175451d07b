/**
 * `convoke connect` in its own process. The service is killed, the network drops packets, and the runtime restarts. No
 * message is lost or arrives twice, and lanes stay in order.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ConvokeClient, untilReached, verify } from '@convoke/sdk';
import { fileName } from '../../src/cli/program/commands/connect/connection.ts';
import { serve, type Service, start, stop, temporaryDirectory } from '../support/command_line.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { type Answer, headerOf, pushOf, type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/wait.ts';

const MEETINGS = ['one', 'two', 'three'];
const TOKEN = 'token-of-the-runtime';
const FLAGS = ['--retry-schedule', '200ms,200ms,200ms,200ms,200ms', '--log-level', 'error'];

/** A service behind a proxy, a runtime, and `convoke connect` between them. */
class Laptop {
  readonly client: ConvokeClient;
  readonly proxy: CuttingProxy;
  readonly runtime: Receiver;
  readonly connect: ReturnType<typeof start>;
  output = '';
  #service: Service;
  readonly #data: string;
  #sent = 0;

  private constructor(t: TestContext, data: string, service: Service, proxy: CuttingProxy, runtime: Receiver) {
    this.#data = data;
    this.#service = service;
    this.proxy = proxy;
    this.runtime = runtime;
    this.client = new ConvokeClient({ base_url: `http://127.0.0.1:${proxy.port}`, send_attempts_max: 1 });
    const meetings = MEETINGS.flatMap((meeting_id) => ['--meeting', meeting_id]);
    const to = ['--to', runtime.url, '--header', `authorization: Bearer ${TOKEN}`];
    const args = ['connect', '--agent', 'anna', ...meetings, ...to, '--timeout', '20', '--url', this.client.base_url];
    this.connect = start(args);
    for (const stream of [this.connect.stdout!, this.connect.stderr!])
      stream.on('data', (chunk: Buffer) => (this.output += chunk.toString()));
    t.after(async () => {
      this.connect.kill('SIGKILL');
      await stop(this.#service, 'SIGKILL');
      await proxy.close();
    });
  }

  static async start(t: TestContext): Promise<Laptop> {
    const data = temporaryDirectory(t);
    const service = await serve(data, { flags: FLAGS });
    const proxy = await CuttingProxy.start(Number(new URL(service.url).port));
    const laptop = new Laptop(t, data, service, proxy, await startReceiver(t));
    await laptop.says(/takes part in one, two, three as anna/);
    return laptop;
  }

  /** Waits until the command has said so. */
  async says(what: RegExp): Promise<void> {
    await until(
      `the command to say ${what}`,
      () => this.output,
      (output) => what.test(output),
    );
  }

  /** Kills the service, and starts it again on another port behind the same proxy. */
  async restartService(): Promise<void> {
    await stop(this.#service, 'SIGKILL');
    await pause(300);
    this.#service = await serve(this.#data, { flags: FLAGS });
    this.proxy.to_port = Number(new URL(this.#service.url).port);
  }

  /** Sends to all meetings in turn. Each message is stored once, however often this tries. */
  async send(count: number, pause_ms = 0): Promise<void> {
    for (let i = 0; i < count; i++) {
      const number = this.#sent++;
      const meeting_id = MEETINGS[number % MEETINGS.length] as string;
      const idempotency_key = `message-${number}`;
      const direct = () =>
        new ConvokeClient({ base_url: this.#service.url, send_attempts_max: 1 }).sendMessage(
          meeting_id,
          { number },
          { idempotency_key },
        );
      await untilReached(direct);
      if (pause_ms > 0) await pause(pause_ms);
    }
  }

  /** Waits until everything that was sent has arrived, and checks each lane. */
  async arrived(): Promise<void> {
    const ids = () => new Set(this.runtime.requests.map((request) => headerOf(request, 'webhook-id')));
    await until(
      `${this.#sent} messages`,
      () => ids().size,
      (size) => size >= this.#sent,
    );
    assert.equal(this.runtime.requests.length, this.#sent, 'nothing twice');
    for (const [lane, meeting_id] of MEETINGS.entries()) {
      const numbers = this.runtime.requests
        .map(pushOf)
        .filter((push) => push.meeting_id === meeting_id)
        .map(({ message }) => message['number']);
      const expected = Array.from({ length: this.#sent }, (_, i) => i).filter((i) => i % MEETINGS.length === lane);
      assert.deepEqual(numbers, expected, `${meeting_id} in order`);
    }
  }

  async delivered(): Promise<void> {
    await until(
      'every delivery on record as delivered',
      async () => (await this.client.listDeliveries({ state: 'pending' })).data.length,
      (pending) => pending === 0,
    );
    assert.deepEqual((await this.client.listDeliveries({ state: 'failed' })).data, []);
  }
}

const slowly = (ms: number) => (): Answer => ({ after: pause(ms) });

describe('convoke connect', () => {
  test('the exact signed bytes arrive with the local header, which no connection to the service ever carried', async (t) => {
    const laptop = await Laptop.start(t);
    let wire = '';
    laptop.proxy.onRequest = (bytes) => {
      wire += bytes.toString('latin1');
      return 'pass';
    };
    const { webhook_secret } = await laptop.client.rotateSecret('anna');
    await laptop.send(3);
    await laptop.arrived();
    for (const { headers, body } of laptop.runtime.requests) {
      assert.equal(headers['authorization'], `Bearer ${TOKEN}`);
      const push = await verify(body, headers, webhook_secret);
      assert.deepEqual(push.target_agents, ['anna']);
    }
    await laptop.delivered();
    assert(wire.includes('/api/v1/instances/anna/pull/'), 'the wire was seen');
    assert(!wire.includes(TOKEN));
    await laptop.says(/\d\d:\d\d:\d\d  two #1  200  /);
  });

  test('the service is killed and started again under load', async (t) => {
    const laptop = await Laptop.start(t);
    laptop.runtime.behaviour = slowly(20);
    const sending = laptop.send(240, 5);
    for (let kill = 0; kill < 3; kill++) {
      await pause(500);
      await laptop.restartService();
    }
    await sending;
    await laptop.arrived();
    await laptop.delivered();
    await laptop.says(/; trying again\n[^]*the service responds again\n/);
  });

  test('the network drops for a while, twice: what waited arrives in order', async (t) => {
    const laptop = await Laptop.start(t);
    laptop.runtime.behaviour = slowly(10);
    const sending = laptop.send(240, 10);
    for (const verdict of ['cut', 'swallow'] as const) {
      await pause(300);
      laptop.proxy.onRequest = laptop.proxy.onAnswer = () => verdict;
      laptop.proxy.cutAll();
      await pause(1_000);
      laptop.proxy.onRequest = laptop.proxy.onAnswer = () => 'pass';
      laptop.proxy.cutAll();
    }
    await sending;
    await laptop.arrived();
    await laptop.delivered();
  });

  test('while the runtime is down its messages wait and spend no retry; they arrive in order when it is back', async (t) => {
    const laptop = await Laptop.start(t);
    await laptop.send(6);
    await laptop.arrived();
    await laptop.runtime.down();
    await laptop.send(60);
    await laptop.says(/nothing listens at/);
    await pause(1_000);
    const { consecutive_failures, health } = await laptop.client.getInstance('anna');
    assert(consecutive_failures <= MEETINGS.length && health !== 'down', `${consecutive_failures} failures`);
    await laptop.runtime.up();
    await laptop.arrived();
    await laptop.delivered();
  });

  test('Ctrl-C ends it after what is in progress, with 0, and later pushes wait', async (t) => {
    const laptop = await Laptop.start(t);
    const release = Promise.withResolvers<void>();
    laptop.runtime.behaviour = { after: release.promise };
    await laptop.send(1);
    await laptop.runtime.count(1);
    laptop.connect.kill('SIGINT');
    await laptop.says(/ends after the pushes in progress/);
    release.resolve();
    const [code] = (await once(laptop.connect, 'exit')) as [number | null];
    assert.equal(code, 0);
    await laptop.delivered();
    await laptop.send(1);
    const [delivery] = (await laptop.client.listDeliveries({ state: 'pending' })).data;
    assert.equal(delivery?.attempt_count, 0);
  });

  test('the link of an invite is enough: its key is kept for this user alone, and works again after an end', async (t) => {
    const service = await serve(temporaryDirectory(t), { flags: FLAGS });
    t.after(() => stop(service, 'SIGKILL'));
    const open = new ConvokeClient({ base_url: service.url });
    const { token } = await open.createKey({ name: 'admin', scopes: ['admin'] });
    const admin = new ConvokeClient({ base_url: service.url, api_key: token });
    const { link, instance_id } = await admin.createInvite({ meeting_ids: ['one'], agent_ids: ['anna'] });
    const runtime = await startReceiver(t);
    const env = { XDG_CONFIG_HOME: temporaryDirectory(t) };
    for (const [count, args] of [[link, '--to', runtime.url], [instance_id]].entries()) {
      const connect = start(['connect', ...args], { env });
      t.after(() => void connect.kill('SIGKILL'));
      let output = '';
      for (const stream of [connect.stdout!, connect.stderr!])
        stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
      await until(
        'the connection',
        () => output,
        (text) => text.includes('takes part in one'),
      );
      await admin.sendMessage('one', { count });
      await runtime.count(count + 1);
      connect.kill('SIGTERM');
      assert.deepEqual(await once(connect, 'exit'), [0, null], output);
      assert(!output.includes('cvk_'));
    }
    const saved = statSync(join(env.XDG_CONFIG_HOME, 'convoke/connections', `${fileName(instance_id)}.json`));
    assert.equal(saved.mode & 0o777, 0o600);
  });
});
