import type { Clock } from '../../delivery/clock.ts';

/** The pause between two reads of the keys. */
const PAUSE_MS = 100;
/**
 * How many requests wait for the next read at most; further requests do not wait. By default one address can make fewer
 * guesses at a moment.
 */
const WAITING_MAX = 200;

/**
 * The requests with a token that this node does not know. They wait for a read of the keys, because another node may
 * just have made the token. Anybody can send unknown tokens, so reads are rare, and each is for many requests.
 */
export class UnknownTokens {
  readonly #clock: Clock;
  readonly #read: () => Promise<void>;
  /** Called when the next read has ended: one callback for each request. */
  #waiting: (() => void)[] = [];
  #may_read = true;

  constructor(clock: Clock, read: () => Promise<void>) {
    this.#clock = clock;
    this.#read = read;
  }

  /** Waits for a read that begins after this call, and may fail. Null when too many requests wait already. */
  nextRead(): Promise<void> | null {
    if (this.#waiting.length >= WAITING_MAX) return null;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    if (this.#may_read) this.#readNow();
    return promise;
  }

  #readNow(): void {
    this.#may_read = false;
    const waiting = this.#waiting;
    this.#waiting = [];
    const end = (): void => {
      for (const resolve of waiting) resolve();
      this.#clock.after(PAUSE_MS, () => {
        this.#may_read = true;
        if (this.#waiting.length > 0) this.#readNow();
      });
    };
    // An error is not reported here: when the store does not respond, other calls report that.
    this.#read().then(end, end);
  }
}
