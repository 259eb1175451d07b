/** Measures what listeners of the live feed cost the service: processor time per message, and messages per second. */
import { Tool } from '../load/channel.ts';
import { type Contender, convoke } from '../contenders/contenders.ts';
import type { FeedCounts, Listeners } from '../load/listeners.ts';
import type { Bench, Figures } from '../measure/measure.ts';
import { CPU_PER_MESSAGE, FAULTS, LATENCY, MEMORY, MESSAGES, type Row, type Scenario } from './scenario.ts';
import { FAN_OUT_1, saturated } from './throughput.ts';

const LISTENERS = 10;
const RATE_PER_S = 1_000;
const CONNECTIONS = 32;
const WARM_UP_S = 2;

/** Convoke with a number of listeners. They listen from before the warm-up until the end. */
class Listened implements Contender {
  readonly name = 'convoke';
  readonly #listeners: number;
  #counts: FeedCounts = { events: 0, bytes: 0, cut_off: 0 };

  constructor(listeners: number) {
    this.#listeners = listeners;
  }

  async start(options: Parameters<Contender['start']>[0]): ReturnType<Contender['start']> {
    const running = await convoke.start(options);
    const tool = new Tool<Listeners>('./load/listeners.ts');
    await tool.call('listen', { port: Number(new URL(running.url).port), listeners: this.#listeners });
    return {
      ...running,
      stop: async () => {
        this.#counts = await tool.call('counts');
        await tool.stop();
        await running.stop();
      },
    };
  }

  get figures(): Figures {
    const { events, bytes, cut_off } = this.#counts;
    return { events, feed_mib: bytes / (1 << 20), cut_off };
  }
}

function row(name: string, listeners: number, measure: (contender: Contender) => Row['measure']): Row {
  return {
    name,
    async measure(bench: Bench, seconds: number) {
      const contender = new Listened(listeners);
      const figures = await measure(contender)(bench, seconds);
      return { ...figures, ...contender.figures };
    },
  };
}

const atRate = (contender: Contender): Row['measure'] => {
  return (bench, seconds) =>
    bench.measure(
      contender,
      { fleet: { meetings: 64, members: 1, origin: bench.origin } },
      { connections: CONNECTIONS, rate: RATE_PER_S, seconds },
      { seconds: WARM_UP_S },
    );
};
const asMuchAsGoes = (contender: Contender): Row['measure'] => {
  const as_in_a = saturated(contender, FAN_OUT_1);
  return (bench, seconds) => as_in_a.measure(bench, seconds);
};

const AT_RATE = `${RATE_PER_S}/s`;

export const liveFeed: Scenario = {
  name: 'j',
  title: `live feed: fan-out 1 over 64 instances, nobody or ${LISTENERS} listening to everything`,
  columns: [
    MESSAGES,
    CPU_PER_MESSAGE,
    ...LATENCY,
    MEMORY,
    { figure: 'events', title: 'events received' },
    { figure: 'feed_mib', title: 'MiB received' },
    { figure: 'cut_off', title: 'cut off', only_if_any: true },
    ...FAULTS,
  ],
  rows: [
    row(`${AT_RATE}, nobody listens`, 0, atRate),
    row(`${AT_RATE}, ${LISTENERS} listeners`, LISTENERS, atRate),
    row('saturated, nobody listens', 0, asMuchAsGoes),
    row(`saturated, ${LISTENERS} listeners`, LISTENERS, asMuchAsGoes),
  ],
  targets: [
    {
      says: `CPU per message at ${AT_RATE} ≤ 1.1 × without listeners`,
      row: `${AT_RATE}, ${LISTENERS} listeners`,
      figure: 'cpu_us_per_message',
      against: { row: `${AT_RATE}, nobody listens` },
      at_most: 1.1,
    },
    {
      says: 'saturated: ≥ 0.9 × without listeners',
      row: `saturated, ${LISTENERS} listeners`,
      figure: 'messages_per_s',
      against: { row: 'saturated, nobody listens' },
      at_least: 0.9,
    },
  ],
};
