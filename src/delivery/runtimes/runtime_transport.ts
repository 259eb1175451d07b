import { ownBytes } from '../../domain/own_bytes.ts';
import { parseExactly } from '../../domain/exact_json.ts';
import type { Asked, PastMessage, RuntimeRequest } from '../../domain/runtimes/runtime.ts';
import { runtimeOf, type RuntimeSettings, TIMEOUT_S } from '../../domain/runtimes/runtimes.ts';
import { traceHeadersIn } from '../../domain/trace_context.ts';
import { WEBHOOK_URL_BYTES_MAX } from '../../domain/webhook_url.ts';
import type { MessageStore } from '../../store/contract/messages.ts';
import type { Clock } from '../clock.ts';
import { withoutSecrets } from '../transport/push.ts';
import { RESPONSE_EXCERPT_CHARS_MAX } from '../transport/response.ts';
import { mayTakeLong } from '../transport/target.ts';
import { signatureOf } from './signature_of.ts';
import type { Push, PushResult, Transport, Way } from '../transport/transport.ts';
import type { WebhookTransport } from '../transport/webhook_transport.ts';
import { askedOf } from './asked.ts';
import { detailWithoutSecrets } from './detail.ts';
import { type AnswersOfPush, KeptAnswers } from './kept_answers.ts';
import { LongAttempts } from './long_attempts.ts';
import { type Exchanged, exchangedOf } from './exchanged.ts';
import { askRuntime, type RuntimeAnswer } from './ask_runtime.ts';

/** The most characters of the history in one request. */
const HISTORY_CHARS_MAX = 64 << 10;
/** How long a push waits when its history could not be read. After that, the engine repeats the attempt at once. */
const HISTORY_PAUSE_MS = 500;

export interface RuntimeTransportParts {
  clock: Clock;
  webhook: WebhookTransport;
  store: { messages: Pick<MessageStore, 'list'> };
  /** The largest number of long attempts at one instance. */
  instance_concurrency: number;
  /** Called when an instance has room again. */
  onReady: (instance_id: string) => void;
  /** Called when the history could not be read. */
  onError: (error: unknown) => void;
}

/** A push to an instance with a runtime, while it is in flight. */
interface RuntimeAttempt {
  instance_id: string;
  is_given_up: boolean;
  /** Each ends a pause between two requests. Several agents may be asked at a time, each with pauses of its own. */
  readonly wakes: Set<() => void>;
}

/**
 * Pushes in the shape that the runtime of the instance needs. The engine hands over the push of the specification and
 * gets one result, even when the runtime needs several requests.
 */
export class RuntimeTransport implements Transport {
  readonly #parts: RuntimeTransportParts;
  readonly #long: LongAttempts;
  readonly #running = new Set<RuntimeAttempt>();
  readonly #answers = new KeptAnswers();

  constructor(parts: RuntimeTransportParts) {
    this.#parts = parts;
    this.#long = new LongAttempts(parts.clock, parts.instance_concurrency, parts.onReady);
  }

  canPush(instance_id: string, way: Way): boolean {
    return !mayTakeLong(way) || this.#long.hasRoom(instance_id);
  }

  /**
   * Most pushes go to a plain webhook. For such a push, this method returns the promise of the webhook transport
   * itself, without a second promise around it.
   */
  push(push: Push, way: Way): Promise<PushResult | null> {
    return mayTakeLong(way) ? this.#pushLong(push, way) : this.#pushShaped(push, way);
  }

