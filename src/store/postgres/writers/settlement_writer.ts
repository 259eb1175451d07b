import { fullAttemptsText } from '../../../domain/attempts_text.ts';
import type { IdCodec } from '../../../domain/id.ts';
import type { DeliverySettlement, HealthSettlement, LockedRows } from '../../contract/deliveries.ts';
import { type BatchValue, bigints, smallints, texts } from '../connection/batch_message.ts';
import { type Connection, isLockTimeout } from '../connection/connection.ts';
import { DedicatedConnection } from '../connection/dedicated_connection.ts';
import { withRetry } from '../connection/retry.ts';

const ANSWER_MS_MAX = 10_000;

const SETTLE = `SELECT settle_deliveries_4(${Array.from({ length: 23 }, (_, i) => `$${i + 1}`).join(', ')})`;

/** How long a batch waits for a row that another session has locked. Then the batch is written without this row. */
const LOCK_TIMEOUT = '1s';
/** How often a batch is tried in all. A try fails when others have locked more of its rows meanwhile. */
const TRIES_MAX = 3;

/** Rows of $1 that a settlement would have to wait for. Takes the locks of the others, only for this statement. */
const lockedRows = (table: string, key: string, columns: string): string => `
  WITH free AS MATERIALIZED (SELECT ${key} FROM ${table} WHERE ${key} = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED)
  SELECT ${columns} FROM ${table} d LEFT JOIN free USING (${key}) WHERE ${key} = ANY ($1) AND free.${key} IS NULL`;
const LOCKED_DELIVERIES = lockedRows('deliveries', 'delivery_no', 'delivery_no, d.instance_id');
const LOCKED_INSTANCES = lockedRows('instances', 'instance_id', 'instance_id');

/**
 * Writes the results of attempts, one batch at a time. When the result of a batch is lost, the batch is sent again:
 * writing it twice changes nothing.
 *
 * A person may lock a row for long, such as by SELECT … FOR UPDATE in psql. The batch is then written without this row,
 * and so are the next batches: before each of them the writer looks whether the row is still locked.
 */
export class SettlementWriter {
  readonly #connection: DedicatedConnection;
  readonly #ids: IdCodec;
  /** The ids of the rows that were locked when the last batch was written. */
  #known_locked: ReadonlySet<string> = new Set();
  readonly #nodes: { readonly readsShortAttempts: boolean };

  /** @param nodes says whether every node reads attempts in their short form */
  constructor(url: string, ids: IdCodec, nodes: { readonly readsShortAttempts: boolean }) {
    this.#nodes = nodes;
    this.#connection = new DedicatedConnection(url, `SET lock_timeout = '${LOCK_TIMEOUT}';`);
    this.#ids = ids;
  }

