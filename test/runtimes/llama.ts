/**
 * The server of llama.cpp, from its Python package. The test makes a model with random weights, so its answers are
 * noise.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { freePort } from '../support/free_port.ts';
import { converse } from './conversation.ts';
import type { Proof } from './main.ts';
import { installFromPyPi } from './packages.ts';
import { RuntimeProcess } from './process.ts';

const PACKAGES = ['llama-cpp-python[server]==0.3.36', 'gguf==0.19.0'] as const;
const VERSION = 'llama-cpp-python==0.3.36';
const MODEL = 'tiny';
const SERVE = ['-m', 'llama_cpp.server', '--model_alias', MODEL, '--n_ctx', '4096', '--host', '127.0.0.1'];
/** How many tokens an answer has: the model does not end an answer by itself. */
const TOKENS = 16;
/** The noise that the model produces. */
const NOISE = /^[bdfgklmnprst][aeiou]( [bdfgklmnprst][aeiou])+$/;

export async function proveLlama(): Promise<Proof> {
  const environment = await installFromPyPi(PACKAGES);
  const python = join(environment, 'bin/python');
  await using cleanup = new AsyncDisposableStack();
  const work = await mkdtemp(join(tmpdir(), 'convoke-llama-'));
  cleanup.defer(() => rm(work, { recursive: true, force: true }));
  const model = join(work, 'tiny.gguf');
  await promisify(execFile)(python, [fileURLToPath(new URL('programs/tiny_model.py', import.meta.url)), model]);
  const url = `http://127.0.0.1:${await freePort()}`;
  const server = await RuntimeProcess.start({
    command: python,
    args: [...SERVE, '--model', model, '--port', new URL(url).port],
    cwd: work,
    env: { PYTHONUNBUFFERED: '1' },
    ready_url: `${url}/v1/models`,
  });
  cleanup.defer(() => server.close());
  const calls = (): number => server.output.split('POST /v1/chat/completions').length - 1;
  let counted = 0;
  const rows = await converse({
    runtime: 'openai',
    version: `${VERSION}, its server`,
    sent: 'POST /v1/chat/completions',
    came_back: 'choices[0], noise of a random model',
    agent_id: 'lena',
    to: `${url}/v1`,
    registration: { runtime: 'openai', runtime_options: { model: MODEL, max_tokens: TOKENS } },
    // The log of the server has the requests without their texts. So a call counts for the message that was sent last.
    runsOf(content) {
      if (content === '') return calls();
      const before = counted;
      counted = calls();
      return counted - before;
    },
  });
  for (const { reply } of rows) assert.match(reply, NOISE);
  return {
    runtime: `${VERSION}, its server, a random model`,
    shown: ['by webhook and by connect: one call for each message, and its noise in the meeting'],
    rows,
  };
}
