/**
 * A machine that pulls in simulated time, as docs/pull.md describes, and has faults. It dies with pushes in hand, is
 * away, works for too long, loses requests and responses, repeats requests, and repeats results.
 */
import type { Answer, Pulled, PullBody, Reported } from './pull_endpoint.ts';
import type { Random } from './random.ts';

const SECOND = 1_000;
/** The machine waits for the response this much longer than its pull may wait. */
const RESPONSE_MARGIN_MS = 15 * SECOND;
const PAUSE_MS_FIRST = 100;
const PAUSE_MS_MAX = 5 * SECOND;
const KNOCKED_OUT_MS_MAX = 60 * SECOND;
const AWAY_LOOK_MS = SECOND;
const ANSWER_MS_MAX = 20;
const THINKS_MS_MAX = 20 * SECOND;
const LATE_MS_MAX = 3 * SECOND;

export const PULL_MOODS = [
  'fine',
  'fine',
  'slow',
  'late',
  'dying',
  'lossy',
  'repeating',
  'moody',
  'moody',
  'away',
  'gone',
] as const;
export type PullMood = (typeof PULL_MOODS)[number];

/** A node, as a machine reaches it. */
export interface PulledNode {
  node_id: string;
  /**
   * @param onAnswer called once, with null when the connection broke. @returns a function that closes the connection
   */
  pull(instance_id: string, body: PullBody, onAnswer: (answer: Answer | null) => void): () => void;
}

export interface Surroundings {
  random: Random;
  after(delay_ms: number, run: () => void): () => void;
  nodes: () => PulledNode[];
  trace: (line: string) => void;
  received: (push: Pulled['pushes'][number], pull_id: string) => void;
  /** Called when the machine repeats a pull under the same name. */
  repeats(pull_id: string): void;
  /** Called when the machine acted on a push, whatever happens to the result. */
  handled(delivery_id: string): void;
  /** Called when the machine is about to report the result of an attempt. */
  reports(report: Reported): void;
  /** The body of a success. */
  bodyOf(delivery_id: string, target_agents: readonly string[]): string;
}

export interface PullingMachineOptions {
  instance_id: string;
  ack_timeout_ms: number;
  /** How many pulls the machine keeps open. Several pulls compete for the same pushes. */
  pullers: number;
  wait_s: number;
  /** A meeting in which the machine takes long for each push, although it is well; null for none. */
  thinks_in: string | null;
}

type Said = Omit<Reported, 'delivery_id' | 'attempt'>;
type Then = (pause_ms: number, is_answered: boolean) => void;

export class PullingMachine {
  mood: PullMood = 'fine';
  readonly #options: PullingMachineOptions;
  readonly #around: Surroundings;
  /** By delivery: the latest attempt that the machine got, and its result; `said` is null while it works. */
  #known = new Map<string, { attempt: number; said: Said | null }>();
  #outbox: Reported[] = [];
  /** The number of the current life of the machine. It forgets everything that began in an earlier life. */
  #life = 0;
  #open = new Set<() => void>();
  #failures = 0;
  #next_node = 0;
  #pulls = 0;

  constructor(options: PullingMachineOptions, around: Surroundings) {
    this.#options = options;
    this.#around = around;
    this.#start();
  }

  #start(): void {
    for (let k = 0; k < this.#options.pullers; k++)
      this.#later(this.#around.random.below(100), () => this.#pull(this.#newName()));
  }

