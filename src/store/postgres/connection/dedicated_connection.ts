import { StoreError } from '../../store_error.ts';
import { BATCH_SESSION, Connection, ConnectionLost } from './connection.ts';

/** A connection for one kind of batch only. A batch opens it when there is none, or when it was lost. */
export class DedicatedConnection {
  readonly #url: string;
  readonly #session: string;
  #connection: Connection | null = null;
  #closed = false;

  /** @param also further settings of its sessions, as SQL */
  constructor(url: string, also = '') {
    this.#url = url;
    this.#session = BATCH_SESSION + also;
  }

  async use<T>(run: (connection: Connection) => Promise<T>): Promise<T> {
    if (this.#closed) throw new StoreError('STORE_CLOSED', 'the store is closed');
    if (this.#connection === null || this.#connection.is_lost) {
      this.#connection = await Connection.open(this.#url, this.#session);
      if (this.#closed) this.#connection.destroy();
    }
    const connection = this.#connection;
    try {
      return await run(connection);
    } catch (error) {
      if (error instanceof ConnectionLost) connection.destroy();
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#connection?.close();
  }
}
