/** The log has a limit of bytes, however many receivers fail, and still contains what an operator must know. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { BoundedLog, type Log } from '../../src/delivery/bounded_log.ts';
import { DeliveryLog } from '../../src/delivery/delivery_log.ts';
import type { AttemptEvent } from '../../src/delivery/observer.ts';
import { type InstanceHealth, NO_HEALTH } from '../../src/domain/instance.ts';
import { type LogLine, startService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';
import { VIRTUAL_START, VirtualClock } from '../support/virtual_clock.ts';

const INSTANCES = 51_000;
/** The rate that was measured while INSTANCES machines were down. */
const ATTEMPTS_PER_SECOND = 3_000;
const SECONDS = 120;

/** A real log, of which the test keeps only the size and the first 2,000 lines. */
function measured(level: string) {
  const written = { bytes: 0, lines: [] as LogLine[] };
  const write = (line: string): void => {
    written.bytes += Buffer.byteLength(line);
    if (written.lines.length < 2_000) written.lines.push(JSON.parse(line) as LogLine);
  };
  return { written, log: pino({ level, base: null }, { write }) };
}

/** Machines at addresses where no server listens, so that each attempt fails. */
class Dead {
  readonly healths = new Map<string, InstanceHealth>();
  #attempts = 0;

  attempt(wall_ms: number): AttemptEvent {
    const number = this.#attempts++;
    const instance_id = `machine-${number % INSTANCES}`;
    const health_before = this.healths.get(instance_id) ?? NO_HEALTH;
    const at = new Date(wall_ms).toISOString();
    const failure = { outcome: 'connect_refused', status_code: null, detail: 'connect ECONNREFUSED' } as const;
    const consecutive_failures = health_before.consecutive_failures + 1;
    const health_after = { ...health_before, consecutive_failures, last_failure: { at, ...failure } };
    this.healths.set(instance_id, health_after);
    return {
      delivery_id: `dlv_${number}`,
      message_id: `msg_${number}`,
      meeting_id: 'standup',
      seq: number,
      instance_id,
      attempt: { attempt: 1, started_at: at, duration_ms: 3, ...failure, response_excerpt: '' },
      state: 'pending',
      reason: null,
      retry_in_ms: null,
      accepted_at: wall_ms,
      health_before,
      health_after,
    };
  }
}

async function fail(log: Log, clock: VirtualClock, seconds: number): Promise<Dead> {
  const dead = new Dead();
  const delivery_log = new DeliveryLog({ log, clock, healths: () => dead.healths });
  for (let second = 0; second < seconds; second++) {
    for (let i = 0; i < ATTEMPTS_PER_SECOND; i++) delivery_log.attempted(dead.attempt(clock.wall()));
    await clock.advance(1_000);
  }
  delivery_log.close();
  return dead;
}

test('51,000 machines that are down take less than 1 KB of log a second, and their number is in it', async (t) => {
  const clock = new VirtualClock();
  const { written, log } = measured('info');
  const bounded = new BoundedLog(log, clock);
  await fail(bounded, clock, SECONDS);
  bounded.close();
  t.diagnostic(`${Math.round(written.bytes / SECONDS)} bytes a second`);
  assert.ok(written.bytes / SECONDS < 1_000, `${written.bytes} bytes in ${SECONDS} s`);
  const summaries = written.lines.filter(({ msg }) => msg === 'attempts failed in the last minute');
  assert.equal(summaries.length, 2);
  const counted = summaries.map(({ failed }) => (failed as { connect_refused: number }).connect_refused);
  assert.equal(counted[0]! + counted[1]!, ATTEMPTS_PER_SECOND * SECONDS, 'every failure is counted');
  assert.equal(summaries[1]?.['instances_down'], INSTANCES);
  assert.equal((summaries[1]?.['worst'] as object[] | undefined)?.length, 5);
  assert.ok(written.lines.some(({ msg, line }) => msg.startsWith('there were more') && line === 'instance down'));
});

test('control: a line for each attempt takes hundreds of kilobytes a second', async () => {
  const clock = new VirtualClock();
  const { written, log } = measured('debug');
  await fail(log, clock, 2);
  assert.ok(written.bytes / 2 > 500_000, `${written.bytes} bytes in 2 s`);
});

