/** Figures that are computed from many samples, and the clock of the measurements. */

export interface Distribution {
  count: number;
  p50: number;
  p99: number;
  max: number;
}

/** Keeps all samples of a measurement, so that percentiles are exact. */
export class Samples {
  #values = new Float64Array(1 << 12);
  #count = 0;

  add(value: number): void {
    if (this.#count === this.#values.length) {
      const grown = new Float64Array(this.#count * 2);
      grown.set(this.#values);
      this.#values = grown;
    }
    this.#values[this.#count++] = value;
  }

  clear(): void {
    this.#count = 0;
  }

  distribution(): Distribution {
    const sorted = this.#values.slice(0, this.#count).toSorted();
    return { count: this.#count, p50: quantile(sorted, 0.5), p99: quantile(sorted, 0.99), max: sorted.at(-1) ?? NaN };
  }
}

function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return NaN;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** The time in microseconds, on a clock that all processes of a machine share. */
export function nowUs(): number {
  const [s, ns] = process.hrtime();
  return s * 1e6 + Math.floor(ns / 1000);
}
