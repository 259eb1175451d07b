import { fullAttemptsText } from '../../../domain/attempts_text.ts';
import type { IdCodec } from '../../../domain/id.ts';
import type { DeliverySettlement, HealthSettlement } from '../../contract/deliveries.ts';
import { type BatchValue, bigints, smallints, texts } from '../connection/batch_message.ts';
import { DedicatedConnection } from '../connection/dedicated_connection.ts';
import { withRetry } from '../connection/retry.ts';

const ANSWER_MS_MAX = 10_000;

const SETTLE = `SELECT settle_deliveries_4(${Array.from({ length: 23 }, (_, i) => `$${i + 1}`).join(', ')})`;

/**
 * Writes the results of attempts, one batch at a time. When the result of a batch is lost, the batch is sent again:
 * writing it twice changes nothing.
 */
export class SettlementWriter {
  readonly #connection: DedicatedConnection;
  readonly #ids: IdCodec;
  readonly #nodes: { readonly readsShortAttempts: boolean };

  /** @param nodes says whether every node reads attempts in their short form */
  constructor(url: string, ids: IdCodec, nodes: { readonly readsShortAttempts: boolean }) {
    this.#nodes = nodes;
    this.#connection = new DedicatedConnection(url);
    this.#ids = ids;
  }

  /** @throws StoreError when the database was unreachable for too long */
  async settle(deliveries: DeliverySettlement[], healths: HealthSettlement[]): Promise<void> {
    const columns = [
      ...deliveryColumns(inOneStep(deliveries), this.#ids, this.#nodes.readsShortAttempts),
      ...healthColumns(healths),
    ];
    await withRetry(() => this.#connection.use((connection) => connection.batch(SETTLE, columns, ANSWER_MS_MAX)));
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
