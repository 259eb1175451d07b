import { availableParallelism } from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Report } from './run.ts';
import type { Share } from './worker.ts';

/**
 * How many seeds a share has. The hash of a run depends on its shares, so this must not depend on the number of
 * threads.
 */
const SEEDS_PER_SHARE = 512;

/** Runs worlds with consecutive seeds on all cores, until a world breaks a promise. */
export async function runOnAllCores(first_seed: number, count: number, options: Share['options']): Promise<Report> {
  const shares: Share[] = [];
  for (let done = 0; done < count; done += SEEDS_PER_SHARE) {
    shares.push({ first: first_seed + done, count: Math.min(SEEDS_PER_SHARE, count - done), options });
  }
  const reports: Report[] = [];
  let next = 0;
  let broken = false;
  const runShares = async (): Promise<void> => {
    const worker = new Worker(new URL('./worker.ts', import.meta.url));
    while (next < shares.length && !broken) {
      const at = next++;
      worker.postMessage(shares[at]);
      const report = await new Promise<Report>((resolve, reject) =>
        worker.once('message', resolve).once('error', reject),
      );
      worker.removeAllListeners('error');
      reports[at] = report;
      broken ||= report.finding !== null;
    }
    await worker.terminate();
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), shares.length) }, runShares));
  // When a world breaks a promise, shares that already run go on to their end, because the report has the lowest seed.
  const all: Report = { worlds: 0, steps: 0, trace_hash: '', finding: null };
  let hash = 0x811c9dc5;
  for (const { worlds, steps, trace_hash, finding } of reports) {
    all.worlds += worlds;
    all.steps += steps;
    hash = Math.imul(hash ^ Number.parseInt(trace_hash, 16), 0x01000193) >>> 0;
    all.finding = finding;
    if (finding !== null) break;
  }
  return { ...all, trace_hash: hash.toString(16).padStart(8, '0') };
}
