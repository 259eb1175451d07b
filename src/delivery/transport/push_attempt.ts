import type { Socket } from 'node:net';
import type { Dispatcher } from 'undici';
import type { EgressPolicy } from '../../domain/address.ts';
import { type Outcome, outcomeOfStatus } from '../../domain/outcome.ts';
import { isRefusal, parseWebhookUrl, type WebhookTarget } from '../../domain/webhook_url.ts';
import type { PooledConnection } from './pooled_connection.ts';
import type { ConnectionPools, InstancePool } from './connection_pools.ts';
import { ConnectAttempt, type ConnectionObserver, type ConnectorOptions } from './connector.ts';
import { DeadlineEntry, type Deadlines } from './deadlines.ts';
import { describeBroken, describeStatus, describeTimeout } from './failures.ts';
import {
  INTERIM_RESPONSES_MAX,
  type KeptBodies,
  RAW_BYTES_OF_BODY,
  RESPONSE_BYTES_MAX,
  ResponseBody,
} from './response.ts';
import type { Push, PushResult, Stage, StageReport } from './transport.ts';

/**
 * When a kept connection breaks within this time after the request, the receiver has closed the connection as unused:
 * such a break comes within a round trip. A later break comes while an agent thinks, for example from a proxy after 60
 * s. If the push were made again then, the agent would run twice.
 */
const CLOSED_UNUSED_MS = 1_000;

/** The parts that all pushes of a transport share. */
export interface PushContext {
  readonly policy: EgressPolicy;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  readonly deadline_ms: number;
  readonly deadlines: Deadlines;
  /** Pushes with a deadline of their own. */
  readonly own_deadlines: Set<PushAttempt>;
  readonly connector: ConnectorOptions;
  readonly pools: ConnectionPools;
  readonly kept_bodies: KeptBodies;
  /**
   * The room for bodies that may be longer than RESPONSE_BYTES_MAX. In one common room, a few long bodies would leave
   * no room for short ones.
   */
  readonly kept_long_bodies: KeptBodies;
  readonly is_closed: boolean;
}

/** One push from the call to its result: the handler of undici and the observer of the connector in one object. */
export class PushAttempt extends DeadlineEntry implements Dispatcher.DispatchHandler, ConnectionObserver {
  readonly #context: PushContext;
  readonly #push: Push;
  readonly #resolve: (result: PushResult | null) => void;
  readonly timeout_ms: number;
  /** The timer of a push with a deadline of its own; null when the deadline is in the list `deadlines`. */
  #timer: NodeJS.Timeout | null = null;
  #target: WebhookTarget | null = null;
  #pool: InstancePool | null = null;
  #connect_attempt: ConnectAttempt | null = null;
  #connection: PooledConnection | null = null;
  #settled = false;
  #sent_again = false;

  #stages: StageReport[] = [];
  #stage: Stage | null = null;
  #stage_at_ms = 0;

  #interim_responses = 0;
  #status_code: number | null = null;
  #retry_after: string | null = null;
  #body: ResponseBody | null = null;
  #late: string | null = null;

  /** @param resolve gets null only when the push is given up */
  constructor(
    context: PushContext,
    push: Push,
    resolve: (result: PushResult | null) => void,
    timeout_ms = context.deadline_ms,
  ) {
    super();
    this.#context = context;
    this.#push = push;
    this.timeout_ms = timeout_ms;
    this.#resolve = resolve;
  }

  start(): void {
    const { instance_id, url, fresh_connection = false } = this.#push;
    const context = this.#context;
    this.#startDeadline();
    if (context.is_closed) return this.#settle('unreachable', 'the service is stopping');
    if (fresh_connection) {
      const target = parseWebhookUrl(url, context.policy);
      if (isRefusal(target)) return this.#settle('blocked', `webhook_url ${target.message}`);
      this.#target = target;
      return this.#connect(this.timeout_ms);
    }
    const pool = context.pools.of(instance_id, url);
    if (typeof pool === 'string') return this.#settle('blocked', pool);
    this.#pool = pool;
    this.#target = pool.target;
    pool.pushes += 1;
    const kept = pool.take();
    if (kept === null) return this.#connect(this.timeout_ms);
    this.#send(kept, this.started_at_ms);
  }

  get instance_id(): string {
    return this.#push.instance_id;
  }

