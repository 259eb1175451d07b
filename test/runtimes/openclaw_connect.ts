/**
 * A real OpenClaw gateway on loopback, behind `convoke connect`. Runs of an agent take 10 s, and the test restarts the
 * gateway in the middle. The gateway must accept the messages in order and run each once, and the instance must never
 * be down. Several runs go on at the same time, and the gateway alone decides in which order they call the model.
 */
import assert from 'node:assert/strict';
import { ConvokeClient } from '@convoke/sdk';
import { start } from '../support/command_line.ts';
import { Service } from '../support/service.ts';
import { until } from '../support/wait.ts';
import type { Proof } from './main.ts';
import { type ModelServer, startModelServer } from './model_server.ts';
import { Gateway, PACKAGE } from './openclaw_gateway.ts';
import { installPackage } from './packages.ts';

const TURN_MS = 10_000;
const MESSAGES = Array.from({ length: 20 }, (_, i) => `Message ${String(i + 1).padStart(2, '0')}`);
/** The test restarts the gateway after it has got this many messages. */
const RESTART_AFTER = 8;
const INSTANCE = 'openclaw-laptop';

export async function proveConnect(): Promise<Proof> {
  const directory = await installPackage(PACKAGE);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const service = new Service();
  await service.start();
  cleanup.defer(() => service.close());
  const gateway = await Gateway.start(directory, model);
  cleanup.defer(() => gateway.close());

  const to = ['--to', `${gateway.url}/hooks/convoke`, '--header', `authorization: Bearer ${gateway.token}`];
  const who = ['--instance', INSTANCE, '--agent', 'main', '--meeting', 'standup-42'];
  const connect = start(['connect', ...who, ...to, '--url', service.url]);
  cleanup.defer(() => void connect.kill('SIGKILL'));
  let lines = '';
  for (const stream of [connect.stdout!, connect.stderr!])
    stream.on('data', (chunk: Buffer) => (lines += chunk.toString()));
  await until(
    'the connection',
    () => lines,
    (text) => text.includes('takes part in'),
  );

  const client = new ConvokeClient({ base_url: service.url });
  try {
    await showRestart(service, client, gateway, model);
  } catch (error) {
    throw new Error([lines, ...(await failedAttempts(client)), gateway.output].join('\n'), { cause: error });
  }
  return {
    runtime: `${PACKAGE} behind convoke connect, Node ${process.versions.node}, turns of ${TURN_MS / 1000} s`,
    shown: [
      `${MESSAGES.length} messages, the gateway restarted after ${RESTART_AFTER}: each delivered in order and run once, with one model call; the instance is never down`,
      ...(await failedAttempts(client)).map((attempt) => `not admitted: ${attempt}`),
    ],
  };
}

async function showRestart(
  service: Service,
  client: ConvokeClient,
  gateway: Gateway,
  model: ModelServer,
): Promise<void> {
  model.turn_ms = TURN_MS;
  for (const content of MESSAGES) await service.send('standup-42', { content });
  for (const [before] of MESSAGES.entries()) {
    if (before === RESTART_AFTER) await gateway.restart();
    await until(
      `delivery ${before + 1}`,
      async () => {
        assert.notEqual((await service.instance(INSTANCE)).health, 'down');
        return (await client.listDeliveries({ state: 'delivered' })).data.length;
      },
      (length) => length > before,
    );
  }
  await until(
    'the runs',
    () => gateway.runs('ok'),
    (runs) => runs === MESSAGES.length,
  );

  // A gateway that is stopping refuses new messages with 502, and logs each as a failed run.
  assert.equal(gateway.runs('error'), gateway.output.split('status=error summary=GatewayDrainingError').length - 1);
  assert.deepEqual(callsOf(model).toSorted(), MESSAGES, 'one model call for each message');
  assert.deepEqual(await admitted(client), MESSAGES, 'the gateway admits them in order');
  const { health, consecutive_failures } = await service.instance(INSTANCE);
  assert.deepEqual({ health, consecutive_failures }, { health: 'up', consecutive_failures: 0 });
}

/** What happened to each push that the gateway did not accept. */
async function failedAttempts(client: ConvokeClient): Promise<string[]> {
  const { data } = await client.listDeliveries({ limit: 100 });
  const deliveries = await Promise.all(data.map(({ delivery_id }) => client.getDelivery(delivery_id)));
  return deliveries
    .flatMap(({ seq, attempts }) => attempts.map((attempt) => ({ seq, ...attempt })))
    .filter(({ outcome }) => outcome !== 'ok')
    .map((attempt) => JSON.stringify(attempt));
}

/** The messages in the order of the attempts that succeeded. */
async function admitted(client: ConvokeClient): Promise<unknown[]> {
  const { data } = await client.listMessages('standup-42');
  const contents = new Map(data.map(({ message_id, message }) => [message_id, message['content']]));
  const deliveries = await Promise.all(
    (await client.listDeliveries()).data.map(({ delivery_id }) => client.getDelivery(delivery_id)),
  );
  const at = new Map(deliveries.map(({ message_id, attempts }) => [message_id, attempts.at(-1)?.started_at ?? '']));
  return [...at].toSorted(([, a], [, b]) => a.localeCompare(b)).map(([message_id]) => contents.get(message_id));
}

/** The message of each model call, in the order of the calls. */
function callsOf({ turns }: ModelServer): string[] {
  return turns.map(({ prompt }) => MESSAGES.filter((text) => prompt.includes(text)).join(' and '));
}
