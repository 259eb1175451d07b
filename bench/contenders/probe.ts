/**
 * `startProcess` loads this module into every contender before the contender's own code (`--import`). It measures the
 * lag of the event loop: how late timers run.
 */
import { isMainThread } from 'node:worker_threads';
import { answerCommands } from '../load/channel.ts';
import { type Distribution, Samples } from '../measure/figures.ts';

const TICK_MS = 5;

const lag_ms = new Samples();
let due_ms = 0;

/** Adds a sample for every missed tick: an event that arrived at the time of the tick waited just as long. */
function tick(): void {
  const now_ms = performance.now();
  for (; due_ms <= now_ms; due_ms += TICK_MS) lag_ms.add(now_ms - due_ms);
  setTimeout(tick, due_ms - now_ms).unref();
}

export type Probe = typeof commands;

const commands = {
  lagFromHere(): void {
    lag_ms.clear();
    if (due_ms !== 0) return;
    due_ms = performance.now() + TICK_MS;
    tick();
  },
  lag: (): Distribution => lag_ms.distribution(),
};

if (isMainThread) {
  answerCommands(commands);
  process.channel?.unref();
}
