/** Token buckets, which limit how often a caller may do something. The time is an argument. */

/** A bucket gains `per_second` tokens each second, and holds at most `burst`. */
export interface Rate {
  per_second: number;
  burst: number;
}

/** The most buckets that are kept. This limits the memory that a client with a million addresses can take. */
export const BUCKETS_MAX = 65_536;

/** Sums of fractions are not exact, so a token that lacks at most this much counts as whole. */
const TOLERANCE = 1e-9;

interface Bucket {
  tokens: number;
  at_ms: number;
}

/**
 * A bucket for each name, in two generations: the recent generation has the buckets that were used since it began, the
 * older generation has those that were used before.
 *
 * A new generation begins after the time in which an unused bucket fills up. The buckets that are forgotten then are
 * full, and nothing is lost: a name without a bucket gets a full bucket. A generation also begins when there are too
 * many buckets. Then a bucket that is not full may be forgotten, and its name gets a full bucket. This does not help a
 * client that uses so many names, because each new name has a full bucket anyway.
 *
 * Removing the oldest bucket each time would be slower: a Map keeps a gap for each removed entry, and the search for
 * the oldest entry passes all these gaps. With 65,536 buckets, the search takes 27 µs.
 */
export class TokenBuckets {
  readonly #per_ms: number;
  readonly #burst: number;
  readonly #count_max: number;
  #recent = new Map<string, Bucket>();
  #older = new Map<string, Bucket>();
  #turned_at_ms = 0;

  constructor({ per_second, burst }: Rate, count_max = BUCKETS_MAX) {
    this.#per_ms = per_second / 1000;
    this.#burst = burst;
    this.#count_max = count_max;
  }

  /** How many buckets are kept now. */
  get size(): number {
    return this.#recent.size + this.#older.size;
  }

  /** Takes a token and returns 0; without a token, returns the milliseconds until one is available. */
  take(name: string, now_ms: number): number {
    const tokens = this.#tokensIn(name, now_ms);
    if (tokens < 1 - TOLERANCE) return this.#untilOne(tokens);
    const is_time = now_ms - this.#turned_at_ms >= this.#burst / this.#per_ms;
    if (is_time || this.#recent.size >= this.#count_max / 2) this.#turn(now_ms);
    this.#older.delete(name);
    this.#recent.set(name, { tokens: tokens - 1, at_ms: now_ms });
    return 0;
  }

  /** Puts a token back that `take` took. */
  giveBack(name: string, now_ms: number): void {
    const bucket = this.#recent.get(name) ?? this.#older.get(name);
    if (bucket === undefined) return;
    bucket.tokens = Math.min(this.#burst, this.#tokensIn(name, now_ms) + 1);
    bucket.at_ms = now_ms;
  }

  /** The result that `take` would have now; takes nothing. */
  wait(name: string, now_ms: number): number {
    const tokens = this.#tokensIn(name, now_ms);
    return tokens < 1 - TOLERANCE ? this.#untilOne(tokens) : 0;
  }

  #tokensIn(name: string, now_ms: number): number {
    const bucket = this.#recent.get(name) ?? this.#older.get(name);
    if (bucket === undefined) return this.#burst;
    return Math.min(this.#burst, bucket.tokens + Math.max(0, now_ms - bucket.at_ms) * this.#per_ms);
  }

  /** Rounded up, so that a client that waits this long finds a token. */
  #untilOne(tokens: number): number {
    return Math.max(1, Math.ceil((1 - tokens) / this.#per_ms - TOLERANCE));
  }

  #turn(now_ms: number): void {
    this.#older = this.#recent;
    this.#recent = new Map();
    this.#turned_at_ms = now_ms;
  }
}
