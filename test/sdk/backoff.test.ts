/**
 * How soon machines return when the service is back, and how many requests they make while it is away. Only the pauses
 * of the machines move the clock.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeError, stayRegistered, untilReached } from '@convoke/sdk';

/** When a machine made its requests, counted from the loss of the service; the last request succeeds. */
async function requestsOf(away_ms: number, failure: (at_ms: number) => ConvokeError): Promise<number[]> {
  let now_ms = 0;
  const at_ms: number[] = [];
  const call = async (): Promise<void> => {
    at_ms.push(now_ms);
    if (now_ms < away_ms) throw failure(now_ms);
  };
  await untilReached(call, { now: () => now_ms, sleep: async (ms) => void (now_ms += ms) });
  return at_ms;
}

const nothingThere = () => new ConvokeError('unreachable', 'nothing listens');
const nothingBehindTheProxy = () => new ConvokeError('unexpected_response', 'a page', { status: 502 });
const tooBusy = () => new ConvokeError('overloaded', 'too busy', { status: 503 });
const noResponse = () => new ConvokeError('timeout', 'no response');

const pausesOf = (at_ms: readonly number[]): number[] => at_ms.slice(1).map((each, i) => each - at_ms[i]!);

/** Moves the two clocks of this machine. */
function clocksOf(t: TestContext) {
  const clocks = { wall_ms: Date.UTC(2026, 0, 1), steady_ms: 0 };
  t.mock.method(Date, 'now', () => clocks.wall_ms);
  t.mock.method(performance, 'now', () => clocks.steady_ms);
  return clocks;
}

describe('a machine whose clock is set', () => {
  test('still looks for the service every half second in the first minute, and no longer', async (t) => {
    for (const step_ms of [365 * 86_400_000, -86_400_000]) {
      const clocks = clocksOf(t);
      const pauses_ms: number[] = [];
      const sleep = async (ms: number) => {
        pauses_ms.push(ms);
        clocks.steady_ms += ms;
        clocks.wall_ms += ms + (pauses_ms.length === 3 ? step_ms : 0);
      };
      const call = () => (clocks.steady_ms < 90_000 ? Promise.reject(nothingThere()) : Promise.resolve());
      await untilReached(call, { sleep });
      assert.ok(pauses_ms.slice(0, 100).every((ms) => ms <= 500));
      assert.ok(pauses_ms.at(-1)! > 2_000);
      t.mock.restoreAll();
    }
  });

  test('registers again when its instance is missing twice, two minutes apart', async (t) => {
    const clocks = clocksOf(t);
    let runs = 0;
    await stayRegistered(async () => {
      runs++;
      clocks.steady_ms += 120_000;
      clocks.wall_ms -= 3_600_000;
      if (runs <= 2) throw new ConvokeError('instance_does_not_exist', 'deleted');
    });
    assert.equal(runs, 3);
  });
});

describe('a machine that lost the service', () => {
  for (const [what, failure] of [
    ['nothing listens', nothingThere],
    ['a proxy has nothing behind it', nothingBehindTheProxy],
  ] as const) {
    test(`is back within half a second while ${what}, for a minute`, async () => {
      for (const away_ms of [1, 300, 3_000, 20_000, 59_000]) {
        const late_ms = (await requestsOf(away_ms, failure)).at(-1)! - away_ms;
        assert(late_ms >= 0 && late_ms <= 500, `${away_ms} ms away: back ${late_ms} ms late`);
      }
    });
  }

  test('asks a service less and less often the longer it is away, down to every 5 s', async () => {
    const at_ms = await requestsOf(3_600_000, nothingThere);
    assert(at_ms.filter((each) => each < 60_000).length < 260);
    const later = pausesOf(at_ms.filter((each) => each > 75_000));
    assert(later.every((ms) => ms >= 2_500 && ms <= 5_000));
  });

  test('leaves alone for longer and longer what is there and does not keep up', async () => {
    for (const failure of [tooBusy, noResponse]) {
      for (const [i, ms] of pausesOf(await requestsOf(60_000, failure)).entries()) {
        const whole_ms = Math.min(100 * 2 ** i, 5_000);
        assert(ms >= whole_ms / 2 && ms <= whole_ms, `pause ${i}: ${ms} ms`);
      }
    }
  });

  test('waits for as long as the service asks', async () => {
    const failure = () => new ConvokeError('shutting_down', 'ends', { status: 503, retry_after_s: 2 });
    assert.deepEqual(pausesOf(await requestsOf(2_000, failure)), [2_000]);
  });

  test('waits for a minute at most, and not at all for what responds in place of Convoke', async () => {
    const ends = () => new ConvokeError('shutting_down', 'ends', { status: 503, retry_after_s: 999_999_999 });
    assert.deepEqual(pausesOf(await requestsOf(1, ends)), [60_000]);
    const page = () => new ConvokeError('unexpected_response', 'a page', { status: 503, retry_after_s: 86_400 });
    assert((await requestsOf(1, page)).at(-1)! <= 100);
  });

  test('is one of a thousand that return side by side over half a second, and not at once', async () => {
    const away_ms = 5_000;
    const windows = new Map<number, number>();
    for (let machine = 0; machine < 1_000; machine++) {
      const late_ms = (await requestsOf(away_ms, nothingThere)).at(-1)! - away_ms;
      const window = Math.floor(late_ms / 50);
      windows.set(window, (windows.get(window) ?? 0) + 1);
    }
    const most = Math.max(...windows.values());
    assert(most < 250, `${most} within 50 ms`);
  });
});
