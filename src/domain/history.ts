/** The history of the service: counts in steps of equal length, for three spans that end now. */

import type { Outcome } from './outcome.ts';

/** The counted events. `failed_attempts` counts attempts, `accepted` counts messages, the others count deliveries. */
export const COUNTED = ['accepted', 'delivered', 'failed_attempts', 'failed'] as const;
export type Counted = (typeof COUNTED)[number];

/** The place of each count in a tally. */
const PLACES: Record<Counted, number> = { accepted: 0, delivered: 1, failed_attempts: 2, failed: 3 };

/** The spans, and the length of a step in each. All spans together take 1 MB. */
export const SPANS = {
  '5m': { step_s: 1, steps: 300 },
  '1h': { step_s: 10, steps: 360 },
  '24h': { step_s: 60, steps: 1440 },
} as const;
export type Span = keyof typeof SPANS;

/**
 * Durations are counted in bins, so that the counts of several nodes or steps can be added up. Each power of two has
 * four bins, so a quantile is off by at most an eighth.
 */
const BINS = 120;
const WIDTH = COUNTED.length + BINS;
const MS_MAX = 2 ** 31 - 1;

function binOf(duration_ms: number): number {
  const ms = Math.min(Math.max(Math.round(duration_ms), 0), MS_MAX);
  if (ms < 4) return ms;
  const power = 31 - Math.clz32(ms);
  return 4 * (power - 1) + ((ms >>> (power - 2)) & 3);
}

/** The middle of a bin. */
function millisecondsOf(bin: number): number {
  if (bin < 4) return bin;
  const width = 2 ** (Math.floor(bin / 4) - 1);
  return (4 + (bin % 4)) * width + (width - 1) / 2;
}

/** The counts of one step. */
export class Tally {
  /** The counts, and after them the bins. */
  readonly #values: Uint32Array;

  constructor(values = new Uint32Array(WIDTH)) {
    this.#values = values;
  }

  /** Reads a tally from the form that `text` makes; null for anything else. */
  static parse(text: string): Tally | null {
    let pairs: unknown;
    try {
      pairs = JSON.parse(text);
    } catch {
      return null;
    }
    return Tally.of(pairs);
  }

  /** The tally in a parsed list of the form that `text` makes; null for anything else. */
  static of(pairs: unknown): Tally | null {
    if (!Array.isArray(pairs) || pairs.length % 2 !== 0) return null;
    const tally = new Tally();
    for (let i = 0; i < pairs.length; i += 2) {
      const [place, times] = [pairs[i] as number, pairs[i + 1] as number];
      if (!isCount(place) || place >= WIDTH || !isCount(times)) return null;
      tally.#values[place] = times;
    }
    return tally;
  }

  count(what: Counted, times = 1): void {
    this.#values[PLACES[what]]! += times;
  }

  /** Counts a delivery, and how long it took. */
  countDelivered(duration_ms: number): void {
    this.#values[PLACES.delivered]!++;
    this.#values[COUNTED.length + binOf(duration_ms)]!++;
  }

  /** @param duration_ms the time from the acceptance of the message until now */
  attempted(outcome: Outcome, state: 'delivered' | 'failed' | 'pending', duration_ms: number): void {
    if (state === 'delivered') this.countDelivered(duration_ms);
    else if (state === 'failed') this.count('failed');
    if (outcome !== 'ok') this.count('failed_attempts');
  }

  add(other: Tally): void {
    for (let i = 0; i < WIDTH; i++) this.#values[i]! += other.#values[i]!;
  }

  clear(): void {
    this.#values.fill(0);
  }

  of(what: Counted): number {
    return this.#values[PLACES[what]]!;
  }

  /** Null when nothing was delivered. */
  quantileMs(share: number): number | null {
    const deliveries = this.#values[PLACES.delivered]!;
    if (deliveries === 0) return null;
    let left = Math.floor(share * deliveries) + 1;
    for (let bin = 0; bin < BINS; bin++) {
      left -= this.#values[COUNTED.length + bin]!;
      if (left <= 0) return Math.round(millisecondsOf(bin));
    }
    return null;
  }

  /** All values that are not 0, as JSON: the place of a value, then the value. At most 2 KB. */
  get text(): string {
    const pairs: number[] = [];
    for (const [place, value] of this.#values.entries()) if (value > 0) pairs.push(place, value);
    return JSON.stringify(pairs);
  }
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;
}

/** The latest steps of one span. A new step replaces the oldest. */
class Steps {
  readonly step_s: number;
  /** For each place, the number of the step whose tally is there. */
  readonly #numbers: Float64Array;
  readonly #tallies: Tally[];

  constructor({ step_s, steps }: { step_s: number; steps: number }) {
    this.step_s = step_s;
    this.#numbers = new Float64Array(steps).fill(-1);
    const values = new Uint32Array(steps * WIDTH);
    this.#tallies = Array.from({ length: steps }, (_, i) => new Tally(values.subarray(i * WIDTH, (i + 1) * WIDTH)));
  }

  get length(): number {
    return this.#tallies.length;
  }

  /** `second` may be earlier than in a previous call, but by less than the whole span. */
  add(second: number, tally: Tally): void {
    const number = Math.floor(second / this.step_s);
    const place = number % this.length;
    const kept = this.#tallies[place]!;
    if (this.#numbers[place] !== number) kept.clear();
    this.#numbers[place] = number;
    kept.add(tally);
  }

  /** The tally of the step with this number; an empty tally when nothing happened in the step. */
  at(number: number): Tally {
    const place = number % this.length;
    return this.#numbers[place] === number ? this.#tallies[place]! : NOTHING;
  }
}

const NOTHING = new Tally();

/** A part of a span, column by column. */
export interface HistoryColumns extends Record<Counted, number[]> {
  step_s: number;
  /** When the first step began, and when the last one ended, in seconds. */
  first_s: number;
  end_s: number;
  /** From acceptance to delivery; null for a step in which nothing was delivered. */
  p50_ms: (number | null)[];
  p95_ms: (number | null)[];
}

/** All spans. Callers take the seconds from a clock that does not go back. */
export class SpansOfTime {
  readonly #spans: Record<Span, Steps>;

  constructor() {
    this.#spans = { '5m': new Steps(SPANS['5m']), '1h': new Steps(SPANS['1h']), '24h': new Steps(SPANS['24h']) };
  }

  add(second: number, tally: Tally): void {
    for (const steps of Object.values(this.#spans)) steps.add(second, tally);
  }

  /** The steps that have ended, without those that began before `since_s`. */
  read(span: Span, since_s: number, now_s: number): HistoryColumns {
    const steps = this.#spans[span];
    const { step_s } = steps;
    const end = Math.floor(now_s / step_s);
    const first = Math.min(Math.max(Math.ceil(since_s / step_s), end - steps.length), end);
    const columns: HistoryColumns = {
      step_s,
      first_s: first * step_s,
      end_s: end * step_s,
      accepted: [],
      delivered: [],
      failed_attempts: [],
      failed: [],
      p50_ms: [],
      p95_ms: [],
    };
    for (let number = first; number < end; number++) {
      const tally = steps.at(number);
      for (const what of COUNTED) columns[what].push(tally.of(what));
      columns.p50_ms.push(tally.quantileMs(0.5));
      columns.p95_ms.push(tally.quantileMs(0.95));
    }
    return columns;
  }
}
