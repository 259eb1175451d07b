/** What a team could build instead of Convoke. We tuned each peer as far as we could: see docs/benchmarks.md. */
import { accessSync, constants, existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { type Contender, endProcess, scratchDirectory, startProcess } from '../contenders/contenders.ts';
import type { BullmqOptions } from './parts.ts';
import type { SkipLockedOptions } from './skip_locked.ts';

function peer(
  name: string,
  file: string,
  more: Partial<BullmqOptions & SkipLockedOptions> = {},
  missing: () => string | null = () => null,
) {
  return {
    name,
    missing,
    async start(options) {
      const data = await scratchDirectory();
      const started = await startProcess(file, [JSON.stringify({ fleet: options.fleet, data, ...more })], options);
      return {
        ...started,
        async stop() {
          await endProcess(started.probe);
          await rm(data, { recursive: true, force: true });
        },
      };
    },
  } satisfies Contender;
}

export function isOnPath(program: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((directory) => {
    try {
      accessSync(join(directory, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/** The dependencies of the peers are in bench/package.json, so that `npm ci` in the root does not install them. */
const packagesMissing = (): string | null =>
  existsSync(new URL('../node_modules', import.meta.url)) ? null : 'run `npm ci --prefix bench` first';

const redisMissing = (): string | null =>
  isOnPath('redis-server') ? null : 'there is no redis-server on the PATH (Debian: apt-get install redis-server)';

const bullmqMissing = (): string | null => packagesMissing() ?? redisMissing();

export const bullmqAlways = peer('BullMQ always', './peers/bullmq.ts', { appendfsync: 'always' }, bullmqMissing);
export const bullmqEverysec = peer('BullMQ everysec', './peers/bullmq.ts', { appendfsync: 'everysec' }, bullmqMissing);
export const pgboss = peer('pg-boss', './peers/pgboss.ts', {}, packagesMissing);
export const skipLocked = peer('SKIP LOCKED', './peers/skip_locked.ts');
export const skipLockedBesideIdleTransaction = peer(
  'SKIP LOCKED, beside an idle transaction',
  './peers/skip_locked.ts',
  { idle_transaction: true },
);
export const naive = peer('naive', './peers/naive.ts');

export const PEERS: Contender[] = [bullmqAlways, bullmqEverysec, pgboss, skipLocked, naive];
