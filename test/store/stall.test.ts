/** When a store counts as stalled, and when those who wait learn of it. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Batcher } from '../../src/delivery/batcher.ts';
import {
  inDoubt,
  LONG_SIGN,
  stalled,
  StallWatch,
  type StallSigns,
  type Waiting,
} from '../../src/store/thread/stall.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

/** Watches calls that the test begins and ends. The watch reports every quarter of a second. */
function watched(t: TestContext, telling: StallSigns = 'all') {
  t.mock.timers.enable({ apis: ['setInterval'] });
  const waiting: (Waiting | null)[] = [];
  const watch = new StallWatch(waiting, telling);
  const told: boolean[] = [];
  watch.onStall((is_long) => told.push(is_long));
  return {
    watch,
    told,
    pass: (ms: number) => t.mock.timers.tick(ms),
    call: (name: string) => {
      const failed: Error[] = [];
      const at = waiting.length;
      const reject = (error: Error): void => void failed.push(error);
      waiting.push({ method: name, resolve() {}, reject, ...watch.begin(name) });
      const answer = (): void => {
        waiting[at] = null;
        watch.onReplies();
      };
      return { failed, answer };
    },
  };
}

test('a call without a result for 3 s stalls the storage, until the result arrives', (t) => {
  const { watch, told, pass, call } = watched(t);
  const commit = call('messages.accept');
  pass(3_000);
  assert.equal(watch.is_stalled, false);
  pass(250);
  assert.deepEqual([watch.is_stalled, watch.holds_up_reading, told], [true, true, [false]]);
  pass(2_250);
  assert.equal(told.at(-1), false);
  pass(250);
  assert.equal(told.at(-1), true, 'within 6 s those who wait are told not to');
  assert.equal(told.length, LONG_SIGN, 'a request of the API waits for as long as a send');
  assert.equal(commit.failed.length, 0, 'and the call goes on');
  commit.answer();
  assert.equal(watch.is_stalled, false);
});

test('a sign says whether the stall begins with it', (t) => {
  const { watch, pass, call } = watched(t);
  const news: boolean[] = [];
  watch.onStall((_is_long, is_new) => news.push(is_new));
  const first = call('messages.accept');
  pass(3_500);
  assert.deepEqual(news, [true, false]);
  first.answer();
  call('messages.accept');
  pass(3_500);
  assert.deepEqual(news, [true, false, true, false]);
});

test('many calls that end one after another stall nothing', (t) => {
  const { watch, told, pass, call } = watched(t);
  let last = call('messages.accept');
  for (let i = 0; i < 40; i++) {
    const next = call('deliveries.settle');
    pass(500);
    last.answer();
    last = next;
  }
  assert.deepEqual([watch.is_stalled, told], [false, []]);
});

test('where calls do not wait for each other, a long read stalls nothing, and a stall holds up no read', (t) => {
  const { watch, pass, call } = watched(t, new Set(['messages.accept']));
  call('deliveries.list');
  pass(60_000);
  assert.equal(watch.is_stalled, false);
  call('messages.accept');
  pass(4_000);
  assert.deepEqual([watch.is_stalled, watch.holds_up_reading], [true, false]);
});

test('a readiness check gets its answer after 3 s', (t) => {
  const { pass, call } = watched(t);
  const ping = call('storage.touch');
  pass(3_500);
  assert.deepEqual(ping.failed, [stalled()]);
  pass(10_000);
  assert.equal(ping.failed.length, 1);
});

test('a caller that waits for a batch is refused, one that is in it gets an early error, and the batch ends as usual', async () => {
  const clock = new VirtualClock();
  const flights: PromiseWithResolvers<number[]>[] = [];
  const ended: number[][] = [];
  const batcher = new Batcher<number, number>(
    clock,
    { items_max: () => 1, weight_max: Infinity, in_flight_max: 1 },
    async () => {
      const flight = Promise.withResolvers<number[]>();
      flights.push(flight);
      const results = await flight.promise;
      ended.push(results);
      return results;
    },
  );
  const received: string[] = [];
  const add = (item: number): void =>
    void batcher.add(item, 1).then(
      () => received.push(`${item} stored`),
      (error: Error) => received.push(`${item} ${(error as { code?: string }).code}`),
    );
  add(1);
  await clock.settle();
  add(2);
  batcher.rejectWaiting(stalled());
  assert.equal(batcher.waiting_weight, 0);
  batcher.rejectInFlight(inDoubt());
  await clock.settle();
  assert.deepEqual(received, ['2 STORE_STALLED', '1 IN_DOUBT']);
  flights[0]?.resolve([10]);
  await clock.settle();
  assert.deepEqual(ended, [[10]], 'the caller that keeps what was stored is notified');
  add(3);
  await clock.settle();
  flights[1]?.resolve([30]);
  await clock.settle();
  assert.equal(received.at(-1), '3 stored');
});