  /**
   * @returns what is not written, because others have locked the rows; null when everything is written
   * @throws StoreError when the database was unreachable for too long, or a whole table is locked
   */
  async settle(deliveries: DeliverySettlement[], healths: HealthSettlement[]): Promise<LockedRows | null> {
    const latest = inOneStep(deliveries);
    return withRetry(() => this.#connection.use((connection) => this.#settleOn(connection, latest, healths)));
  }

  async #settleOn(
    connection: Connection,
    deliveries: DeliverySettlement[],
    healths: HealthSettlement[],
  ): Promise<LockedRows | null> {
    const known = this.#known_locked;
    let locked = await this.#lockedAmong(
      connection,
      deliveries.filter(({ delivery_id }) => known.has(delivery_id)),
      healths.filter(({ instance_id }) => known.has(instance_id)),
    );
    for (let tries = 1; ; tries++) {
      const ids = new Set([...locked.deliveries.map(({ delivery_id }) => delivery_id), ...locked.instance_ids]);
      this.#known_locked = ids;
      const columns = [
        ...deliveryColumns(
          deliveries.filter(({ delivery_id }) => !ids.has(delivery_id)),
          this.#ids,
          this.#nodes.readsShortAttempts,
        ),
        ...healthColumns(healths.filter(({ instance_id }) => !ids.has(instance_id))),
      ];
      try {
        await connection.batch(SETTLE, columns, ANSWER_MS_MAX);
        return ids.size === 0 ? null : locked;
      } catch (error) {
        if (!isLockTimeout(error) || tries === TRIES_MAX) throw error;
      }
      locked = await this.#lockedAmong(connection, deliveries, healths);
    }
  }

  async #lockedAmong(
    connection: Connection,
    deliveries: DeliverySettlement[],
    healths: HealthSettlement[],
  ): Promise<LockedRows> {
    const locked: LockedRows = { deliveries: [], instance_ids: [] };
    if (deliveries.length > 0) {
      const { rows } = await connection.batch<{ delivery_no: number; instance_id: string }>(
        LOCKED_DELIVERIES,
        [bigints(deliveries.map(({ delivery_id }) => this.#ids.decode('dlv', delivery_id) ?? 0))],
        ANSWER_MS_MAX,
      );
      for (const { delivery_no, instance_id } of rows) {
        locked.deliveries.push({ delivery_id: this.#ids.encode('dlv', delivery_no), instance_id });
      }
    }
    if (healths.length > 0) {
      const { rows } = await connection.batch<{ instance_id: string }>(
        LOCKED_INSTANCES,
        [texts(healths.map(({ instance_id }) => instance_id))],
        ANSWER_MS_MAX,
      );
      locked.instance_ids = rows.map(({ instance_id }) => instance_id);
    }
    return locked;
  }

  close(): Promise<void> {
    return this.#connection.close();
  }
}

/**
 * Keeps one settlement of each delivery: the first that ends the delivery, otherwise the last. With several values for
 * a row in one statement, PostgreSQL would write any of them. A settlement after the end of a delivery never has an
 * effect.
 */
function inOneStep(deliveries: DeliverySettlement[]): DeliverySettlement[] {
  const last = new Map<string, DeliverySettlement>();
  for (const settlement of deliveries) {
    const key = `${settlement.delivery_id} ${settlement.expires_at} ${settlement.epoch}`;
    const previous = last.get(key);
    if (previous === undefined || previous.state === 'pending') last.set(key, settlement);
  }
  return last.size === deliveries.length ? deliveries : [...last.values()];
}

function deliveryColumns(deliveries: DeliverySettlement[], ids: IdCodec, is_short: boolean): BatchValue[] {
  return [
    bigints(deliveries.map(({ delivery_id }) => ids.decode('dlv', delivery_id) ?? 0)),
    bigints(deliveries.map(({ expires_at }) => expires_at)),
    bigints(deliveries.map(({ epoch }) => epoch)),
    texts(deliveries.map(({ state }) => state)),
    texts(deliveries.map(({ reason }) => reason)),
    bigints(deliveries.map(({ attempt_count }) => counted(attempt_count))),
    bigints(deliveries.map(({ answered_badly }) => counted(answered_badly))),
    texts(deliveries.map(({ attempts }) => (is_short ? attempts : fullAttemptsText(attempts)))),
    bigints(deliveries.map(({ next_attempt_at }) => next_attempt_at)),
    smallints(deliveries.map(({ aside }) => (aside ? 1 : 0))),
    bigints(deliveries.map(({ settled_at }) => settled_at)),
  ];
}

/**
 * Bounds a count. The count of a damaged row plus one may be no safe integer, and such a number would stop all
 * settlements of the node.
 */
function counted(count: number): number {
  return Math.min(count, Number.MAX_SAFE_INTEGER);
}

function healthColumns(healths: HealthSettlement[]): BatchValue[] {
  const last = new Map(
    healths.map((health) => [`${health.instance_id}\n${health.webhook_url}\n${health.epoch}`, health]),
  );
  // All nodes lock instances in the same order.
  const sorted = [...last.values()].toSorted((a, b) => (a.instance_id < b.instance_id ? -1 : 1));
  const gone = healths.filter(({ gone_as_of }) => gone_as_of !== null);
  return [
    texts(sorted.map(({ instance_id }) => instance_id)),
    texts(sorted.map(({ webhook_url }) => webhook_url)),
    bigints(sorted.map(({ epoch }) => epoch)),
    bigints(sorted.map(({ consecutive_failures }) => counted(consecutive_failures))),
    bigints(sorted.map(({ health_since }) => health_since)),
    bigints(sorted.map(({ last_success_at }) => last_success_at)),
    texts(sorted.map(({ last_failure }) => (last_failure === null ? null : JSON.stringify(last_failure)))),
    bigints(sorted.map(({ backoff_step }) => counted(backoff_step))),
    bigints(sorted.map(({ backoff_until }) => backoff_until)),
    texts(gone.map(({ instance_id }) => instance_id)),
    bigints(gone.map(({ epoch }) => epoch)),
    bigints(gone.map(({ gone_as_of }) => gone_as_of)),
  ];
}
