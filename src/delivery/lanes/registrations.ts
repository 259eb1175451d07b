import { BACKOFF_MAX_MS } from '../../domain/delivery.ts';
import { jittered } from '../../domain/retry_delay.ts';
import type { Instance } from '../../domain/instance.ts';
import { Problem } from '../../domain/problem.ts';
import type { Store } from '../../store/store.ts';
import { StoreError } from '../../store/store_error.ts';
import type { Dispatcher } from '../attempts/dispatcher.ts';
import type { Settlements } from '../attempts/settlements.ts';
import { Batcher } from '../batcher.ts';
import type { Clock } from '../clock.ts';
import type { TimerQueue } from '../timer_queue.ts';
import type { Transport } from '../transport/transport.ts';
import type { Recipient } from './recipient.ts';
import type { RecipientCache } from './recipient_cache.ts';

/** The most rows in one read. Messages that arrive meanwhile wait until the rows are read. */
const BATCH_MAX = 100;
/**
 * When the secrets of an instance cannot be decrypted or are malformed, its row is read again, and logged again, after
 * this time. When the instance gets new secrets, its row is read at once.
 */
const UNREADABLE_RETRY_MS = 60_000;

export interface RegistrationsParts {
  clock: Clock;
  timers: TimerQueue;
  store: Store;
  transport: Transport;
  settlements: Settlements;
  recipients: RecipientCache;
  dispatcher: Dispatcher;
}

/** Reads the rows of instances, and puts them into their recipients. */
export class Registrations {
  readonly #clock: Clock;
  readonly #timers: TimerQueue;
  readonly #store: Store;
  readonly #transport: Transport;
  readonly #settlements: Settlements;
  readonly #recipients: RecipientCache;
  readonly #dispatcher: Dispatcher;
  /** Reads of instances without a backlog. They do not wait for reads of instances with a backlog. */
  readonly #first_reads: Batcher<string, Instance | StoreError | null>;
  readonly #reads: Batcher<string, Instance | StoreError | null>;

  constructor({ clock, timers, store, transport, settlements, recipients, dispatcher }: RegistrationsParts) {
    this.#clock = clock;
    this.#timers = timers;
    this.#store = store;
    this.#transport = transport;
    this.#settlements = settlements;
    this.#recipients = recipients;
    this.#dispatcher = dispatcher;
    this.#first_reads = this.#batchedReads();
    this.#reads = this.#batchedReads();
  }

