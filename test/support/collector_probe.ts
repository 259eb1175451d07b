/**
 * A test imports this into a service. Between two SIGUSR2 it counts how many bytes the collections of the young
 * generation find, and how many bytes they move to the old generation. It writes both to the file that COLLECTED names.
 * At the first signal it runs a full collection, so that everything that exists at that moment is old.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import { GCProfiler, type HeapSpaceInfo, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

export interface Collected {
  young_bytes: number;
  promoted_bytes: number;
}

interface Snapshot {
  heapSpaceStatistics: { spaceName: string; spaceUsedSize: number }[];
}

function usedIn({ heapSpaceStatistics }: Snapshot, name: HeapSpaceInfo['space_name']): number {
  return heapSpaceStatistics.find(({ spaceName }) => spaceName === name)?.spaceUsedSize ?? 0;
}

function begin(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
  const profiler = new GCProfiler();
  profiler.start();
  process.once('SIGUSR2', () => end(profiler));
}

function end(profiler: GCProfiler): void {
  const collected: Collected = { young_bytes: 0, promoted_bytes: 0 };
  for (const { gcType, beforeGC, afterGC } of profiler.stop().statistics) {
    if (gcType !== 'Scavenge') continue;
    collected.young_bytes += usedIn(beforeGC, 'new_space');
    collected.promoted_bytes += usedIn(afterGC, 'old_space') - usedIn(beforeGC, 'old_space');
  }
  const file = process.env['COLLECTED']!;
  writeFileSync(`${file}.part`, JSON.stringify(collected));
  renameSync(`${file}.part`, file);
}

if (isMainThread) process.once('SIGUSR2', begin);
