/** What Linux reports about a process and its descendants. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';

const TICKS_PER_S = 100;

/** The processor time of processes in seconds (user and system), with all their threads and living descendants. */
export function cpuSeconds(roots: readonly number[]): number {
  const children = new Map<number, number[]>();
  const ticks = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid)) continue;
    const stat = read(`/proc/${pid}/stat`);
    // The second field is the name of the program in parentheses. The name may contain spaces and parentheses, so this
    // reads from the last parenthesis on.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields.length < 13) continue;
    const parent = Number(fields[1]);
    ticks.set(pid, Number(fields[11]) + Number(fields[12]));
    children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  let sum = 0;
  const count = (pid: number): void => {
    sum += ticks.get(pid) ?? 0;
    for (const child of children.get(pid) ?? []) count(child);
  };
  for (const pid of new Set(roots)) count(pid);
  return sum / TICKS_PER_S;
}

/**
 * The processor time of a service in seconds, by who spent it: serving threads, threads of V8, other threads of the
 * nodes, PostgreSQL.
 */
export function processorTime(pids: readonly number[]): Map<string, number> {
  const spent = new Map<string, number>();
  const add = (name: string, s: number) => spent.set(name, (spent.get(name) ?? 0) + s);
  for (const pid of pids) {
    if (!readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('.ts')) {
      add('PostgreSQL', cpuSeconds([pid]));
      continue;
    }
    for (const task of readdirSync(`/proc/${pid}/task`)) {
      const stat = readFileSync(`/proc/${pid}/task/${task}/stat`, 'utf8');
      const name = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const is_v8 = name.startsWith('V8') || name.startsWith('Delayed');
      add(
        Number(task) === pid ? 'serving' : is_v8 ? 'V8' : `other (${name})`,
        (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S,
      );
    }
  }
  return spent;
}

/** Resident memory in MiB, now and at its peak since `forgetPeak`. */
export function memoryMib(pid: number): { now: number; peak: number } {
  const status = read(`/proc/${pid}/status`);
  const kib = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? NaN);
  return { now: kib('VmRSS') / 1024, peak: kib('VmHWM') / 1024 };
}

/** Makes the peak of `memoryMib` count from now on (proc(5), clear_refs). */
export function forgetPeak(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/clear_refs`, '5');
  } catch {
    // Where Linux does not allow this, the peak counts from the start of the process.
  }
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
