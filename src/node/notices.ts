/**
 * Notices for operators. Each notice is sent as a message to a meeting that the operators choose. So it is stored,
 * ordered and delivered like every other message.
 */
import type { Clock, Timer } from '../delivery/clock.ts';
import type { AttemptEvent, SuppressedDelivery, SuppressReason } from '../delivery/observer.ts';
import type { Send } from '../delivery/accept/acceptor.ts';
import { isCatchUpReason } from '../domain/catch_up.ts';
import { healthOf } from '../domain/instance.ts';
import { isoTime } from '../domain/time.ts';
import type { LaneKey } from '../store/contract/deliveries.ts';

/** How long notices gather before the first message. */
const GATHER_MS = 1_000;
/** The pause between two messages. Even when everything fails, a node sends no more than six a minute. */
const PAUSE_MS = 10_000;
/** The most notices in one message; the others are counted. */
const NOTICES_MAX = 100;
/** The most instances that are remembered as down. */
const DOWN_MAX = 10_000;
/** The most characters of a reason. */
const REASON_CHARS_MAX = 300;
/** How long a stop waits until the last notices are stored. */
const CLOSE_MS_MAX = 500;

/**
 * The event. `instance_switched_off`: a receiver responded 410. `deliveries_failed`: deliveries failed for good.
 * `loop_guard`: the loop guard stopped deliveries. `store_failed`: a write or a read failed, and Convoke tries it
 * again.
 */
export type NoticeKind =
  'instance_down' | 'instance_up' | 'instance_switched_off' | 'deliveries_failed' | 'loop_guard' | 'store_failed';

/** All events of one kind and reason about one instance or meeting, since the previous message. */
interface Notice {
  kind: NoticeKind;
  instance_id: string | null;
  meeting_id: string | null;
  reason: string | null;
  /** How many events. Each delivery that failed or was stopped is one. */
  count: number;
  /** Milliseconds of the wall clock. */
  first_at: number;
  last_at: number;
}

export interface NoticesParts {
  clock: Clock;
  node_id: string;
  /** The meeting of the notices. */
  meeting_id: string;
  send: (send: Send) => Promise<unknown>;
}

/**
 * Gathers events, and sends them in one message. Events of deliveries in the meeting of the notices are left out, so
 * that no notice causes a notice.
 */
export class Notices {
  readonly #parts: NoticesParts;
  #gathered = new Map<string, Notice>();
  #left_out = 0;
  /**
   * Instances that went down. The health before the next success does not always show that: a registration at another
   * address resets the health.
   */
  readonly #down = new Set<string>();
  #timer: Timer | null = null;
  #sending: Promise<void> | null = null;
  #sent_at = -Infinity;
  #is_closed = false;

  constructor(parts: NoticesParts) {
    this.#parts = parts;
  }

