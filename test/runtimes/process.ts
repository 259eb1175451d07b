import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * How long a start may take. A server in Python starts in 10 s on a quiet machine, in a minute or two on a busy one.
 */
const READY_MS_MAX = 240_000;
const LOOK_MS = 100;

export interface ServerProcess {
  command: string;
  args: readonly string[];
  cwd: string;
  env: Record<string, string>;
  /** Responds with 200 when the server is ready. */
  ready_url: string;
}

/** A server of another project, in its own process group, so that its child processes end with it. */
export class RuntimeProcess {
  readonly #process: ChildProcess;
  /** The output of all processes of the server. */
  output = '';

  private constructor(process_: ChildProcess) {
    this.#process = process_;
    for (const stream of [process_.stdout!, process_.stderr!]) {
      stream.on('data', (chunk: Buffer) => (this.output += chunk.toString()));
    }
  }

  static async start({ command, args, cwd, env, ready_url }: ServerProcess): Promise<RuntimeProcess> {
    const settings = { PATH: process.env['PATH'] ?? '', HOME: cwd, NO_COLOR: '1', ...env };
    const server = new RuntimeProcess(spawn(command, args, { cwd, env: settings, detached: true }));
    await server.#ready(ready_url);
    return server;
  }

  async #ready(url: string): Promise<void> {
    for (const from_ms = performance.now(); ; await pause(LOOK_MS)) {
      const status = await fetch(url).then(
        (response) => response.status,
        () => null,
      );
      if (status === 200) return;
      const late = performance.now() - from_ms > READY_MS_MAX;
      if (this.#process.exitCode !== null || late) {
        await this.close();
        assert.fail(`the server is not ready:\n${this.output}`);
      }
    }
  }

  async close(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const closed = once(this.#process, 'close');
    process.kill(-(this.#process.pid as number), 'SIGKILL');
    await closed;
  }
}
