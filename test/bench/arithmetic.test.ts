/** The computations of the benchmarks: percentiles, processor time, and which messages arrived. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { Arrived } from '../../bench/load/account.ts';
import { ID_DIGITS } from '../../bench/load/fleet.ts';
import { MEETING, MESSAGE, placesOf, requestText, writeDigits, COUNT_DIGITS } from '../../bench/load/request.ts';
import { median, Samples } from '../../bench/measure/figures.ts';
import { cpuSeconds } from '../../bench/measure/processes.ts';

/** How far off a processor time may be: Linux counts ticks of 10 ms, and may be a tick behind for each thread. */
const TICKS_S = 0.1;
const BURNT_S = 0.3;

test('percentiles are those of all samples, in whatever order and number they came', () => {
  const samples = new Samples();
  for (let i = 0; i < 10_000; i++) samples.add((i * 7_919) % 10_000);
  assert.deepEqual(samples.distribution(), { count: 10_000, p50: 5_000, p99: 9_900, max: 9_999 });
  samples.clear();
  samples.add(3);
  assert.deepEqual(samples.distribution(), { count: 1, p50: 3, p99: 3, max: 3 });
  assert.equal(median([5, 1, 3]), 3);
  assert.equal(median([4, 1, 3, 2]), 2.5);
});

test('processor time is that of a process and its descendants', { skip: process.platform !== 'linux' }, async () => {
  const burn = `while (process.cpuUsage().user < ${BURNT_S * 1e6}); console.log('burnt'); process.stdin.resume();`;
  const parent = spawn('sh', ['-c', '"$0" -e "$1"; :', process.execPath, burn], { stdio: ['pipe', 'pipe', 'inherit'] });
  await once(parent.stdout, 'data');
  const spent_s = cpuSeconds([parent.pid!]);
  assert.ok(spent_s > BURNT_S - TICKS_S, `${spent_s} s`);
  assert.equal(cpuSeconds([parent.pid!, parent.pid!]) < 2 * spent_s, true, 'a process counts once');
  const exit = once(parent, 'exit');
  parent.stdin.end();
  await exit;
  assert.equal(cpuSeconds([parent.pid!]), 0);
});

const pushOf = (count: number): Buffer => Buffer.from(`{"id":"msg-${String(count).padStart(COUNT_DIGITS, '0')}"}`);

test('what has not arrived is counted at each receiver, with its age as its latency', () => {
  const arrived = new Arrived();
  arrived.note('/push/1', pushOf(7), 0, 3_000);
  arrived.note('/push/2', pushOf(7), 0, 5_000);
  arrived.note('/push/1', pushOf(8), 0, 9_000);
  const account = arrived.account(
    [
      [7, 1_000],
      [8, 1_000],
      [9, 1_000],
    ],
    2,
    21_000,
  );
  assert.equal(account.expected, 6);
  assert.equal(account.not_arrived, 3);
  assert.equal(account.repeated, 0);
  assert.deepEqual(account.latency_ms, { count: 6, p50: 20, p99: 20, max: 20 });
});

test('a push that arrives twice hides no other that is missing, and its first arrival counts', () => {
  const arrived = new Arrived();
  arrived.note('/push/1', pushOf(7), 0, 2_000);
  arrived.note('/push/1', pushOf(7), 0, 90_000);
  const account = arrived.account([[7, 1_000]], 2, 11_000);
  assert.deepEqual([account.not_arrived, account.repeated], [1, 1]);
  assert.equal(account.latency_ms.max, 10);
});

test('a message that was refused and arrived all the same counts nowhere', () => {
  const arrived = new Arrived();
  arrived.note('/push/1', pushOf(7), 0, 2_000);
  assert.equal(arrived.account([], 1, 3_000).latency_ms.count, 0);
});

const body = `{"owner":"other","data":${MESSAGE}}`;
for (const [where, request] of [
  ['its path', { path: `/app/${MEETING}/msg`, headers: { authorization: 'Bearer x' }, body }],
  ['its body', { path: '/publish', body: body.replace('other', MEETING) }],
  ["Convoke's form", undefined],
] as const) {
  test(`a prepared request takes the digits of a message, with the meeting in ${where}`, () => {
    const text = requestText(request === undefined ? {} : { request }, 80);
    const [places] = placesOf(text, 1);
    const bytes = Buffer.from(text);
    writeDigits(bytes, places!.meeting, ID_DIGITS, 42);
    writeDigits(bytes, places!.count, COUNT_DIGITS, 77);
    const [head, sent] = bytes.toString().split('\r\n\r\n');
    assert.match(head! + sent!, /\bm000042\b/);
    assert.ok(!(head! + sent!).includes(MEETING));
    assert.match(sent!, /"id":"msg-000000077","sent_at":"0{16}"/);
    assert.equal(Number(/content-length: (\d+)/.exec(head!)![1]), Buffer.byteLength(sent!));
    JSON.parse(sent!);
  });
}