  attempted({ instance_id, meeting_id, state, reason, attempt, health_before, health_after }: AttemptEvent): void {
    const [before, after] = [healthOf(health_before), healthOf(health_after)];
    if (before !== 'down' && after === 'down') {
      if (this.#down.size < DOWN_MAX) this.#down.add(instance_id);
      this.#note('instance_down', { instance_id }, attempt.detail);
    } else if (after === 'up' && (this.#down.delete(instance_id) || before === 'down')) {
      this.#note('instance_up', { instance_id }, null);
    }
    if (reason === 'gone') this.#note('instance_switched_off', { instance_id }, attempt.detail);
    if (state === 'failed') this.failed({ instance_id, meeting_id }, reason ?? '', 1);
  }

  /** Deliveries failed for good. */
  failed({ instance_id, meeting_id }: LaneKey, reason: string, deliveries: number): void {
    if (meeting_id !== this.#parts.meeting_id) this.#note('deliveries_failed', { instance_id }, reason, deliveries);
  }

  suppressed({ meeting_id }: SuppressedDelivery, reason: SuppressReason): void {
    if (isCatchUpReason(reason) || meeting_id === this.#parts.meeting_id) return;
    this.#note('loop_guard', { meeting_id }, reason);
  }

  storageFailed(error: unknown): void {
    this.#note('store_failed', {}, error instanceof Error ? error.message : String(error));
  }

  /** Sends the gathered notices. Waits at most CLOSE_MS_MAX until the store has them. */
  async close(): Promise<void> {
    this.#is_closed = true;
    this.#timer?.cancel();
    const timed_out = Promise.withResolvers<void>();
    const timer = this.#parts.clock.after(CLOSE_MS_MAX, timed_out.resolve);
    await Promise.race([this.#sendRest(), timed_out.promise]);
    timer.cancel();
  }

  /** Also sends the notices that gathered while an earlier message was on its way: after `close` no timer does that. */
  async #sendRest(): Promise<void> {
    await this.#sending;
    await this.#send();
  }

  #note(kind: NoticeKind, about: Partial<LaneKey>, reason: string | null, count = 1): void {
    const { instance_id = null, meeting_id = null } = about;
    const now = this.#parts.clock.wall();
    const shown = reason === null ? null : reason.slice(0, REASON_CHARS_MAX).toWellFormed();
    this.#add({ kind, instance_id, meeting_id, reason: shown, count, first_at: now, last_at: now });
    this.#schedule();
  }

  #add(notice: Notice): void {
    const { kind, instance_id, meeting_id, reason, count, first_at, last_at } = notice;
    const key = [kind, instance_id, meeting_id, reason].join('\n');
    const known = this.#gathered.get(key);
    if (known !== undefined) {
      known.count += count;
      known.first_at = Math.min(known.first_at, first_at);
      known.last_at = Math.max(known.last_at, last_at);
    } else if (this.#gathered.size < NOTICES_MAX) this.#gathered.set(key, notice);
    else this.#left_out += count;
  }

  #schedule(): void {
    if (this.#timer !== null || this.#sending !== null || this.#is_closed) return;
    const { clock } = this.#parts;
    const delay_ms = Math.max(GATHER_MS, this.#sent_at + PAUSE_MS - clock.now());
    this.#timer = clock.after(delay_ms, () => {
      this.#timer = null;
      void this.#send();
    });
  }

  /** While the store fails, the notices are kept, and later notices join them. */
  #send(): Promise<void> {
    if (this.#sending !== null || this.#gathered.size === 0) return this.#sending ?? Promise.resolve();
    const { clock, meeting_id, node_id, send } = this.#parts;
    const [notices, left_out] = [[...this.#gathered.values()], this.#left_out];
    this.#gathered = new Map();
    this.#left_out = 0;
    this.#sent_at = clock.now();
    const message = JSON.stringify({
      text: notices.map(inWords).join('\n') + (left_out === 0 ? '' : `\nand ${left_out} more`),
      node_id,
      notices: notices.map(wireNotice),
      left_out,
    });
    const timestamp = isoTime(clock.wall());
    const none = { target_agents: null, origin: null, trace: null, idempotency: null, expires_in_ms: null };
    this.#sending = send({ meeting_id, message, timestamp, ...none })
      .then(
        () => {},
        () => {
          const since = [...this.#gathered.values()];
          this.#gathered = new Map();
          this.#left_out += left_out;
          for (const notice of [...notices, ...since]) this.#add(notice);
        },
      )
      .then(() => {
        this.#sending = null;
        if (this.#gathered.size > 0) this.#schedule();
      });
    return this.#sending;
  }
}

function wireNotice({ kind, instance_id, meeting_id, reason, count, first_at, last_at }: Notice) {
  return {
    kind,
    ...(instance_id !== null && { instance_id }),
    ...(meeting_id !== null && { meeting_id }),
    ...(reason !== null && { reason }),
    count,
    first_at: isoTime(first_at),
    last_at: isoTime(last_at),
  };
}

function inWords({ kind, instance_id, meeting_id, reason, count }: Notice): string {
  const deliveries = count === 1 ? '1 delivery' : `${count} deliveries`;
  switch (kind) {
    case 'instance_down':
      return `${instance_id} is down: ${reason}`;
    case 'instance_up':
      return `${instance_id} is up again`;
    case 'instance_switched_off':
      return `${instance_id} responded 410, so nothing more is pushed to it`;
    case 'deliveries_failed':
      return `${instance_id}: gave up ${deliveries} (${reason})`;
    case 'loop_guard':
      return `${meeting_id}: the loop guard stopped ${deliveries} (${reason})`;
    case 'store_failed':
      return `The store failed ${count === 1 ? 'once' : `${count} times`}: ${reason}`;
  }
}
