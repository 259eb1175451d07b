/**
 * programs/slowest.ts loads this module into all processes and threads of a measurement (`--import`). The module notes
 * when its thread stands still: when the garbage collector stops the thread, and when the event loop is late.
 */
import { appendFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { PerformanceObserver } from 'node:perf_hooks';
import { isMainThread, threadId } from 'node:worker_threads';
import { nowUs } from './figures.ts';

/** One line of the file: what the thread waited for, and from when to when, in microseconds of the clock of `nowUs`. */
export type Pause = readonly [what: string, from_us: number, to_us: number];

const TICK_MS = 1;
/** A shorter delay is no pause: timers are up to a millisecond late even in an idle thread. */
const LATE_MS_MIN = 1.5;
const WRITE_MS = 5_000;

const directory = process.env['PAUSES_DIRECTORY'];
const thread = `${basename(process.argv[1] ?? 'node', '.ts')}${isMainThread ? '' : ` thread ${threadId}`}`;
let lines: string[] = [];

function note(what: string, from_us: number, to_us: number): void {
  lines.push(`${JSON.stringify([`${thread}: ${what}`, Math.round(from_us), Math.round(to_us)] satisfies Pause)}\n`);
}

function write(): void {
  if (directory !== undefined && lines.length > 0) {
    appendFileSync(join(directory, `${process.pid}-${threadId}.jsonl`), lines.join(''));
  }
  lines = [];
}

if (directory !== undefined) {
  new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries()) {
      const from_us = nowUs() - (performance.now() - startTime) * 1000;
      note('collector', from_us, from_us + duration * 1000);
    }
  }).observe({ entryTypes: ['gc'] });
  let due_ms = performance.now() + TICK_MS;
  const tick = (): void => {
    const late_ms = performance.now() - due_ms;
    const now_us = nowUs();
    if (late_ms > LATE_MS_MIN) note('event loop', now_us - late_ms * 1000, now_us);
    due_ms = performance.now() + TICK_MS;
    setTimeout(tick, TICK_MS).unref();
  };
  setTimeout(tick, TICK_MS).unref();
  setInterval(write, WRITE_MS).unref();
  process.once('exit', write);
}