test('a text that is full leaves the others their room, and has it again later', async () => {
  const clock = new VirtualClock();
  const { written, log } = measured('info');
  const bounded = new BoundedLog(log, clock);
  for (let i = 0; i < 1_000; i++) bounded.error({ err: new Error('the disk is full') }, 'storage failed');
  const at_once = written.lines.length;
  assert.ok(written.bytes < 32 << 10, `${written.bytes} bytes`);
  bounded.warn({}, 'another line');
  assert.equal(written.lines.at(-1)?.msg, 'another line');
  await clock.advance(60_000);
  const left_out = written.lines.find(({ line }) => line === 'storage failed')?.['left_out'];
  assert.equal(at_once + Number(left_out), 1_000);
  bounded.error({}, 'storage failed');
  assert.equal(written.lines.at(-1)?.msg, 'storage failed');
  assert.equal(clock.now(), VIRTUAL_START + 60_000);
});

test('one line when a machine goes down and one when it is back; attempts between them at debug only', async (t) => {
  const service = await startService(t, { retry_schedule: '10ms,10ms,10ms,10ms,10ms' });
  const { instance_id, receiver } = await service.member(t, 'standup', { behaviour: { status: 500 } });
  const sent = await service.send('standup', { number: 1 });
  await service.settled(sent);
  const lines = (text: string, level?: number) =>
    service.log.filter((line) => line.msg === text && (level === undefined || line['level'] === level));
  assert.deepEqual(
    lines('instance down').map((line) => [line['level'], line['instance_id'], line['status_code']]),
    [[40, instance_id, 500]],
  );
  assert.equal(lines('push failed', 40).length, 4, 'until it is down, a failure is a warning');
  assert.equal(lines('push failed', 20).length, 2, 'and then it is told at debug');
  receiver.behaviour = { status: 200 };
  // The heartbeat ends the back-off.
  await service.heartbeat(instance_id);
  await service.settled(await service.send('standup', { number: 2 }));
  await until(
    'the line',
    () => lines('instance back'),
    (found) => found.length === 1,
  );
  assert.equal(lines('instance back')[0]?.['instance_id'], instance_id);
});

test('agents that the loop guard stops are one line for each burst, meeting and rule', async () => {
  const { written, log } = measured('info');
  const clock = new VirtualClock();
  const delivery_log = new DeliveryLog({ log, clock, healths: () => new Map() });
  const stop = (meeting_id: string, reason: 'hop_limit' | 'pair_limit'): void => {
    const origin = { from_agent: 'anna', in_reply_to: null, hops: 17 };
    const of = { delivery_id: 'dlv_1', message_id: 'msg_1', instance_id: 'i', seq: 1 };
    delivery_log.suppressed({ ...of, meeting_id, origin }, reason);
  };
  for (let k = 0; k < 100; k++) {
    stop('m', 'hop_limit');
    await clock.advance(1_000);
  }
  stop('m', 'pair_limit');
  stop('n', 'hop_limit');
  await clock.advance(60_000);
  stop('m', 'hop_limit');
  assert.deepEqual(
    written.lines.map(({ msg, ...line }) => [line['meeting_id'], line['reason'], line['from_agent'], msg]),
    [
      ['m', 'hop_limit'],
      ['m', 'pair_limit'],
      ['n', 'hop_limit'],
      ['m', 'hop_limit'],
    ].map((line) => [...line, 'anna', 'the loop guard stops agents that answer each other']),
  );
});

test('what callers do wrong fills no log', async (t) => {
  // The allowance refills with time, and on a slow machine the calls take long.
  const service = await startService(t, {}, new SetClock(1_000));
  const text = 'leave meeting: no such instance or membership';
  for (let i = 0; i < 200; i++) {
    const body = { instance_id: `${i}-${'x'.repeat(190)}`, meeting_id: 'y'.repeat(200) };
    assert.equal((await service.post('/api/v1/instances/leave-meeting/', body)).status, 200);
  }
  const bytes = service.log
    .filter(({ msg }) => msg === text)
    .reduce((sum, line) => sum + JSON.stringify(line).length, 0);
  assert.ok(bytes > 10_000 && bytes < 24_000, `${bytes} bytes`);
});
