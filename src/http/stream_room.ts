import type { ServerResponse } from 'node:http';

/**
 * The most bytes that the clients of one key may leave unread in their streams. With more, all streams of the key wait.
 */
const KEY_BYTES_MAX = 16 << 20;
/** The same for the clients of all keys. With more, the slowest client is disconnected. */
const ALL_BYTES_MAX = 32 << 20;

/**
 * The streams of a key that have written more than their clients have read, with the bytes that wait in each; the
 * slowest is first.
 */
class KeyStreams {
  readonly waiting = new Map<ServerResponse, number>();
  bytes = 0;
  /** Resolves when one of them has room again, or is closed. */
  changed = Promise.withResolvers<void>();
}

/**
 * Says when a stream may write more:
 *
 * - A client that does not read stops its own stream.
 * - Many such clients stop all streams of their key, until the limit for slow readers (`READ_LIMITS`) disconnects those
 *   that do not read.
 * - When clients of many keys do not read, this class first disconnects the slowest client of the key with the most
 *   unread bytes.
 *
 * A disconnected client connects again and continues with its cursor.
 */
export class StreamRoom {
  readonly #keys = new Map<string, KeyStreams>();
  #bytes = 0;

  /** Resolves when the client of a stream and the other clients of its key have room, or when the stream has ended. */
  async wait(key: string, response: ServerResponse): Promise<void> {
    while (!response.destroyed) {
      const of_key = this.#keys.get(key);
      if (response.writableNeedDrain) {
        if (of_key?.waiting.has(response) !== true) this.#count(key, response);
        await next(response, 'drain');
      } else if (of_key !== undefined && of_key.bytes > KEY_BYTES_MAX) {
        await next(response, 'close', of_key.changed.promise);
      } else return;
    }
  }

  /**
   * Counts the bytes that wait in a stream, until its client has taken all of them. Until then nothing more is written
   * to the stream.
   */
  #count(key: string, response: ServerResponse): void {
    const of_key = this.#keys.get(key) ?? new KeyStreams();
    const bytes = response.writableLength;
    this.#keys.set(key, of_key);
    of_key.waiting.set(response, bytes);
    of_key.bytes += bytes;
    this.#bytes += bytes;
    void next(response, 'drain').then(() => {
      of_key.waiting.delete(response);
      of_key.bytes -= bytes;
      this.#bytes -= bytes;
      if (of_key.waiting.size === 0) this.#keys.delete(key);
      of_key.changed.resolve();
      of_key.changed = Promise.withResolvers();
    });
    if (this.#bytes > ALL_BYTES_MAX) this.endSlowest();
  }

  /** Finds the key whose clients leave the most bytes unread, and disconnects its slowest client. */
  endSlowest(): void {
    let most: KeyStreams | null = null;
    for (const of_key of this.#keys.values()) if (of_key.bytes > (most?.bytes ?? 0)) most = of_key;
    for (const response of most?.waiting.keys() ?? []) if (!response.destroyed) return void response.destroy();
  }
}

/** Resolves at the next event of this name, when the response is closed, or when `or` resolves. */
function next(response: ServerResponse, name: 'drain' | 'close', or?: Promise<void>): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      response.off(name, go).off('close', go);
      resolve();
    };
    response.on(name, go).on('close', go);
    void or?.then(go);
  });
}
