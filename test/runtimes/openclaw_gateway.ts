/** A real OpenClaw gateway on loopback, with the configuration of the documents and a scripted model. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { runInNewContext } from 'node:vm';
import { MODEL, type ModelServer } from './model_server.ts';
import { freePort } from '../support/free_port.ts';

export const PACKAGE = 'openclaw@2026.9.6';
/** The token of the gateway's own API. */
export const GATEWAY_TOKEN = 'the-token-of-the-gateway-itself';
/** How long the start may take: 10 s on a quiet machine, a minute and a half on a busy machine. */
const READY_MS_MAX = 240_000;
const LOOK_MS = 100;

interface Hooks {
  hooks: { token: string; mappings: object[] };
}

export class Gateway {
  readonly url: string;
  readonly token: string;
  /** The output of all processes of the gateway. */
  output = '';
  readonly #program: string;
  readonly #home: string;
  #process: ChildProcess | null = null;

  private constructor(directory: string, home: string, port: number, token: string) {
    this.#program = join(directory, 'node_modules/openclaw/openclaw.mjs');
    this.#home = home;
    this.url = `http://127.0.0.1:${port}`;
    this.token = token;
  }

  /** @param agents the agents of the gateway; when absent, only `main` */
  static async start(directory: string, model: ModelServer, agents: readonly string[] = []): Promise<Gateway> {
    const home = await mkdtemp(join(tmpdir(), 'convoke-openclaw-'));
    const port = await freePort();
    const example = await readFile(new URL('../../examples/openclaw.json5', import.meta.url), 'utf8');
    const { hooks } = runInNewContext(`(${example})`) as Hooks;
    await writeFile(join(home, 'openclaw.json'), JSON.stringify(configOf(home, port, hooks, model, agents)));
    const gateway = new Gateway(directory, home, port, hooks.token);
    await gateway.#run();
    return gateway;
  }

  /** The number of hook runs that ended with this status. */
  runs(status: 'ok' | 'error'): number {
    return this.output
      .split('\n')
      .filter((line) => line.includes('hook agent run') && line.includes(`status=${status}`)).length;
  }

  /** Restarts the gateway as a service manager does: the gateway ends when its runs have ended, and starts again. */
  async restart(): Promise<void> {
    const ending = this.#process as ChildProcess;
    const closed = once(ending, 'close');
    ending.kill('SIGTERM');
    await closed;
    await this.#run();
  }

  async close(): Promise<void> {
    if (this.#process !== null) await endGroup(this.#process);
    await rm(this.#home, { recursive: true, force: true, maxRetries: 5 });
  }

  async #run(): Promise<void> {
    const home = this.#home;
    const env = {
      PATH: process.env['PATH'],
      HOME: home,
      OPENCLAW_STATE_DIR: home,
      OPENCLAW_CONFIG_PATH: join(home, 'openclaw.json'),
      NO_COLOR: '1',
    };
    const before = this.output.length;
    // The gateway has its own process group, so that its child processes end with it.
    const gateway = spawn(process.execPath, [this.#program, 'gateway', 'run'], { env, cwd: home, detached: true });
    this.#process = gateway;
    for (const stream of [gateway.stdout, gateway.stderr]) {
      stream.on('data', (chunk: Buffer) => (this.output += chunk.toString()));
    }
    for (
      const from_ms = performance.now();
      !/\[gateway\] ready/.test(this.output.slice(before));
      await pause(LOOK_MS)
    ) {
      assert.equal(gateway.exitCode, null, this.output);
      assert(performance.now() - from_ms < READY_MS_MAX, `the gateway is not ready:\n${this.output}`);
    }
  }
}

function configOf(
  home: string,
  port: number,
  hooks: Hooks['hooks'],
  model: ModelServer,
  agents: readonly string[],
): object {
  const shared = {
    ...hooks.mappings[0],
    match: { path: 'shared' },
    sessionKey: 'hook:convoke:shared',
  };
  return {
    gateway: {
      mode: 'local',
      bind: 'loopback',
      port,
      auth: { mode: 'token', token: GATEWAY_TOKEN },
      http: { endpoints: { chatCompletions: { enabled: true } } },
    },
    agents: {
      defaults: {
        model: { primary: `local/${MODEL}` },
        workspace: join(home, 'workspace'),
        heartbeat: { every: '0m' },
      },
      ...(agents.length > 0 && { list: agents.map((id, i) => ({ id, default: i === 0 })) }),
    },
    models: {
      mode: 'replace',
      catalogRefresh: { enabled: false },
      providers: { local: providerOf(model) },
    },
    hooks: { ...hooks, mappings: [...hooks.mappings, shared] },
    // The gateway talks only on loopback: it looks for no updates, sends no usage figures, and announces nothing.
    update: { checkOnStart: false },
    telemetry: { enabled: false },
    discovery: { mdns: { mode: 'off' } },
  };
}

function providerOf({ url }: ModelServer): object {
  const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  const limits = { contextWindow: 120_000, maxTokens: 8_192 };
  const models = [{ id: MODEL, name: MODEL, reasoning: false, input: ['text'], cost, ...limits }];
  return { baseUrl: url, apiKey: 'none', api: 'openai-completions', timeoutSeconds: 300, models };
}

async function endGroup(process_: ChildProcess): Promise<void> {
  if (process_.exitCode !== null || process_.signalCode !== null) return;
  const closed = once(process_, 'close');
  // After SIGTERM the gateway would wait for minutes for the runs in progress.
  process.kill(-(process_.pid as number), 'SIGKILL');
  await closed;
}
