/**
 * Makes a measurement: starts a contender, warms it up, puts the load on it, and waits until the last push has arrived.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Tool } from '../load/channel.ts';
import type { Ceiling } from '../contenders/ceiling.ts';
import { type Contender, forgetData, type StartOptions } from '../contenders/contenders.ts';
import { answering, type Fleet, WAIT_S } from '../load/fleet.ts';
import type { Load, Senders } from '../load/load.ts';
import { cpuSeconds, forgetPeak, memoryMib } from './processes.ts';
import type { Pullers } from '../load/pullers.ts';
import type { Receivers } from '../load/receivers.ts';

/** The results of a measurement, by the name of the figure. */
export type Figures = Record<string, number>;

/** The pause between two looks at the receivers. */
const LOOK_MS = 20;
/** When no push arrives for this long, the bench expects no more pushes. */
const SILENCE_MS_MAX = 4_000;
/** The longest that the bench waits for the last push. */
const DRAIN_MS_MAX = 180_000;

/** `all_respond`: during the warm-up, also the receivers respond that hang later. */
type WarmUp = Partial<Load> & { seconds: number; all_respond?: boolean };
/** The commands that receivers and pullers have in common. */
type Hearers = Pick<Receivers & Pullers, 'reset' | 'count' | 'received'>;

/** The helper processes: they run from the first measurement to the last. */
export class Bench {
  readonly receivers = new Tool<Receivers>('./load/receivers.ts');
  readonly senders = new Tool<Senders>('./load/load.ts');
  readonly pullers = new Tool<Pullers>('./load/pullers.ts');
  port = 0;
  #name_server: string | null = null;
  /** How many deliveries are pending in scenario (e), the backlog. */
  readonly backlog: number;
  /** How many machines come back in scenario (r), the herd, and how many deliveries wait for each of them. */
  readonly herd: { machines: number; each: number };

  /** How many messages scenario (p), a year of data, has. */
  readonly messages: number;

  constructor({ backlog, herd, messages }: Pick<Bench, 'backlog' | 'herd' | 'messages'>) {
    this.backlog = backlog;
    this.herd = herd;
    this.messages = messages;
  }

  async start(): Promise<void> {
    ({ port: this.port } = await this.receivers.call('up', { port: 0 }));
  }

  async stop(): Promise<void> {
    await Promise.all([this.receivers.stop(), this.senders.stop(), this.pullers.stop()]);
    await forgetData();
  }

