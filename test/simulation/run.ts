import { setImmediate as turn } from 'node:timers/promises';
import type { World, WorldOptions } from './world.ts';

export interface Finding {
  seed: number;
  violation: string;
}

export interface Report {
  worlds: number;
  steps: number;
  /** The hash of the traces of all worlds, in the order of their seeds. */
  trace_hash: string;
  finding: Finding | null;
}

/** How many worlds make a step in the same turn of the event loop. In each turn the promises of all of them settle. */
const WORLDS_AT_ONCE = 128;

export type MakeWorld = (seed: number, options?: WorldOptions) => World;

/**
 * Runs worlds with consecutive seeds until a world breaks a promise, at most until `performance.now()` is `until_ms`.
 */
export async function run(
  make: MakeWorld,
  first_seed: number,
  count: number,
  {
    at_once = WORLDS_AT_ONCE,
    until_ms = Infinity,
    ...options
  }: WorldOptions & { at_once?: number; until_ms?: number } = {},
): Promise<Report> {
  const report: Report = { worlds: 0, steps: 0, trace_hash: '', finding: null };
  let hash = 0x811c9dc5;
  for (let seed = first_seed; seed < first_seed + count && performance.now() < until_ms; seed += at_once) {
    const worlds = Array.from({ length: Math.min(at_once, first_seed + count - seed) }, (_, k) =>
      make(seed + k, options),
    );
    let running = worlds;
    while (running.length > 0) {
      await turn();
      for (const world of running) world.step();
      running = running.filter(({ done, checker }) => !done && checker.violation === null);
    }
    for (const world of worlds) {
      report.worlds++;
      report.steps += world.steps;
      hash = Math.imul(hash ^ world.trace_hash, 0x01000193) >>> 0;
      const { violation } = world.checker;
      if (violation === null) continue;
      report.finding = { seed: world.seed, violation };
      break;
    }
    if (report.finding !== null) break;
  }
  report.trace_hash = hash.toString(16).padStart(8, '0');
  return report;
}
