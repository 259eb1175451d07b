import type { ServerResponse } from 'node:http';

/** The bytes of its streams that the clients of one key have not taken. With more, all streams of the key wait. */
const KEY_BYTES_MAX = 16 << 20;

/**
 * Says when a stream may write more. A client that does not read stops its own stream, and many of them stop the other
 * streams of their key, until the limit for slow readers cuts them off (`READ_LIMITS`).
 */
export class StreamRoom {
  /** The streams of each key that have written more than their clients take. */
  readonly #full = new Map<string, Set<ServerResponse>>();

  /** Resolves when the client of a stream and those of its key have room, or the stream has ended. */
  async wait(key: string, response: ServerResponse): Promise<void> {
    while (!response.destroyed) {
      const full = this.#full.get(key);
      if (response.writableNeedDrain) await this.#drained(key, response);
      else if (full !== undefined && bytesOf(full) > KEY_BYTES_MAX) await nextChange([response, ...full]);
      else return;
    }
  }

  /** Counts a stream until its client has read. */
  async #drained(key: string, response: ServerResponse): Promise<void> {
    const full = this.#full.get(key) ?? new Set();
    this.#full.set(key, full.add(response));
    await nextChange([response]);
    if (full.delete(response) && full.size === 0) this.#full.delete(key);
  }
}

function bytesOf(responses: Iterable<ServerResponse>): number {
  let bytes = 0;
  for (const { writableLength } of responses) bytes += writableLength;
  return bytes;
}

/** Resolves when one of these responses has room again, or is closed. */
async function nextChange(responses: readonly ServerResponse[]): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = (): void => {
      for (const response of responses) response.off('drain', done).off('close', done);
      resolve();
    };
    for (const response of responses) response.on('drain', done).on('close', done);
  });
}