  /** `address:port` of a name server that never responds. */
  async nameServer(): Promise<string> {
    this.#name_server ??= (await this.receivers.call('nameServer')).address;
    return this.#name_server;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Puts the load on a contender, and returns what arrived. */
  async measure(
    contender: Contender,
    options: StartOptions,
    load: Omit<Load, 'ports' | 'meetings'> & { meetings?: number },
    { all_respond = false, ...warm_up }: WarmUp,
  ): Promise<Figures> {
    const { fleet } = options;
    const running = await contender.start(options);
    const hearers: Tool<Hearers> = fleet.pulls === true ? this.pullers : this.receivers;
    try {
      const ports = [running.url, ...(running.more_urls ?? [])].map((url) => Number(new URL(url).port));
      const whole: Load = { meetings: fleet.meetings, ...load, ports };
      const perMessage = ({ targets }: Load): number => (targets === undefined ? answering(fleet) : 1);
      const per_message = perMessage(whole);
      await hearers.call('reset', { lanes: true });
      if (fleet.pulls === true) await this.pullers.call('start', { ports, fleet, wait_s: WAIT_S });
      const before: Load = { ...whole, ...warm_up };
      if (all_respond) await this.receivers.call('hang', { on: false });
      const { accepted } = await this.senders.call('send', before);
      await this.drained(accepted * perMessage(before), hearers);
      if (all_respond) await this.receivers.call('hang', { on: true });
      await hearers.call('reset', { lanes: false });
      const pid = running.probe.process.pid!;
      forgetPeak(pid);
      await running.probe.call('lagFromHere');
      const commits_before = await running.commits?.();
      const cpu_before = this.#cpu(running.pids, hearers);
      const sent = await this.senders.call('send', whole);
      await this.drained(sent.accepted * per_message, hearers);
      const cpu_after = this.#cpu(running.pids, hearers);
      const commits_after = await running.commits?.();
      const received = await hearers.call('received');
      const lag = await running.probe.call('lag');
      const elapsed_s = (received.last_us - sent.first_us) / 1e6;
      const cpu_us = (of: 'service' | 'senders' | 'hearers'): number => (cpu_after[of] - cpu_before[of]) * 1e6;
      return {
        messages_per_s: received.pushes / per_message / elapsed_s,
        pushes_per_s: received.pushes / elapsed_s,
        p50_ms: received.latency_ms.p50,
        p99_ms: received.latency_ms.p99,
        max_ms: received.latency_ms.max,
        answer_p50_ms: sent.answer_ms.p50,
        answer_p99_ms: sent.answer_ms.p99,
        lag_p99_ms: lag.p99,
        cpu_us_per_message: cpu_us('service') / Math.max(sent.accepted, 1),
        cpu_us_per_push: cpu_us('service') / Math.max(received.pushes, 1),
        bench_cpu_us_per_push: (cpu_us('senders') + cpu_us('hearers')) / Math.max(received.pushes, 1),
        rss_peak_mib: memoryMib(pid).peak,
        missing: sent.accepted * per_message - received.pushes,
        refused: sent.refused,
        out_of_order: received.out_of_order,
        repeated: received.repeated,
        late_ms_max: sent.late_ms_max,
        ...(commits_before !== undefined &&
          commits_after !== undefined && {
            commits_per_100: (100 * (commits_after - commits_before)) / Math.max(sent.accepted, 1),
          }),
      };
    } finally {
      if (fleet.pulls === true) await this.pullers.call('stop');
      await running.stop();
    }
  }

  #cpu(service: number[], hearers: Tool<Hearers>) {
    return {
      service: cpuSeconds(service),
      senders: cpuSeconds([this.senders.process.pid!]),
      hearers: cpuSeconds([hearers.process.pid!]),
    };
  }

  /** Waits until `pushes` have arrived, or until no more pushes arrive. */
  async drained(pushes: number, hearers: Tool<Hearers> = this.receivers): Promise<void> {
    const started_ms = performance.now();
    let moved_ms = started_ms;
    let before = -1;
    for (;;) {
      const count = await hearers.call('count');
      const now_ms = performance.now();
      if (count >= pushes || now_ms - moved_ms > SILENCE_MS_MAX || now_ms - started_ms > DRAIN_MS_MAX) return;
      if (count !== before) {
        before = count;
        moved_ms = now_ms;
      }
      await sleep(LOOK_MS);
    }
  }

  /** Measures undici alone: the most pushes that the receivers and this machine can take. */
  async ceiling(fleet: Fleet, connections: number, seconds: number): Promise<Figures> {
    const tool = new Tool<Ceiling>('./contenders/ceiling.ts');
    await tool.call('flood', { fleet, connections, seconds: 1 });
    await this.receivers.call('reset', { lanes: true });
    const pid = tool.process.pid!;
    const cpu_before = this.#cpu([pid], this.receivers);
    const { first_us } = await tool.call('flood', { fleet, connections, seconds });
    const cpu_after = this.#cpu([pid], this.receivers);
    const { pushes, last_us, latency_ms } = await this.receivers.call('received');
    await tool.stop();
    const elapsed_s = (last_us - first_us) / 1e6;
    return {
      messages_per_s: pushes / answering(fleet) / elapsed_s,
      pushes_per_s: pushes / elapsed_s,
      p50_ms: latency_ms.p50,
      p99_ms: latency_ms.p99,
      cpu_us_per_push: ((cpu_after.service - cpu_before.service) * 1e6) / pushes,
      bench_cpu_us_per_push: ((cpu_after.hearers - cpu_before.hearers) * 1e6) / pushes,
    };
  }
}
