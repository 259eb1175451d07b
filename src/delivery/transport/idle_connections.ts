import { readFileSync } from 'node:fs';
import { IntrusiveList } from '../intrusive_list.ts';
import type { PooledConnection } from './pooled_connection.ts';

/** The most memory of unused connections: it is enough for 16,384 plain connections, or for 5,041 with TLS. */
const IDLE_BYTES_MAX = 320 << 20;
/**
 * How many unused connections are kept at most when the system does not say how many descriptors this process may have.
 */
const IDLE_MAX_UNKNOWN = 4_096;
/** The descriptors that are left to files, threads and the database. */
const OTHER_DESCRIPTORS = 1_000;
/** Unused connections may always have this share of the descriptors, even if clients and pushes could need all. */
const DESCRIPTORS_SHARE_MIN = 1 / 8;
/**
 * While there is no room, every eighth connection that becomes unused is kept. It takes the place of the connection
 * that has been unused for longest.
 */
const PLACE_TAKEN_EVERY = 8;

/** The most file descriptors that this process may have; null where the system does not say it. */
export function descriptorsMax(): number | null {
  try {
    const soft_limit = /^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1];
    if (soft_limit === 'unlimited') return Infinity;
    return soft_limit === undefined ? null : Number(soft_limit);
  } catch {
    return null;
  }
}

/**
 * How many unused connections may stay open, so that clients, pushes and files have enough descriptors.
 *
 * @param descriptors how many descriptors this process may have; null: not known
 * @param others the most connections of clients and the most pushes in flight, together
 */
export function idleConnectionsMax(descriptors: number | null, others: number): number {
  if (descriptors === null) return IDLE_MAX_UNKNOWN;
  return Math.floor(Math.max(descriptors - others - OTHER_DESCRIPTORS, descriptors * DESCRIPTORS_SHARE_MIN));
}

/** The unused connections of all instances, in the order in which they became unused. */
export class IdleConnections {
  readonly #count_max: number;
  readonly #bytes_max: number;
  readonly #list = new IntrusiveList<PooledConnection>();
  #bytes = 0;
  #without_room = 0;

  constructor(count_max: number, bytes_max = IDLE_BYTES_MAX) {
    this.#count_max = count_max;
    this.#bytes_max = bytes_max;
  }

  get size(): number {
    return this.#list.size;
  }

  add(connection: PooledConnection): void {
    this.#list.add(connection);
    this.#bytes += connection.idle_bytes;
  }

  /** @returns whether the connection was unused */
  delete(connection: PooledConnection): boolean {
    if (!this.#list.delete(connection)) return false;
    this.#bytes -= connection.idle_bytes;
    return true;
  }

  hasRoomFor({ idle_bytes }: PooledConnection): boolean {
    return this.#list.size < this.#count_max && this.#bytes + idle_bytes <= this.#bytes_max;
  }

  /**
   * Returns the connection that closes because there is no room for `just_used`. Mostly that is `just_used` itself.
   *
   * Two simple rules are bad. The first: always close the connection that has been unused for longest. When pushes go
   * in rotation to more instances than there is room for, each connection then closes just before its next push. The
   * second: always close `just_used`. An instance that comes later then keeps no connection as long as the other
   * instances get pushes.
   */
  whichCloses(just_used: PooledConnection): PooledConnection {
    this.#without_room = (this.#without_room + 1) % PLACE_TAKEN_EVERY;
    return this.#without_room === 0 ? (this.#list.first ?? just_used) : just_used;
  }
}