  /** Runs something later, if the machine is then still in the same life. */
  #later(delay_ms: number, run: () => void): () => void {
    const life = this.#life;
    return this.#around.after(delay_ms, () => {
      if (this.#life === life) run();
    });
  }

  /** Makes a name for a pull. Names differ between the machines of a world and between the lives of a machine. */
  #newName(): string {
    return `${this.#options.instance_id}.${++this.#pulls}`;
  }

  /** @param pull_id the name of the pull; a repeated pull has the name of the pull whose response was lost */
  #pull(pull_id: string): void {
    const { random } = this.#around;
    if (this.mood === 'away') return void this.#later(AWAY_LOOK_MS, () => this.#pull(pull_id));
    const results = this.#outbox.splice(0);
    const body = { results, max: random.pick([1, 2, 32]), wait_s: this.#options.wait_s, pull_id };
    this.#request(body, (pause_ms, is_answered) => {
      if (!is_answered) this.#around.repeats(pull_id);
      this.#later(pause_ms, () => this.#pull(is_answered ? this.#newName() : pull_id));
    });
  }

  /** Reports results at once, with a pull that asks for no pushes. Open pulls stay open. */
  #handIn(): void {
    if (this.#outbox.length === 0) return;
    const body = { results: this.#outbox.splice(0), max: 0, wait_s: 0, pull_id: this.#newName() };
    this.#request(body, (pause_ms) => {
      if (pause_ms > 0) this.#later(pause_ms, () => this.#handIn());
    });
  }

  /** @param then called with the pause before the next request */
  #request(body: PullBody, then: Then): void {
    const { random, nodes, trace } = this.#around;
    const { instance_id } = this.#options;
    const all = nodes();
    const node = all[this.#next_node % Math.max(1, all.length)];
    if (node === undefined) return this.#fails(body, then);
    const is_lost = this.mood === 'lossy' && random.chance(0.3);
    const goes_lost = is_lost && random.chance(0.5);
    // The network changed: the machine asks again, and its node does not know that the connection is dead.
    const is_dead = is_lost && !goes_lost && random.chance(0.5);
    // Some lost requests only take long: they arrive after the machine has asked again.
    if (goes_lost && random.chance(0.3))
      this.#around.after(random.below(LATE_MS_MAX), () => node.pull(instance_id, body, () => {}));
    let is_over = false;
    const life = this.#life;
    const over = (answer: Answer | null): void => {
      if (is_over) return;
      is_over = true;
      this.#open.delete(close);
      cancel();
      stop();
      if (life !== this.#life) return;
      if (answer === null || is_lost) this.#fails(body, then);
      else this.#answered(answer, body, then);
    };
    const response_ms_max = is_dead
      ? random.below(body.wait_s * SECOND + 1)
      : goes_lost
        ? random.below(SECOND)
        : body.wait_s * SECOND + RESPONSE_MARGIN_MS;
    const stop = this.#around.after(response_ms_max, () => over(null));
    const close = (): void => {
      is_over = true;
      cancel();
      stop();
    };
    this.#open.add(close);
    trace(`${instance_id} pulls at ${node.node_id} with ${body.results.length}`);
    for (const report of body.results) this.#around.reports(report);
    const closes = goes_lost ? () => {} : node.pull(instance_id, body, over);
    const cancel = is_dead ? () => {} : closes;
  }

  #fails(body: PullBody, then: Then): void {
    const { random } = this.#around;
    this.#next_node++;
    this.#outbox.unshift(...body.results);
    const pause_ms = Math.min(PAUSE_MS_MAX, PAUSE_MS_FIRST * 2 ** this.#failures++);
    then(1 + random.below(pause_ms), false);
  }

  #answered({ status, body: pulled }: Answer, body: PullBody, then: Then): void {
    const { random, trace } = this.#around;
    if (status !== 200 || pulled === null) {
      // 404 and 422: the machine is not registered, or its instance does not pull. The results may count later.
      if (status === 404 || status === 422) this.#failures = 3;
      return this.#fails(body, then);
    }
    this.#failures = 0;
    if (random.chance(0.1)) this.#next_node++;
    if (this.mood === 'repeating' && random.chance(0.5)) this.#outbox.push(...body.results);
    if (pulled.pushes.length > 0) trace(`${this.#options.instance_id} gets ${pulled.pushes.length}`);
    if (pulled.pushes.length > 0 && this.mood === 'dying' && random.chance(0.5)) return this.#die();
    for (const push of pulled.pushes) this.#take(push, body.pull_id);
    then(0, true);
  }

  #die(): void {
    this.#around.trace(`${this.#options.instance_id} dies`);
    this.#life++;
    for (const close of this.#open) close();
    this.#open.clear();
    this.#known.clear();
    this.#outbox = [];
    this.#later(this.#around.random.below(KNOCKED_OUT_MS_MAX), () => this.#start());
  }

  #take(push: Pulled['pushes'][number], pull_id: string): void {
    const { delivery_id, attempt, body } = push;
    this.#around.received(push, pull_id);
    // Reports a result of the previous attempt, which is too late.
    if (this.mood === 'repeating' && attempt > 1) this.#say(delivery_id, attempt - 1, { status_code: 500 });
    const known = this.#known.get(delivery_id);
    if (known !== undefined) {
      known.attempt = Math.max(known.attempt, attempt);
      if (known.said !== null) this.#say(delivery_id, attempt, known.said);
      return;
    }
    this.#known.set(delivery_id, { attempt, said: null });
    const { meeting_id, target_agents } = JSON.parse(body) as { meeting_id: string; target_agents: string[] };
    const said = this.#answer();
    const is_success = said.status_code === 200;
    if (is_success) said.body = this.#around.bodyOf(delivery_id, target_agents);
    this.#later(this.#workMs(meeting_id), () => {
      const latest = this.#known.get(delivery_id);
      if (latest === undefined) return;
      if (is_success) {
        latest.said = said;
        this.#around.handled(delivery_id);
      }
      // The machine forgets a push that it could not handle. When the push comes again, it tries again.
      else this.#known.delete(delivery_id);
      this.#say(delivery_id, latest.attempt, said);
    });
  }

  #say(delivery_id: string, attempt: number, said: Said): void {
    this.#outbox.push({ delivery_id, attempt, ...said });
    this.#handIn();
  }

  #workMs(meeting_id: string): number {
    const { random } = this.#around;
    const { ack_timeout_ms, thinks_in } = this.#options;
    if (meeting_id === thinks_in) return random.below(Math.min(THINKS_MS_MAX, ack_timeout_ms));
    if (this.mood === 'slow') return random.below(ack_timeout_ms);
    if (this.mood === 'late') return Math.floor(ack_timeout_ms * (0.7 + 0.6 * random.next()));
    return random.below(ANSWER_MS_MAX);
  }

  #answer(): Said {
    const { random } = this.#around;
    if (this.mood === 'gone') return { status_code: random.pick([410, 200]) };
    if (this.mood !== 'moody') return { status_code: 200 };
    const says = random.pick([200, 200, 200, 500, 429, 202, 302, 404, 'not_reached'] as const);
    if (says === 'not_reached') return { not_reached: 'simulated' };
    return { status_code: says, ...(says === 429 && { retry_after: random.pick(['1', '90', 'soon']) }) };
  }
}
