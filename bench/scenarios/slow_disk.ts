/** A slow disk: a small library is loaded before the C library, and delays each fsync and fdatasync. */
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Contender, convoke, under } from '../contenders/contenders.ts';
import { bullmqAlways } from '../peers/peers.ts';
import { CPU_PER_MESSAGE, FAULTS, LAG, LATENCY, MESSAGES, type Scenario } from './scenario.ts';
import { FAN_OUT_1, saturated } from './throughput.ts';

const DELAY_US = 5_000;
const SOURCE = fileURLToPath(new URL('./slow_fsync.c', import.meta.url));

/** Compiles the library, and returns the environment that loads it. */
function slowDisk(): Record<string, string> {
  const library = join(tmpdir(), `convoke-bench-slow-fsync-${process.pid}.so`);
  execFileSync('gcc', ['-O2', '-shared', '-fPIC', '-o', library, SOURCE, '-ldl']);
  return { LD_PRELOAD: library, SLOW_FSYNC_US: String(DELAY_US) };
}

function onSlowDisk(contender: Contender): Contender {
  return {
    ...contender,
    name: `${contender.name}, fsync 5 ms`,
    missing: () => contender.missing?.() ?? compilerMissing(),
    start: (options) => under({ env: slowDisk() }, contender, contender.name).start(options),
  };
}

function compilerMissing(): string | null {
  try {
    execFileSync('gcc', ['--version'], { stdio: 'ignore' });
    return null;
  } catch {
    return 'there is no gcc to compile slow_fsync.c with';
  }
}

const slow = onSlowDisk(convoke);

export const slowDiskScenario: Scenario = {
  name: 'i',
  title: 'a disk whose fsync takes 5 ms more, fan-out 1 as in (a)',
  columns: [MESSAGES, LAG, ...LATENCY, CPU_PER_MESSAGE, ...FAULTS],
  rows: [convoke, slow, bullmqAlways, onSlowDisk(bullmqAlways)].map((contender) => saturated(contender, FAN_OUT_1)),
  targets: [
    { says: '≥ 0.6 × (a)', row: slow.name, figure: 'messages_per_s', against: { row: convoke.name }, at_least: 0.6 },
    { says: 'event-loop lag p99 ≤ 20 ms', row: slow.name, figure: 'lag_p99_ms', at_most: 20 },
  ],
};
