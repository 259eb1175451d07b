/** The OpenAI-compatible endpoint of a real OpenClaw gateway, which runs an agent for each chat completion. */
import assert from 'node:assert/strict';
import { converse } from './conversation.ts';
import type { Proof } from './main.ts';
import { startModelServer } from './model_server.ts';
import { Gateway, GATEWAY_TOKEN, PACKAGE } from './openclaw_gateway.ts';
import { installPackage } from './packages.ts';

/** A turn takes longer than the 5 s that a webhook without `timeout_s` may take. */
const TURN_MS = 8_000;

export async function proveOpenAi(): Promise<Proof> {
  const directory = await installPackage(PACKAGE);
  await using cleanup = new AsyncDisposableStack();
  const model = await startModelServer();
  cleanup.defer(() => model.close());
  const gateway = await Gateway.start(directory, model);
  cleanup.defer(() => gateway.close());
  model.turn_ms = TURN_MS;
  const rows = await converse({
    runtime: 'openai',
    version: `${PACKAGE}, its /v1/chat/completions`,
    sent: 'POST /v1/chat/completions, model openclaw/main',
    came_back: `choices[0], after ${TURN_MS / 1000} s`,
    agent_id: 'main',
    to: `${gateway.url}/v1`,
    headers: { authorization: `Bearer ${GATEWAY_TOKEN}` },
    registration: { runtime: 'openai', runtime_options: { model: 'openclaw/{{agent_id}}', history: 0 } },
    runsOf: (content) => model.turns.filter(({ prompt }) => prompt.includes(content)).length,
  });
  for (const { reply } of rows) assert.match(reply, /^Answer \d+$/);
  return {
    runtime: `${PACKAGE} as a server of chat completions, turns of ${TURN_MS / 1000} s`,
    shown: ['by webhook and by connect: one model call for each message, and its answer in the meeting'],
    rows,
  };
}
