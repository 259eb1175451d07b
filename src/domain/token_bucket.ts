/** Token buckets, which bound how often somebody may do something. The time is an argument. */

/** `per_second` tokens flow back, and at most `burst` lie in the bucket. */
export interface Rate {
  per_second: number;
  burst: number;
}

/** More buckets than this are not kept: who comes from a million addresses takes no more memory than from these. */
export const BUCKETS_MAX = 65_536;

/** Full buckets are looked for among the longest unused ones, so many with each new one. */
const FORGOTTEN_AT_A_TIME = 2;

interface Bucket {
  tokens: number;
  at_ms: number;
}

/**
 * A bucket for each name. One that is full again is as good as none and is forgotten. When there are too many, the longest
 * unused one goes, whatever is in it: whoever has that many names gets nothing by having one of them anew.
 */
export class TokenBuckets {
  readonly #per_ms: number;
  readonly #burst: number;
  readonly #count_max: number;
  /** The longest unused first. */
  readonly #buckets = new Map<string, Bucket>();

  constructor({ per_second, burst }: Rate, count_max = BUCKETS_MAX) {
    this.#per_ms = per_second / 1000;
    this.#burst = burst;
    this.#count_max = count_max;
  }

  /** How many are kept. */
  get size(): number {
    return this.#buckets.size;
  }

  /** Takes a token: answers 0, or the milliseconds until there is one. */
  take(name: string, now_ms: number): number {
    const tokens = this.#tokensIn(name, now_ms);
    if (tokens < 1) return this.#untilOne(tokens);
    const is_new = !this.#buckets.delete(name);
    if (is_new) this.#makeRoom(now_ms);
    this.#buckets.set(name, { tokens: tokens - 1, at_ms: now_ms });
    return 0;
  }

  /** What `take` would answer, taking nothing. */
  wait(name: string, now_ms: number): number {
    const tokens = this.#tokensIn(name, now_ms);
    return tokens < 1 ? this.#untilOne(tokens) : 0;
  }

  #tokensIn(name: string, now_ms: number): number {
    const bucket = this.#buckets.get(name);
    return bucket === undefined ? this.#burst : this.#filled(bucket, now_ms);
  }

  #filled({ tokens, at_ms }: Bucket, now_ms: number): number {
    return Math.min(this.#burst, tokens + Math.max(0, now_ms - at_ms) * this.#per_ms);
  }

  /** Rounded up: whoever comes back then finds one. */
  #untilOne(tokens: number): number {
    return Math.ceil((1 - tokens) / this.#per_ms);
  }

  #makeRoom(now_ms: number): void {
    let looked_at = 0;
    for (const [name, bucket] of this.#buckets) {
      const is_full = this.#filled(bucket, now_ms) >= this.#burst;
      if (is_full || this.#buckets.size >= this.#count_max) this.#buckets.delete(name);
      if (++looked_at >= FORGOTTEN_AT_A_TIME) return;
    }
  }
}
