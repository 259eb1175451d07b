/**
 * A real Hermes gateway, in two ways. With the runtime `hermes` it gets webhooks, and the agent answers with its tool
 * `terminal`. With the runtime `openai` its API returns the answer in the response.
 */
import assert from 'node:assert/strict';
import { signingKey, signPush } from '../../src/domain/signature.ts';
import { Service } from '../support/service.ts';
import { answerWith, runsIn } from './answering_by_request.ts';
import { converse, type Row } from './conversation.ts';
import { API_KEY, HermesGateway, PACKAGES, SECRET } from './hermes_gateway.ts';
import type { Proof } from './main.ts';
import { type ModelServer, startModelServer } from './model_server.ts';
import { installFromPyPi } from './packages.ts';

const VERSION = PACKAGES[0].replace('==', ' ');

export async function proveHermes(): Promise<Proof> {
  const directory = await installFromPyPi(PACKAGES);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const gateway = await HermesGateway.start(directory, model);
  cleanup.defer(() => gateway.close());
  const rows = await Promise.resolve()
    .then(async () => [...(await byHooks(gateway, model)), ...(await byApi(gateway, model))])
    .catch((error: unknown) => {
      throw new Error(gateway.output, { cause: error });
    });
  await showControls(gateway);
  return {
    runtime: VERSION,
    shown: [
      'its webhooks, by webhook and by connect: one run for each message, and the answer of the agent in the meeting; webhook-test runs none',
      'its API, by webhook and by connect: the same, and the answer is in the response',
      'control: the body of the specification with the headers of Standard Webhooks gets 401, and so does another secret; a message that comes again is a duplicate',
    ],
    rows,
  };
}

function byHooks(gateway: HermesGateway, model: ModelServer): Promise<Row[]> {
  answerWith(model, 'terminal');
  return converse({
    runtime: 'hermes',
    version: `${VERSION}, its webhooks`,
    sent: 'POST /webhooks/ROUTE with event_type',
    came_back: '202; the answer by the tool terminal',
    agent_id: 'hermes',
    to: `${gateway.url}/webhooks/convoke`,
    // A machine that pulls gets no signature; Hermes also accepts the secret of the route in this header.
    headers_of_connect: { 'x-gitlab-token': SECRET },
    registration: { runtime: 'hermes', webhook_secret: SECRET },
    runsOf: runsIn(model),
  });
}

function byApi(gateway: HermesGateway, model: ModelServer): Promise<Row[]> {
  model.stepFor = (_, number) => ({ text: `Answer ${number}` });
  return converse(
    {
      runtime: 'openai',
      version: `${VERSION}, its /v1/chat/completions`,
      sent: 'POST /v1/chat/completions',
      came_back: 'choices[0]',
      agent_id: 'hermes',
      to: gateway.api_url,
      headers: { authorization: `Bearer ${API_KEY}` },
      registration: { runtime: 'openai', runtime_options: { model: 'hermes-agent' } },
      runsOf: runsIn(model),
    },
    'And tomorrow?',
  );
}

/** Shows why Convoke has the runtime `hermes`: Hermes does not know the headers of the specification. */
async function showControls(gateway: HermesGateway): Promise<void> {
  await using cleanup = new AsyncDisposableStack();
  const service = new Service();
  await service.start();
  cleanup.defer(() => service.close());
  const webhook_url = `${gateway.url}/webhooks/convoke`;
  for (const registration of [
    { webhook_secret: SECRET, success_statuses: '2xx' as const },
    { runtime: 'hermes' as const, webhook_secret: `whsec_${Buffer.alloc(32, 'o').toString('base64')}` },
  ]) {
    const { instance_id } = await service.register({ webhook_url, ...registration });
    const tested = await service.post<{ status_code: number }>('/api/v1/instances/webhook-test/', { instance_id });
    assert.equal(tested.body.status_code, 401, tested.text);
  }
  const statuses = [await post(webhook_url, 'dlv_again'), await post(webhook_url, 'dlv_again')];
  assert.deepEqual(statuses, ['accepted', 'duplicate']);
}

/** Sends a push. @returns what Hermes says that it did */
async function post(url: string, id: string): Promise<unknown> {
  const body = JSON.stringify({ event_type: 'new_message', convoke: { prompt: 'Said twice' } });
  const timestamp_s = Math.floor(Date.now() / 1000);
  const headers = {
    'content-type': 'application/json',
    'svix-id': id,
    'svix-timestamp': String(timestamp_s),
    'svix-signature': signPush([signingKey(SECRET)], id, timestamp_s, Buffer.from(body)),
  };
  const response = await fetch(url, { method: 'POST', headers, body });
  return ((await response.json()) as { status: unknown }).status;
}
