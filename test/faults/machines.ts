import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { inTime } from '../support/wait.ts';
import type { Arrival } from './checker.ts';

/** Starts the process of machines_process.ts, and talks with it. */
export class Machines {
  readonly #child: ChildProcess;
  readonly origin: string;
  #received: Arrival[] = [];

  private constructor(child: ChildProcess, origin: string) {
    this.#child = child;
    this.origin = origin;
  }

  static async start(t: TestContext): Promise<Machines> {
    const child = fork(join(import.meta.dirname, 'machines_process.ts'));
    t.after(() => child.kill('SIGKILL'));
    const [origin] = (await inTime('the machines', once(child, 'message'))) as [string];
    return new Machines(child, origin);
  }

  get port(): string {
    return new URL(this.origin).port;
  }

  /** Everything that has arrived so far. */
  async received(): Promise<Arrival[]> {
    this.#child.send('report');
    const [received] = (await inTime('what the machines received', once(this.#child, 'message'))) as [Arrival[]];
    this.#received = [...this.#received, ...received];
    return this.#received;
  }
}
