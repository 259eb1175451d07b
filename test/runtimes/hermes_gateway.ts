/** A real Hermes gateway on loopback, with the configuration of the documents and a scripted model. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { freePort } from '../support/free_port.ts';
import { MODEL, type ModelServer } from './model_server.ts';

/** The gateway for webhooks needs aiohttp, which the package of Hermes does not install. */
export const PACKAGES = ['hermes-agent==0.19.0', 'aiohttp==3.14.1'] as const;
/** The key of Hermes' own API. */
export const API_KEY = 'the-key-of-the-api-of-hermes-itself';
/** The secret of the route for webhooks. */
export const SECRET = `whsec_${Buffer.alloc(32, 'k').toString('base64')}`;
const READY_MS_MAX = 120_000;
const LOOK_MS = 100;

export class HermesGateway {
  /** The URL for webhooks. */
  readonly url: string;
  /** The URL of the API. */
  readonly api_url: string;
  output = '';
  readonly #process: ChildProcess;
  readonly #home: string;

  private constructor(directory: string, home: string, webhook_port: number, api_port: number) {
    this.url = `http://127.0.0.1:${webhook_port}`;
    this.api_url = `http://127.0.0.1:${api_port}/v1`;
    this.#home = home;
    const env = { PATH: process.env['PATH'], HOME: home, HERMES_HOME: home, NO_COLOR: '1' };
    // The gateway has its own process group, so that its child processes end with it.
    this.#process = spawn(join(directory, 'bin/hermes'), ['gateway', 'run'], { env, cwd: home, detached: true });
    for (const stream of [this.#process.stdout!, this.#process.stderr!]) {
      stream.on('data', (chunk: Buffer) => (this.output += chunk.toString()));
    }
  }

  static async start(directory: string, model: ModelServer): Promise<HermesGateway> {
    const home = await mkdtemp(join(tmpdir(), 'convoke-hermes-'));
    const [webhook_port, api_port] = [await freePort(), await freePort()];
    // The file is YAML, and every JSON text is YAML.
    await writeFile(join(home, 'config.yaml'), JSON.stringify(configOf(webhook_port, api_port, model)));
    const gateway = new HermesGateway(directory, home, webhook_port, api_port);
    await gateway.#isReady();
    return gateway;
  }

  async close(): Promise<void> {
    const closed = once(this.#process, 'close');
    process.kill(-(this.#process.pid as number), 'SIGKILL');
    await closed;
    await rm(this.#home, { recursive: true, force: true, maxRetries: 5 });
  }

  async #isReady(): Promise<void> {
    for (const from_ms = performance.now(); ; await pause(LOOK_MS)) {
      const answers = await Promise.all([this.url, new URL(this.api_url).origin].map(isHealthy));
      if (answers.every(Boolean)) return;
      assert.equal(this.#process.exitCode, null, this.output);
      assert(performance.now() - from_ms < READY_MS_MAX, `the gateway is not ready:\n${this.output}`);
    }
  }
}

async function isHealthy(origin: string): Promise<boolean> {
  try {
    return (await fetch(`${origin}/health`)).ok;
  } catch {
    return false;
  }
}

function configOf(webhook_port: number, api_port: number, { url }: ModelServer): object {
  const route = { secret: SECRET, events: ['new_message'], prompt: '{convoke.prompt}' };
  return {
    model: { default: MODEL, provider: 'custom', base_url: url, api_key: 'none', context_length: 120_000 },
    platforms: {
      webhook: { enabled: true, extra: { host: '127.0.0.1', port: webhook_port, routes: { convoke: route } } },
      api_server: { enabled: true, extra: { host: '127.0.0.1', port: api_port, key: API_KEY } },
    },
    platform_toolsets: { webhook: ['terminal'] },
    // Without generated titles, each run makes only one call of the model.
    auxiliary: { title_generation: { enabled: false } },
  };
}