  /**
   * Starts the deadline. Few pushes have another deadline than `deadline_ms`, and each of these has a timer of its own.
   */
  #startDeadline(): void {
    const context = this.#context;
    if (this.timeout_ms === context.deadline_ms) return context.deadlines.add(this, context.now());
    this.started_at_ms = context.now();
    context.own_deadlines.add(this);
    this.#timer = setTimeout(() => setImmediate(() => this.expire()), this.timeout_ms).unref();
  }

  #endDeadline(): void {
    if (this.#timer === null) return this.#context.deadlines.remove(this);
    clearTimeout(this.#timer);
    this.#context.own_deadlines.delete(this);
  }

  /** Ends the push without a result, because another node takes over, the process ends, or nobody waits for it. */
  giveUp(): void {
    this.#settle('timeout', '', false, true);
  }

  /** Connecting has a deadline of its own, which is short even when an agent may think for long. */
  #connect(timeout_ms: number): void {
    this.#connect_attempt = new ConnectAttempt(this.#target!, this.#context.connector, this);
    this.#connect_attempt.start(Math.min(timeout_ms, this.#context.deadline_ms));
  }

  #send(connection: PooledConnection, now_ms: number): void {
    this.#connection = connection;
    this.#stage = 'request';
    this.#stage_at_ms = now_ms;
    const { headers, body, body_bytes_max } = this.#push;
    connection.send(
      {
        path: this.#target!.path,
        method: this.#push.method ?? 'POST',
        headers,
        body: body.byteLength === 0 ? null : body,
        ...(this.#pool === null && { reset: true }),
      },
      this,
      RAW_BYTES_OF_BODY * (body_bytes_max ?? RESPONSE_BYTES_MAX),
    );
  }

  // ── called by the connector ──

  beginStage(stage: Stage): void {
    this.#stage = stage;
    this.#stage_at_ms = this.#context.now();
  }

  endStage(ok: boolean, detail: string): void {
    if (this.#stage === null) return;
    const now_ms = this.#context.now();
    this.#stages.push({ stage: this.#stage, ok, duration_ms: elapsed(this.#stage_at_ms, now_ms), detail });
    this.#stage = null;
  }

  onConnected(socket: Socket): void {
    this.#connect_attempt = null;
    this.#send(this.#context.pools.open(this.#target!.origin, socket, this.#pool), this.#context.now());
  }

  onConnectFailed(outcome: Outcome, detail: string): void {
    this.#connect_attempt = null;
    this.#settle(outcome, detail);
  }

  // ── called by undici ──

  /**
   * undici writes the request next. After a pause of the process, this code may run before the timer that should have
   * ended the push. Another node may have made the push meanwhile, so this function checks the deadline.
   */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#context.now() - this.started_at_ms < this.timeout_ms) return;
    this.expire();
    controller.abort(new Error('the deadline passed before the request was sent'));
  }

  onRequestSent(): void {
    if (this.#settled) return;
    const { writableLength: unsent_bytes } = this.#connection!.socket;
    this.endStage(true, unsent_bytes === 0 ? '' : `${unsent_bytes} bytes wait for the receiver to read them`);
    this.beginStage('response');
  }

  onResponseStart(_controller: unknown, status_code: number, headers: Record<string, string | string[] | undefined>) {
    if (this.#settled) return;
    if (status_code < 200) return this.#onInterimResponse(status_code);
    this.#status_code = status_code;
    this.#connection!.head_expected = false;
    const retry_after = headers['retry-after'];
    if (retry_after !== undefined) this.#retry_after = typeof retry_after === 'string' ? retry_after : retry_after[0]!;
  }

  onResponseData(_controller: unknown, chunk: Buffer): void {
    if (this.#settled) return;
    this.#body ??= new ResponseBody(this.#kept, this.#push.body_bytes_max);
    this.#body.add(chunk);
    if (this.#body.isTooLong) this.#settleByStatus(false);
  }

  /** Where the body is kept; null when only its beginning is wanted. */
  get #kept(): KeptBodies | null {
    const { keeps_body, body_bytes_max } = this.#push;
    if (keeps_body !== true) return null;
    return body_bytes_max === undefined ? this.#context.kept_bodies : this.#context.kept_long_bodies;
  }

  onResponseEnd(): void {
    this.#settleByStatus(true);
  }

  onResponseError(_controller: unknown, error: NodeJS.ErrnoException): void {
    if (this.#settled) return;
    if (this.#status_code !== null) return this.#settleByStatus(false);
    const { socket, uses, has_responded } = this.#connection!;
    const is_soon = this.#context.now() - this.#stage_at_ms <= CLOSED_UNUSED_MS;
    if (uses > 0 && socket.destroyed && !has_responded && is_soon && !this.#sent_again) return this.#sendAgain();
    if (error.code === 'UND_ERR_INVALID_ARG' || error.code === 'UND_ERR_NOT_SUPPORTED') {
      return this.#settle('unreachable', 'the request could not be made: one of its headers is not valid HTTP');
    }
    this.#settle('broken_response', describeBroken(error, has_responded));
  }

  /** Called at the deadline: the attempt ends. */
  expire(): void {
    if (this.#settled) return;
    const when = this.#context.is_closed ? 'before the service stopped' : `within ${inSeconds(this.timeout_ms)}`;
    if (this.#status_code !== null) return this.#settleByStatus(false, when);
    const is_unread = (this.#connection?.socket.writableLength ?? 0) > 0;
    const { outcome, detail } = describeTimeout(this.#stage, when, is_unread);
    this.#settle(outcome, detail);
  }

  #onInterimResponse(status_code: number): void {
    if (status_code === 101) {
      this.#settle('broken_response', 'answered 101, a change of protocol that nobody asked for');
    } else if (++this.#interim_responses > INTERIM_RESPONSES_MAX) {
      this.#settle('broken_response', `answered with over ${INTERIM_RESPONSES_MAX} interim responses (1xx)`);
    }
  }

  /**
   * The receiver closed a kept connection just when the push used it, before a response began. The receiver has
   * probably not seen the push, so the push is made again. A receiver that has seen it recognizes the id of the
   * delivery.
   */
  #sendAgain(): void {
    this.#sent_again = true;
    this.#connection = null;
    this.#stages = [];
    this.#stage = null;
    const { started_at_ms } = this;
    this.#connect(started_at_ms + this.timeout_ms - this.#context.now());
  }

  /**
   * The status line alone decides the outcome, even if the body does not arrive whole.
   *
   * @param late the deadline in words, when it passed before the end of the body
   */
  #settleByStatus(complete: boolean, late: string | null = null): void {
    this.#late = late;
    const status_code = this.#status_code!;
    const outcome = outcomeOfStatus(status_code, this.#push.success_statuses);
    this.#settle(outcome, describeStatus(status_code, outcome), complete);
  }

  #settle(outcome: Outcome, detail: string, complete = false, is_given_up = false): void {
    if (this.#settled) return;
    this.#settled = true;
    const context = this.#context;
    this.#endDeadline();
    this.#connect_attempt?.cancel();
    const ok = outcome === 'ok';
    this.endStage(ok, ok ? `answered ${this.#status_code}` : detail);
    this.#release(complete);
    this.#body?.end();
    if (is_given_up) return this.#resolve(null);
    this.#resolve({
      outcome,
      status_code: this.#status_code,
      detail,
      duration_ms: elapsed(this.started_at_ms, context.now()),
      stages: this.#stages,
      response_excerpt: this.#body === null ? '' : this.#body.excerpt(this.#push.headers, complete),
      retry_after: this.#retry_after,
      ...(ok &&
        this.#push.keeps_body === true && {
          kept_body: (this.#body ?? new ResponseBody(null)).whole(complete, this.#late),
        }),
    });
  }

  /** A connection is kept only after a whole response. After anything else, its state is unknown. */
  #release(complete: boolean): void {
    const connection = this.#connection;
    const pool = this.#pool;
    if (connection !== null) {
      connection.uses += 1;
      if (complete && pool !== null && !pool.is_closed && !connection.socket.destroyed)
        this.#context.pools.keep(connection, pool);
      else connection.socket.destroy();
    }
    if (pool === null) return;
    pool.pushes -= 1;
    pool.disposeIfUnused();
  }
}

/** Rounded to a tenth of a millisecond. */
function elapsed(from_ms: number, to_ms: number): number {
  return Math.round((to_ms - from_ms) * 10) / 10;
}

/** `5 s`, to a tenth of a second; milliseconds for less than a second. */
function inSeconds(ms: number): string {
  const tenths = Math.round(ms / 100);
  return tenths < 10 ? `${ms} ms` : `${tenths / 10} s`;
}
