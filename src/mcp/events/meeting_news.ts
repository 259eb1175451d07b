import { setTimeout as pause } from 'node:timers/promises';
import type { ConvokeError } from '@convoke/sdk';
import type { Caller } from '../caller.ts';

/** Says when a meeting may have a new message. It follows the live feed, and holds no message. */
export class MeetingNews {
  #has_news = false;
  #failure: unknown = null;
  #wake = (): void => {};
  readonly #signal: AbortSignal;

  private constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /**
   * Resolves when the feed is open.
   *
   * @throws ConvokeError when the feed cannot be opened now; the client of the stream gets the error and asks again
   */
  static async follow({ client }: Caller, meeting_id: string, signal: AbortSignal): Promise<MeetingNews> {
    const news = new MeetingNews(signal);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    let is_open = false;
    const follow = async (): Promise<void> => {
      const events = client.events(
        { meeting_id },
        {
          signal,
          onConnection(state, error) {
            if (state === 'connected') {
              is_open = true;
              resolve();
            } else if (!is_open || isFinal(error)) {
              reject(error);
              news.#fail(error);
            }
            // Messages may have been sent while the feed was closed.
            news.#ring();
          },
        },
      );
      for await (const { name } of events) {
        // Each message has many other events, and each ring reads the meeting.
        if (name === 'message.accepted' || name === 'gap') news.#ring();
      }
      resolve();
    };
    follow().catch((error: unknown) => {
      reject(error);
      news.#fail(error);
    });
    await promise;
    return news;
  }

  /** Forgets the news so far: from now on only later news counts. */
  reset(): void {
    this.#has_news = false;
  }

  /**
   * Waits for news, at most this long. Resolves to false when there was none.
   *
   * @throws the failure that ended the feed
   */
  async wait(ms: number): Promise<boolean> {
    if (!this.#has_news && this.#failure === null && !this.#signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      const over = new AbortController();
      const late = pause(ms, undefined, { signal: AbortSignal.any([this.#signal, over.signal]) }).catch(() => {});
      await Promise.race([promise, late]);
      over.abort();
    }
    this.assertOpen();
    return this.#has_news || this.#signal.aborted;
  }

  /** @throws the failure that ended the feed: the rights of the client may have ended */
  assertOpen(): void {
    if (this.#failure !== null) throw this.#failure;
  }

  #ring(): void {
    this.#has_news = true;
    this.#wake();
  }

  #fail(failure: unknown): void {
    this.#failure ??= failure;
    this.#ring();
  }
}

/**
 * Whether the feed has ended for good: the service said why, and another feed would not help. `overloaded` is such an
 * end too, because another key has the place of the feed now. A stream must end when it loses its place: otherwise
 * nothing would limit the number of streams.
 */
function isFinal(error: ConvokeError | null): error is ConvokeError {
  if (error === null || error.code === 'overloaded') return error !== null;
  return error.status === null && error.code !== 'unreachable' && error.code !== 'timeout';
}
