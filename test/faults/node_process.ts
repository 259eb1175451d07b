import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolve } from 'node:path';
import type { TestContext } from 'node:test';
import { inTime } from '../support/wait.ts';
import type { Ending } from './checker.ts';
import type { Machines } from './machines.ts';

const ROOT = resolve(import.meta.dirname, '../..');

export interface End {
  code: number | null;
  duration_ms: number;
}

const SOURCE_ADDRESS = resolve(import.meta.dirname, 'source_address.ts');
let senders = 0;

/** A source address that no other process of this test uses. */
function nextSender(): string {
  senders++;
  return `127.1.${senders >> 8}.${senders & 255}`;
}

interface Start {
  /** A command that runs the program, for example strace. */
  before?: string[];
  /** The machines that must see which process sends. With them the process sends from its own source address. */
  machines?: Machines;
}

/** A program in its own process. When it is ready, it prints `ready URL`. */
export class NodeProcess {
  /** The source address of the pushes of this process. */
  readonly sender: string;
  /** Resolves with the URL when the program is ready; rejects when the process ends before. */
  readonly ready: Promise<string>;
  readonly child: ChildProcess;
  readonly #ended: Promise<unknown>;
  #url = '';
  #log = '';

  private constructor(command: string, args: string[], sender: string, settings: NodeJS.ProcessEnv) {
    this.sender = sender;
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
      if (line?.[1] === undefined) return;
      this.#url = line[1];
      isReady(line[1]);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.#log += text));
    this.#ended = once(child, 'exit').then(() => {
      reject(new Error(`it ended with ${child.exitCode ?? child.signalCode}: ${this.#log}`));
    });
  }

  /** Runs `convoke serve` on a data directory. */
  static serve(t: TestContext, data: string, start: Start = {}): NodeProcess {
    return NodeProcess.run(t, ['src/cli/main.ts', 'serve', '--port', '0', '--data', data], start);
  }

  /** Runs one of several nodes on a database. The directory `data` has the key that encrypts secrets. */
  static serveOn(t: TestContext, database_url: string, data: string, start: Start = {}): NodeProcess {
    const serve = ['src/cli/main.ts', 'serve', '--port', '0', '--data', data];
    return NodeProcess.run(t, serve, start, { CONVOKE_DATABASE_URL: database_url });
  }

  /** Runs a program of the repository with Node. */
  static run(
    t: TestContext,
    program: string[],
    { before = [], machines }: Start = {},
    settings: NodeJS.ProcessEnv = {},
  ): NodeProcess {
    const sender = nextSender();
    const preloaded = machines === undefined ? [] : ['--import', SOURCE_ADDRESS];
    const [command, ...args] = [...before, process.execPath, ...preloaded, ...program];
    const seen = machines === undefined ? {} : { FAULTS_SENDER: sender, FAULTS_MACHINES_PORT: machines.port };
    const node = new NodeProcess(command as string, args, sender, { ...settings, ...seen });
    t.after(() => node.child.kill('SIGKILL'));
    return node;
  }

  /**
   * An ending for the checker. Without arguments: the process ended now. With both times: the process could store
   * nothing from `from_ms` on, and sent nothing after `to_ms`. Later sends to the same URL do not count, because
   * another process may listen there.
   */
  ending(from_ms = Date.now(), to_ms = Infinity): Ending {
    return { sender: this.sender, url: this.#url, from_ms, to_ms };
  }

  get pid(): number {
    assert(this.child.pid !== undefined, this.#log);
    return this.child.pid;
  }

  get isAlive(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Everything that the process has logged. */
  get log(): string {
    return this.#log;
  }

  /** Sends a signal; returns how the process ended, and how long that took. */
  async end(signal: 'SIGTERM' | 'SIGKILL' | 'SIGUSR2'): Promise<End> {
    const from_ms = performance.now();
    this.child.kill(signal);
    await inTime('the end of the process', this.#ended);
    return { code: this.child.exitCode, duration_ms: performance.now() - from_ms };
  }
}
