import type { Item } from './sending_many.ts';
import type { SentMessage } from './types.ts';

/** A full request is sent at once. */
const MESSAGES_MAX = 500;

type SendMany = (items: Item[]) => Promise<PromiseSettledResult<SentMessage>[]>;

interface Waiting {
  item: Item;
  resolve: (sent: SentMessage) => void;
  reject: (reason: unknown) => void;
  /** Stops listening to the signal of the caller. */
  release: () => void;
}

/** Gathers single sends for a short time and sends them in one request. */
export class Gatherer {
  readonly #gather_ms: number;
  readonly #sendMany: SendMany;
  #waiting: Waiting[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;

  /** @param gather_ms how long a send waits for others */
  constructor(gather_ms: number, sendMany: SendMany) {
    this.#gather_ms = gather_ms;
    this.#sendMany = sendMany;
  }

  /**
   * Rejects as a single send does. When the signal is aborted, a message that is in a request at that time may still be
   * stored.
   */
  send(item: Item, signal: AbortSignal | undefined): Promise<SentMessage> {
    signal?.throwIfAborted();
    const { promise, resolve, reject } = withResolvers();
    const abort = (): void => {
      this.#waiting = this.#waiting.filter((each) => each.item !== item);
      // With a result, the message is in no further request.
      item.result ??= { status: 'rejected', reason: signal?.reason };
      reject(signal?.reason);
    };
    signal?.addEventListener('abort', abort, { once: true });
    this.#waiting.push({ item, resolve, reject, release: () => signal?.removeEventListener('abort', abort) });
    if (this.#waiting.length >= MESSAGES_MAX) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), this.#gather_ms);
    return promise;
  }

  #flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    const batch = this.#waiting.splice(0);
    if (batch.length > 0) void this.#settle(batch);
  }

  async #settle(batch: Waiting[]): Promise<void> {
    try {
      const results = await this.#sendMany(batch.map(({ item }) => item));
      for (const [i, { resolve, reject }] of batch.entries()) {
        const result = results[i] as PromiseSettledResult<SentMessage>;
        if (result.status === 'fulfilled') resolve(result.value);
        else reject(result.reason);
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    } finally {
      for (const { release } of batch) release();
    }
  }
}

/** Promise.withResolvers is missing in Node 20. */
function withResolvers() {
  let resolve!: (sent: SentMessage) => void;
  let reject!: (reason: unknown) => void;
  const promise = new Promise<SentMessage>((resolve_, reject_) => {
    resolve = resolve_;
    reject = reject_;
  });
  return { promise, resolve, reject };
}
