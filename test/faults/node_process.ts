import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { inTime } from '../support/wait.ts';
import type { Life } from './checker.ts';

const ROOT = resolve(import.meta.dirname, '../..');

export interface End {
  code: number | null;
  duration_ms: number;
}

/** The least that a process takes before it can push anything. */
const LOADING_MS = 300;

/** A program that says `ready URL` on its output, as a process of its own. */
export class NodeProcess {
  /** A receiver may note the last push of the process before a little late; this one has not even loaded by then. */
  readonly life: Life = { from_ms: Date.now() + LOADING_MS, to_ms: Infinity };
  /** Resolves with the URL; rejects when the process ends before. */
  readonly ready: Promise<string>;
  readonly child: ChildProcess;
  readonly #ended: Promise<unknown>;
  #log = '';

  private constructor(command: string, args: string[], settings: NodeJS.ProcessEnv) {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_')));
    const child = spawn(command, args, {
      cwd: ROOT,
      env: { ...env, ...settings, CONVOKE_LOG_FORMAT: 'json', CONVOKE_LOG_LEVEL: 'error' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const { promise, resolve: isReady, reject } = Promise.withResolvers<string>();
    this.child = child;
    this.ready = promise;
    this.ready.catch(() => {});
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
      const line = /\bready (http:\/\/\S+)\n/.exec(stdout);
      if (line?.[1] !== undefined) isReady(line[1]);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.#log += text));
    this.#ended = once(child, 'exit').then(() => {
      this.life.to_ms = Date.now();
      reject(new Error(`it ended with ${child.exitCode ?? child.signalCode}: ${this.#log}`));
    });
  }

  /** `convoke serve` on a data directory; `before` is a command that runs it, such as strace. */
  static serve(t: TestContext, data: string, before: string[] = []): NodeProcess {
    return NodeProcess.run(t, ['src/cli/main.ts', 'serve', '--port', '0', '--data', data], before);
  }

  /** One of several nodes on a database; the key that secrets are under is in the directory. */
  static serveOn(t: TestContext, database_url: string, data: string): NodeProcess {
    const serve = ['src/cli/main.ts', 'serve', '--port', '0', '--data', data];
    return NodeProcess.run(t, serve, [], { CONVOKE_DATABASE_URL: database_url });
  }

  /** A program of the repository under Node. */
  static run(t: TestContext, program: string[], before: string[] = [], settings: NodeJS.ProcessEnv = {}): NodeProcess {
    const [command, ...args] = [...before, process.execPath, ...program];
    const node = new NodeProcess(command as string, args, settings);
    t.after(() => node.child.kill('SIGKILL'));
    return node;
  }

  get pid(): number {
    assert(this.child.pid !== undefined, this.#log);
    return this.child.pid;
  }

  get isAlive(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** What it logged. */
  get log(): string {
    return this.#log;
  }

  /** Sends a signal; answers how the process ended, and how long it took. */
  async end(signal: 'SIGTERM' | 'SIGKILL'): Promise<End> {
    const from_ms = performance.now();
    this.child.kill(signal);
    await inTime('the end of the process', this.#ended);
    return { code: this.child.exitCode, duration_ms: performance.now() - from_ms };
  }
}
