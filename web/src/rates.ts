/** The data of the charts: counts and durations by the second, as far back as they are kept. */

export const BIN_S = 2;
const KEPT_S = 3600;
/** The most durations in each bin; more would not change the quantiles. */
const SAMPLES_MAX = 200;

interface Bin {
  accepted: number;
  delivered: number;
  failed: number;
  durations_ms: number[];
}

export interface Points {
  /** Seconds since 1970, the beginning of each bin. */
  at: number[];
  accepted: (number | null)[];
  delivered: (number | null)[];
  failed: (number | null)[];
  p50_ms: (number | null)[];
  p95_ms: (number | null)[];
}

export class Rates {
  readonly #bins = new Map<number, Bin>();
  /** The time before this is unknown: the lines have a gap there, not zeros. */
  #known_since_s = Date.now() / 1000;

  knownSince(time_ms: number): void {
    this.#known_since_s = Math.min(this.#known_since_s, time_ms / 1000);
  }

  count(what: 'accepted' | 'delivered' | 'failed', time_ms: number, duration_ms?: number, times = 1): void {
    const key = Math.floor(time_ms / 1000 / BIN_S);
    let bin = this.#bins.get(key);
    if (bin === undefined) {
      bin = { accepted: 0, delivered: 0, failed: 0, durations_ms: [] };
      this.#bins.set(key, bin);
      this.#forget();
    }
    bin[what] += times;
    if (duration_ms === undefined) return;
    if (bin.durations_ms.length < SAMPLES_MAX) bin.durations_ms.push(duration_ms);
    else bin.durations_ms[Math.floor(Math.random() * bin[what])] = duration_ms;
  }

  /** The last `span_s` seconds in `step_s`, a multiple of the bin. */
  points(now_ms: number, span_s: number, step_s: number): Points {
    const points: Points = { at: [], accepted: [], delivered: [], failed: [], p50_ms: [], p95_ms: [] };
    const end_s = Math.floor(now_ms / 1000 / step_s) * step_s;
    for (let at = end_s - span_s; at < end_s; at += step_s) {
      const bins: Bin[] = [];
      for (let s = at; s < at + step_s; s += BIN_S) {
        const bin = this.#bins.get(Math.floor(s / BIN_S));
        if (bin !== undefined) bins.push(bin);
      }
      const is_known = at + step_s > this.#known_since_s;
      const rate = (what: 'accepted' | 'delivered' | 'failed'): number | null =>
        is_known ? bins.reduce((sum, bin) => sum + bin[what], 0) / step_s : null;
      const durations = bins.flatMap((bin) => bin.durations_ms).toSorted((a, b) => a - b);
      points.at.push(at);
      points.accepted.push(rate('accepted'));
      points.delivered.push(rate('delivered'));
      points.failed.push(rate('failed'));
      points.p50_ms.push(quantile(durations, 0.5));
      points.p95_ms.push(quantile(durations, 0.95));
    }
    return points;
  }

  #forget(): void {
    const oldest = Math.floor((Date.now() / 1000 - KEPT_S) / BIN_S);
    for (const key of this.#bins.keys()) if (key < oldest) this.#bins.delete(key);
  }
}

/** The values must be sorted; null when there are none. */
export function quantile(sorted: readonly number[], share: number): number | null {
  if (sorted.length === 0) return null;
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] as number;
}
