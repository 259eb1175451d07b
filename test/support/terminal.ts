import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { delimiter, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WAIT_MS_MAX } from './wait.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** How long to wait for the output of a terminal. The limit for a whole test is 1.5 times this. */
export const DEADLINE_MS = WAIT_MS_MAX;

/** A process with a terminal: the test types into it and reads its output. */
export class Terminal {
  readonly #process: ChildProcess;
  readonly #closed: Promise<unknown>;
  /** Resolves with the next output. */
  #more = Promise.withResolvers<void>();
  output = '';

  constructor(command: string, args: string[], env: Record<string, string>) {
    const PATH = `${dirname(process.execPath)}${delimiter}${process.env['PATH']}`;
    const own = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_')));
    const with_env = { ...own, NO_COLOR: '1', PATH, ...env };
    // The process has its own process group. So processes that a shell leaves in the background end with it.
    this.#process = spawn(command, args, { cwd: ROOT, env: with_env, detached: true });
    this.#closed = once(this.#process, 'close');
    // A shell that has ended reads no more input. That is no error here: `shows` reports the last output.
    this.#process.stdin?.on('error', () => {});
    const add = (chunk: Buffer): void => {
      this.output += chunk.toString();
      this.#more.resolve();
      this.#more = Promise.withResolvers<void>();
    };
    this.#process.stdout?.on('data', add);
    this.#process.stderr?.on('data', add);
  }

  type(text: string): void {
    this.#process.stdin?.write(`${text}\n`);
  }

  /**
   * Resolves when the output contains the text. Rejects with the whole output when the process ends before that, or
   * takes too long.
   */
  async shows(what: string | RegExp): Promise<string[]> {
    const deadline = AbortSignal.timeout(DEADLINE_MS);
    const late = once(deadline, 'abort').then(() => false);
    for (;;) {
      const found = typeof what === 'string' ? (this.output.includes(what) ? [what] : null) : what.exec(this.output);
      if (found !== null) return found;
      const more = this.#more.promise.then(() => true);
      const ended = this.#closed.then(() => false);
      if (deadline.aborted || !(await Promise.race([more, ended, late])))
        assert.fail(`it does not show ${what}, but:\n${this.output}`);
    }
  }

  async end(): Promise<void> {
    try {
      process.kill(-this.#process.pid!, 'SIGKILL');
    } catch (error) {
      // The process has already ended.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
    await this.#closed;
  }
}
