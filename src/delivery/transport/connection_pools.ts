/**
 * The connections that are kept between pushes. Each instance has its own: a connection is never shared between
 * instances.
 */
import type { Socket } from 'node:net';
import type { EgressPolicy } from '../../domain/address.ts';
import { isRefusal, parseWebhookUrl, type WebhookTarget } from '../../domain/webhook_url.ts';
import { IdleConnections } from './idle_connections.ts';
import { PooledConnection } from './pooled_connection.ts';

/** All pools. Together they limit how many unused connections stay open. */
export class ConnectionPools {
  readonly #policy: EgressPolicy;
  readonly #pools = new Map<string, InstancePool>();
  /** Every open connection, with its pool; null for a connection that serves a single push. */
  readonly #open = new Map<PooledConnection, InstancePool | null>();
  readonly #idle: IdleConnections;

  /** @param idle_max how many unused connections are kept at most, over all instances */
  constructor(policy: EgressPolicy, idle_max: number) {
    this.#policy = policy;
    this.#idle = new IdleConnections(idle_max);
  }

  get counts(): { connections: number; idle_connections: number; instances: number } {
    return { connections: this.#open.size, idle_connections: this.#idle.size, instances: this.#pools.size };
  }

  /**
   * Returns the pool of an instance. For a URL of another origin, this method makes a new pool and closes the unused
   * connections of the old pool. For a refused URL, it returns the reason as a text.
   */
  of(instance_id: string, url: string): InstancePool | string {
    const known = this.#pools.get(instance_id);
    if (known !== undefined && known.target.url === url) return known;
    const target = parseWebhookUrl(url, this.#policy);
    if (isRefusal(target)) return `webhook_url ${target.message}`;
    if (known !== undefined && known.target.origin === target.origin) {
      known.target = target;
      return known;
    }
    known?.close();
    const pool = new InstancePool(target, this.#idle, () => this.#pools.delete(instance_id));
    this.#pools.set(instance_id, pool);
    return pool;
  }

  /** @param pool the pool that will keep the connection; null for a connection that serves a single push */
  open(origin: string, socket: Socket, pool: InstancePool | null): PooledConnection {
    const connection = new PooledConnection(origin, socket, () => {
      this.#open.delete(connection);
      pool?.drop(connection);
    });
    this.#open.set(connection, pool);
    return connection;
  }

  /**
   * Keeps a connection for the next push to its instance. When there is no room, this connection or another closes: see
   * `whichCloses`.
   */
  keep(connection: PooledConnection, pool: InstancePool): void {
    while (!this.#idle.hasRoomFor(connection)) {
      const closing = this.#idle.whichCloses(connection);
      closing.socket.destroy();
      if (closing === connection) return;
      this.#open.get(closing)?.drop(closing);
    }
    pool.add(connection);
  }

  /** Closes the unused connections of an instance. Connections in use close after their push. */
  forget(instance_id: string): void {
    const pool = this.#pools.get(instance_id);
    if (pool === undefined) return;
    this.#pools.delete(instance_id);
    pool.close();
  }

  /** Resolves when every socket has closed. */
  async close(): Promise<void> {
    for (const instance_id of this.#pools.keys()) this.forget(instance_id);
    const sockets = Array.from(this.#open.keys(), ({ socket }) => socket);
    await Promise.all(sockets.map((socket) => new Promise((closed) => socket.once('close', closed).destroy())));
  }
}

/**
 * The connections of one instance. The pool exists only while it has a push or a connection, so that an idle instance
 * costs nothing.
 */
export class InstancePool {
  target: WebhookTarget;
  /** Pushes in flight. */
  pushes = 0;
  is_closed = false;
  /** The last connection that was kept is used first, so that surplus connections stay unused and are closed. */
  readonly #idle: PooledConnection[] = [];
  readonly #idle_of_all: IdleConnections;
  readonly #onUnused: () => void;

  constructor(target: WebhookTarget, idle_of_all: IdleConnections, onUnused: () => void) {
    this.target = target;
    this.#idle_of_all = idle_of_all;
    this.#onUnused = onUnused;
  }

  /** An unused connection that is still open; null when there is none. */
  take(): PooledConnection | null {
    for (;;) {
      const connection = this.#idle.pop();
      if (connection === undefined) return null;
      this.#idle_of_all.delete(connection);
      if (!connection.socket.destroyed) return connection;
    }
  }

  add(connection: PooledConnection): void {
    this.#idle.push(connection);
    this.#idle_of_all.add(connection);
  }

  /** Removes a closed connection from the list. */
  drop(connection: PooledConnection): void {
    if (!this.#idle_of_all.delete(connection)) return;
    const index = this.#idle.indexOf(connection);
    if (index !== -1) this.#idle.splice(index, 1);
    this.disposeIfUnused();
  }

  close(): void {
    this.is_closed = true;
    for (const connection of this.#idle.splice(0)) {
      this.#idle_of_all.delete(connection);
      connection.socket.destroy();
    }
  }

  disposeIfUnused(): void {
    if (this.pushes > 0 || this.#idle.length > 0 || this.is_closed) return;
    this.is_closed = true;
    this.#onUnused();
  }
}