  async #pushLong(push: Push, way: Way): Promise<PushResult | null> {
    this.#long.start(push.instance_id);
    try {
      return await this.#pushShaped(push, way);
    } finally {
      this.#long.end(push.instance_id);
    }
  }

  #pushShaped(push: Push, way: Way): Promise<PushResult | null> {
    const { runtime, timeout_ms } = way;
    const { webhook } = this.#parts;
    if (runtime !== null) return this.#ask(push, runtime, way);
    return timeout_ms === TIMEOUT_S * 1000 ? webhook.push(push) : webhook.pushFor(push, timeout_ms);
  }

  async #ask(push: Push, settings: RuntimeSettings, way: Way): Promise<PushResult | null> {
    const { clock } = this.#parts;
    const started_at = clock.now();
    const running: RuntimeAttempt = { instance_id: push.instance_id, is_given_up: false, wakes: new Set() };
    // `handOver` does not end a short attempt. A short attempt ends soon anyway, and another attempt would again ask
    // agents that have already answered.
    if (mayTakeLong(way)) this.#running.add(running);
    const kept = this.#answers.ofPush();
    try {
      const answer = await this.#askRuntime(push, settings, way, running, kept, started_at + way.timeout_ms);
      if (answer === null) return null;
      const { excerpt, detail, ...result } = answer;
      return {
        ...result,
        detail: detailWithoutSecrets(detail, { ...push.headers, ...way.headers }),
        response_excerpt: withoutSecrets(excerpt, push.headers, excerpt.length === RESPONSE_EXCERPT_CHARS_MAX),
        stages: [],
        duration_ms: clock.now() - started_at,
      };
    } finally {
      this.#running.delete(running);
      kept.release();
    }
  }

  async #askRuntime(
    push: Push,
    { name, options }: RuntimeSettings,
    way: Way,
    running: RuntimeAttempt,
    kept: AnswersOfPush,
    ends_at: number,
  ): Promise<RuntimeAnswer | null> {
    const { clock } = this.#parts;
    const runtime = runtimeOf({ name });
    const asked = askedOf(Buffer.from(push.body).toString(), push.headers, []);
    const history = await this.#historyOf(asked, runtime.historyOf(options));
    if (history === null) await this.#pause(HISTORY_PAUSE_MS, running);
    if (history === null || running.is_given_up) return null;
    return askRuntime({
      runtime,
      options,
      base_url: push.url,
      asked: { ...asked, history },
      attempt: Number(push.headers['convoke-attempt'] ?? 1),
      answered_agents: push.answered_agents ?? [],
      kept,
      exchange: (request, agents) => this.#exchange(push, way, request, agents, running, ends_at),
      pause: async (ms) => {
        if (clock.now() + ms >= ends_at) return false;
        await this.#pause(ms, running);
        return true;
      },
    });
  }

  /**
   * The earlier messages of the meeting.
   *
   * @returns null when the history cannot be read. The attempt then counts as not made.
   */
  async #historyOf({ meeting_id, seq }: Asked, limit: number): Promise<PastMessage[] | null> {
    if (limit === 0) return [];
    try {
      const { messages } = this.#parts.store;
      const page = await messages.list(meeting_id, { before_seq: seq, limit, chars_max: HISTORY_CHARS_MAX });
      return (page?.data ?? []).map(({ seq, origin, target_agents, message }) => ({
        seq,
        from_agent: origin?.from_agent ?? null,
        target_agents,
        message: parseExactly(message) as Record<string, unknown>,
      }));
    } catch (error) {
      this.#parts.onError(error);
      return null;
    }
  }

  async #exchange(
    push: Push,
    way: Way,
    request: RuntimeRequest,
    agents: readonly string[],
    running: RuntimeAttempt,
    ends_at: number,
  ): Promise<Exchanged | null> {
    if (running.is_given_up) return null;
    const { clock, webhook } = this.#parts;
    const timeout_ms = ends_at - clock.now();
    if (timeout_ms <= 0) return { ...NO_TIME_LEFT };
    if (Buffer.byteLength(request.url) > WEBHOOK_URL_BYTES_MAX) return { ...ADDRESS_TOO_LONG };
    const body_bytes_max =
      way.runtime === null ? undefined : runtimeOf(way.runtime).responseBytesOf?.(way.runtime.options);
    const shaped: Push = {
      instance_id: push.instance_id,
      url: request.url,
      method: request.method,
      headers: headersOf(push, way, request, agents),
      body: ownBytes(request.body),
      success_statuses: '2xx',
      keeps_body: true,
      body_bytes_max,
    };
    const result = await webhook.pushFor(shaped, timeout_ms);
    return result === null ? null : exchangedOf(result);
  }

  /** Waits, until the time is over or the attempt is given up. */
  async #pause(ms: number, running: RuntimeAttempt): Promise<void> {
    if (running.is_given_up) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = this.#parts.clock.after(ms, resolve);
    running.wakes.add(resolve);
    await promise;
    running.wakes.delete(resolve);
    timer.cancel();
  }

  forget(instance_id: string): void {
    this.handOver((each) => each === instance_id);
    this.#parts.webhook.forget(instance_id);
  }

  handOver(isTaken: (instance_id: string) => boolean): void {
    for (const running of this.#running) {
      if (!isTaken(running.instance_id)) continue;
      running.is_given_up = true;
      for (const wake of running.wakes) wake();
    }
    this.#parts.webhook.handOver(isTaken);
  }

  async close(): Promise<void> {
    this.handOver(() => true);
    await this.#parts.webhook.close();
  }
}

const NO_TIME_LEFT: Exchanged = {
  outcome: 'timeout',
  status_code: null,
  detail: 'no time was left to ask',
  retry_after: null,
  body: '',
  excerpt: '',
};

/**
 * A value of the message makes the address too long. That counts as a bad response, because only this message is at
 * fault. With the outcome `blocked`, the instance would back off, and later messages would not reach it either.
 */
const ADDRESS_TOO_LONG: Exchanged = {
  outcome: 'bad_status',
  status_code: null,
  detail: `the address for this message is over ${WEBHOOK_URL_BYTES_MAX} bytes: a value in runtime_options.path is too long`,
  retry_after: null,
  body: '',
  excerpt: '',
};

/**
 * Headers of the instance have priority over headers of the shape. A request for one agent has an idempotency key of
 * its own. Otherwise the runtime could take it for a repetition of the request for another agent.
 */
function headersOf(push: Push, way: Way, request: RuntimeRequest, agents: readonly string[]): Record<string, string> {
  const key = push.headers['idempotency-key'] ?? '';
  const [agent = ''] = agents;
  return {
    'idempotency-key': agents.length === 1 ? `${key}:${encodeURIComponent(agent.toWellFormed())}` : key,
    ...request.headers,
    ...signatureOf(push, way, request),
    'user-agent': push.headers['user-agent'] ?? '',
    ...traceHeadersIn(push.headers),
    ...way.headers,
  };
}
