/** The results of the last day's pushes, for each instance. */
import { type Counted, Tally } from './history.ts';

/** The length of a step. The steps of a day take 5 KB for each instance. */
export const INSTANCE_STEP_S = 600;
const STEPS = 144;
/** The most instances that are remembered: those with the latest attempts. All together take 20 MB. */
export const INSTANCES_MAX = 4_096;

const SHOWN = ['delivered', 'failed_attempts', 'failed'] as const satisfies Counted[];
/**
 * The columns of a step that has ended: the shown counts, and two latencies. A latency is stored plus one, because 0
 * means that there is none.
 */
const WIDTH = SHOWN.length + 2;

/** The steps of one instance, column by column. The last step has not ended. */
export interface InstanceColumns extends Record<(typeof SHOWN)[number], number[]> {
  first_s: number;
  p50_ms: (number | null)[];
  p95_ms: (number | null)[];
}

class InstanceSteps {
  /** The first second that is counted. */
  readonly since_s: number;
  /** The step that has not ended, with every duration. Earlier steps keep only the quantiles. */
  readonly #present = new Tally();
  #number: number;
  readonly #ended = new Uint32Array(STEPS * WIDTH);
  readonly #numbers = new Uint32Array(STEPS);

  constructor(since_s: number, number: number) {
    this.since_s = since_s;
    this.#number = number;
  }

  /** @returns whether a new step began. `number` must not be less than in the call before */
  add(number: number, tally: Tally): boolean {
    const begins = number !== this.#number;
    if (begins) {
      this.#end();
      this.#number = number;
    }
    this.#present.add(tally);
    return begins;
  }

  #end(): void {
    const place = this.#number % STEPS;
    this.#numbers[place] = this.#number;
    this.#ended.set(valuesOf(this.#present), place * WIDTH);
    this.#present.clear();
  }

  valuesAt(number: number): ArrayLike<number> {
    if (number === this.#number) return valuesOf(this.#present);
    const place = number % STEPS;
    return this.#numbers[place] === number ? this.#ended.subarray(place * WIDTH, (place + 1) * WIDTH) : NOTHING;
  }
}

const NOTHING = new Uint32Array(WIDTH);

function valuesOf(tally: Tally): number[] {
  const latencies = [0.5, 0.95].map((share) => (tally.quantileMs(share) ?? -1) + 1);
  return [...SHOWN.map((what) => tally.of(what)), ...latencies];
}

function latencyIn(value: number): number | null {
  return value === 0 ? null : value - 1;
}

/** The steps of the instances with the latest attempts. Callers take the seconds from a clock that does not go back. */
export class StepsOfInstances {
  readonly #instances = new Map<string, InstanceSteps>();
  #since_s: number;

  constructor(since_s: number) {
    this.#since_s = since_s;
  }

  get size(): number {
    return this.#instances.size;
  }

  add(instance_id: string, second: number, tally: Tally): void {
    const number = Math.floor(second / INSTANCE_STEP_S);
    let steps = this.#instances.get(instance_id);
    if (steps === undefined) {
      steps = new InstanceSteps(this.#since_s, number);
      this.#instances.set(instance_id, steps);
    }
    // The map has the instances in the order in which their latest steps began. So its first instance is the one to
    // forget.
    if (steps.add(number, tally)) {
      this.#instances.delete(instance_id);
      this.#instances.set(instance_id, steps);
    }
    if (this.#instances.size <= INSTANCES_MAX) return;
    this.#instances.delete(this.#instances.keys().next().value as string);
    // The map has forgotten an instance. When this instance is added again, its counts begin at this second or later.
    this.#since_s = second;
  }

  forget(instance_id: string): void {
    this.#instances.delete(instance_id);
  }

  /** @param since_s steps that ended before this second are left out */
  read(instance_id: string, since_s: number, now_s: number): InstanceColumns & { since_s: number } {
    const steps = this.#instances.get(instance_id);
    const known_s = Math.max(steps?.since_s ?? this.#since_s, since_s);
    const last = Math.floor(now_s / INSTANCE_STEP_S);
    const first = Math.max(Math.floor(known_s / INSTANCE_STEP_S), last - STEPS + 1);
    const columns: InstanceColumns = {
      first_s: first * INSTANCE_STEP_S,
      delivered: [],
      failed_attempts: [],
      failed: [],
      p50_ms: [],
      p95_ms: [],
    };
    for (let number = first; number <= last; number++) {
      const values = steps?.valuesAt(number) ?? NOTHING;
      for (const [i, what] of SHOWN.entries()) columns[what].push(values[i]!);
      columns.p50_ms.push(latencyIn(values[SHOWN.length]!));
      columns.p95_ms.push(latencyIn(values[SHOWN.length + 1]!));
    }
    return { ...columns, since_s: known_s };
  }
}