  #batchedReads(): Batcher<string, Instance | StoreError | null> {
    return new Batcher(
      this.#clock,
      { items_max: () => BATCH_MAX, weight_max: Infinity, in_flight_max: 2 },
      (instance_ids) => this.#read(instance_ids),
    );
  }

  /**
   * Reads the row, unless a read is in flight or the instance is paused. Afterwards it offers the recipient to the
   * dispatcher again.
   */
  load(recipient: Recipient): void {
    const { registration, instance_id } = recipient;
    if (registration.reading !== 'none') return;
    registration.reading = 'in_flight';
    const { version, health, may_need_reset, gone_as_of } = registration;
    // The results of attempts are written first. Only a row that is read afterwards shows whether somebody has reset
    // the back-off or switched the instance on since.
    const written = may_need_reset || gone_as_of !== null ? this.#settlements.flush(instance_id) : Promise.resolve();
    const reads = recipient.goes_first ? this.#first_reads : this.#reads;
    void written
      .then(() => reads.add(instance_id, 1))
      .then(
        (row) => {
          registration.reading = 'none';
          // This row no longer counts: since the request for it, a newer row was taken over, or the registration was
          // invalidated.
          if (registration.isCurrent || recipient.dropped || registration.version !== version) {
            this.#dispatcher.offer(recipient);
            return;
          }
          registration.may_need_reset = false;
          if (row === null) this.#drop(recipient);
          else if (row instanceof StoreError) this.#pause(recipient, row);
          else if (this.#takeOver(recipient, row)) {
            if (may_need_reset && registration.health === health && row.backoff_step === 0) {
              this.resetBackoff(recipient);
            }
            this.wakeAfterBackoff(recipient);
            this.#dispatcher.offer(recipient);
          }
          this.#dispatcher.run();
        },
        (error: unknown) => {
          registration.reading = 'none';
          this.#dispatcher.retryLater(error, () => this.#dispatcher.offer(recipient));
        },
      );
  }

  /**
   * The row of an instance as the store has it now; null when the instance does not exist, an error when its secrets
   * cannot be decrypted. Memory may have an older row.
   */
  read(instance_id: string): Promise<Instance | StoreError | null> {
    return this.#first_reads.add(instance_id, 1);
  }

  /** Takes over a newer row, which counts at once. */
  take(recipient: Recipient, row: Instance, resets_backoff: boolean): void {
    this.#replace(recipient, row);
    if (resets_backoff) this.resetBackoff(recipient);
    this.wakeAfterBackoff(recipient);
    this.#dispatcher.offer(recipient);
  }

  /** The instance was deleted, and its deliveries are cancelled in the table. */
  #drop(recipient: Recipient): void {
    this.#transport.forget(recipient.instance_id);
    this.#recipients.drop(recipient);
  }

  /** Ends the back-off, on disk too. */
  resetBackoff(recipient: Recipient): void {
    const { registration } = recipient;
    const { health } = registration;
    recipient.resetBackoff(this.#clock.now());
    if (registration.health !== health) this.#settlements.markDirty(recipient);
  }

  /** Offers the recipient to the dispatcher when its back-off ends. */
  wakeAfterBackoff(recipient: Recipient): void {
    const { backoff_until } = recipient.registration.health;
    if (backoff_until === null) return;
    this.#timers.schedule(backoff_until, () => {
      this.#dispatcher.wake(recipient);
    });
  }

  /**
   * Takes over a row that was read. When a secret in the row is malformed, nothing can sign a push. Then this method
   * pauses the instance and returns false. Every registration checks its secret, so another program has written such a
   * row.
   */
  #takeOver(recipient: Recipient, row: Instance): boolean {
    try {
      this.#replace(recipient, row);
      return true;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      const { instance_id } = row;
      const text = `webhook_secret of ${JSON.stringify(instance_id)} in instances is malformed: register the instance with a new one`;
      this.#pause(recipient, new StoreError('SECRET_UNREADABLE', text));
      return false;
    }
  }

  #replace(recipient: Recipient, row: Instance): void {
    const { target } = recipient.registration;
    const is_elsewhere = target !== null && (target.url !== row.webhook_url || target.transport !== row.transport);
    if (is_elsewhere) this.#transport.forget(row.instance_id);
    recipient.replace(this.#withinBackoff(row), this.#clock.now());
  }

  #withinBackoff(row: Instance): Instance {
    if (row.backoff_until === null) return row;
    // An earlier process may have blocked the push under another policy. The next attempt need not wait: if the current
    // policy blocks the push too, the attempt opens no socket.
    if (row.last_failure?.outcome === 'blocked') return { ...row, backoff_until: null };
    return { ...row, backoff_until: Math.min(row.backoff_until, this.#clock.now() + jittered(BACKOFF_MAX_MS, 1)) };
  }

  /**
   * The secrets of the instance cannot be decrypted or are malformed. Its row is read again after a change or a pause,
   * and not for each accepted message. Until then no push is made, because the earlier row in memory may have the
   * target of another owner.
   */
  #pause(recipient: Recipient, error: StoreError): void {
    const { registration } = recipient;
    const { version } = registration;
    registration.reading = 'paused';
    this.#dispatcher.endTurn(recipient);
    this.#dispatcher.offer(recipient);
    const again = (): void => {
      if (registration.reading !== 'paused' || registration.version !== version) return;
      registration.reading = 'none';
      this.#dispatcher.offer(recipient);
    };
    this.#dispatcher.retryLater(error, again, UNREADABLE_RETRY_MS);
  }

  /**
   * The row of each instance; null when the instance does not exist. When its secrets cannot be decrypted, the result
   * is an error. This method does not throw the error, so that one damaged row does not stop the pushes to other
   * instances.
   */
  async #read(instance_ids: string[]): Promise<(Instance | StoreError | null)[]> {
    try {
      const found = new Map((await this.#store.instances.load(instance_ids)).map((i) => [i.instance_id, i]));
      return instance_ids.map((instance_id) => found.get(instance_id) ?? null);
    } catch (error) {
      if (!(error instanceof StoreError) || error.code !== 'SECRET_UNREADABLE') throw error;
      if (instance_ids.length > 1) {
        return (await Promise.all(instance_ids.map((instance_id) => this.#read([instance_id])))).flat();
      }
      return [error];
    }
  }
}
