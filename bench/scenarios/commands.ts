/**
 * Measures how long a person waits for a command and for the start of the service, and the memory of an idle service.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { bundle } from '../../scripts/bundle.ts';
import type { Figures } from '../measure/measure.ts';
import { memoryMib } from '../measure/processes.ts';
import type { Row, Scenario } from './scenario.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PACKAGE = { name: 'package', program: join(ROOT, 'dist/convoke.cjs') };
const CLONE = { name: 'clone', program: join(ROOT, 'src/cli/main.ts') };
/** The pause after the ready line, in which the service finishes the work of its start. */
const SETTLED_MS = 5_000;

let built: Promise<void> | null = null;

function row({ name, program }: typeof PACKAGE): Row {
  return {
    name,
    async measure(): Promise<Figures> {
      if (program === PACKAGE.program) await (built ??= bundle());
      const home = await mkdtemp(join(tmpdir(), 'convoke-bench-'));
      // The commands get a new cache, which the first call of each command fills. Only the second call is measured,
      // because people make second calls every day.
      const env = { ...process.env, XDG_CACHE_HOME: join(home, 'cache') };
      const run = async (...args: string[]): Promise<number> => {
        const started_ms = performance.now();
        const child = spawn(process.execPath, [program, ...args], { env, stdio: 'ignore' });
        const [code] = (await once(child, 'close')) as [number];
        if (code !== 0) throw new Error(`convoke ${args.join(' ')} ended with ${code}`);
        return performance.now() - started_ms;
      };
      const serve = async (): Promise<{ child: ChildProcess; url: string; ready_ms: number }> => {
        const args = [program, 'serve', '--port', '0', '--data', join(home, 'data')];
        const started_ms = performance.now();
        const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'ignore'] });
        const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
        return { child, url: line.replace('convoke ready ', ''), ready_ms: performance.now() - started_ms };
      };
      const stop = async (child: ChildProcess): Promise<void> => {
        child.kill('SIGTERM');
        await once(child, 'close');
      };
      try {
        await stop((await serve()).child);
        const { child, url, ready_ms } = await serve();
        await run('instances', '--url', url);
        const command_ms = await run('instances', '--url', url);
        await run('--version');
        const version_ms = await run('--version');
        await sleep(SETTLED_MS);
        const { now: idle_mib } = memoryMib(child.pid!);
        await stop(child);
        return { version_ms, command_ms, ready_ms, idle_mib };
      } finally {
        await rm(home, { recursive: true, force: true });
      }
    },
  };
}

export const commands: Scenario = {
  name: 's',
  title: 'commands: how long one waits, and what an idle service takes, with SQLite',
  columns: [
    { figure: 'version_ms', title: '`--version` ms' },
    { figure: 'command_ms', title: '`instances` ms' },
    { figure: 'ready_ms', title: '`serve` ready ms' },
    { figure: 'idle_mib', title: 'RSS MiB, idle' },
  ],
  rows: [row(PACKAGE), row(CLONE)],
  targets: [
    { says: '`--version` within 100 ms', row: PACKAGE.name, figure: 'version_ms', at_most: 100 },
    { says: 'a command within 250 ms', row: PACKAGE.name, figure: 'command_ms', at_most: 250 },
    { says: 'ready within 400 ms', row: PACKAGE.name, figure: 'ready_ms', at_most: 400 },
    { says: 'idle in 100 MiB', row: PACKAGE.name, figure: 'idle_mib', at_most: 100 },
  ],
};
