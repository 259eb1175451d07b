import { Backoff } from './backoff.ts';
import { ConvokeError, errorFromProxy, errorFromResponse, isPassing, isWaitedOut, sentAt } from './error.ts';
import { assertConcurrency } from './number_option.ts';
import { pause, TIMER_MS_MAX } from './pause.ts';
import { charsOf, fitting, type HandedInResult, type PushResult, ResultQueue } from './push_result.ts';
import { Remembered } from './remembered.ts';
import { randomId } from './random_id.ts';
import type { Requests } from './requests.ts';
import { steadyNow } from './steady_now.ts';
import { type Push, readPush, VerificationError } from './verify.ts';

/**
 * How long the service keeps a request without pushes: many proxies end a request after 60 s without a byte. Each new
 * request costs the service as much as a push, so the time is not shorter. A connection that died in silence is noticed
 * after this time and GRACE_MS.
 */
const WAIT_S = 55;
const GRACE_MS = 5_000;
/** The slowest link on which pulling works. A request with results has so much more time. */
const LINK_BYTES_PER_MS = 4;
/** How long the pushes of a response, which have half a megabyte at most, may take once its head is there. */
const PUSHES_MS_MAX = 40_000;
/** While a machine sleeps, timers stand still, but the wall clock runs on. So the wall clock is read this often. */
const LOOK_MS = 1_000;
/** How long an iteration that is ending tries to hand in its results. */
const HAND_IN_MS_MAX = 10_000;
/**
 * The longest pause within HAND_IN_MS_MAX, even when the service asks for a longer one. So there is time for another
 * try after a failure.
 */
const HAND_IN_PAUSE_MS_MAX = HAND_IN_MS_MAX / 2;
/** The most pushes that one request asks for. */
const PUSHES_MAX = 32;
/**
 * The successes that are remembered, until later ones take their place: a result may wait for days in a machine that
 * sleeps. And a crash of the service may lose the settlement of a success. Then Convoke pushes the message again.
 */
const REMEMBERED = { for_ms: Infinity, size_max: 1_000, bytes_max: 16 * 1024 * 1024 };
/** How many late pushes without a result are remembered at most; the oldest is forgotten first. */
const LATE_MAX = 1_000;

/** Ends the waiting request when a push shows that the machine should ask for no more now. */
const NOT_READY = new Error('not ready');

/** A push that this machine pulled and for which it must give a result. */
export interface PushInHand extends Push {
  delivery_id: string;
  /** The headers that a webhook would get, the signature included. */
  headers: Readonly<Record<string, string>>;
  /**
   * Aborted when the result no longer counts: its deadline has passed, or the iteration is over. The service hands the
   * push out again later.
   */
  signal: AbortSignal;
  /** Gives the result, which is handed in at once. A second result for the same push is ignored. */
  respond: (result: PushResult) => void;
}

export interface PullOptions {
  /**
   * How many pushes you take at a time, each from another meeting; 1 when absent. A push of a meeting waits here while
   * you have another one of that meeting in hand, until its result or its deadline. A whole number of 1 or more, or
   * Infinity. With more than one, do not await the work in the loop.
   */
  concurrency?: number | undefined;
  /** Aborting it ends the iteration, as soon as the pushes in hand have their results and these are handed in. */
  signal?: AbortSignal | undefined;
  /**
   * Called before each request for pushes, and again when a push was `not_reached`. Returns nothing when the agent is
   * ready, otherwise a promise that resolves when it is. Meanwhile pushes wait at the service and spend no attempts.
   * The promise must settle soon after the signal is aborted.
   */
  ready?: ((signal: AbortSignal) => Promise<void> | undefined) | undefined;
  /** Called when the service responds, and when the connection is lost and will be made again. */
  onConnection?: ((state: 'connected' | 'reconnecting', error: ConvokeError | null) => void) | undefined;
  /** Makes the pauses between failed requests; tests replace it. */
  sleep?: ((ms: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
  /** The clock of the pauses, and of the time for the last results; tests replace it. */
  now?: (() => number) | undefined;
}

interface HandedOut {
  delivery_id: string;
  attempt: number;
  headers: Record<string, string>;
  body: string;
  deadline_at: string;
}

type RequestKind = 'waits' | 'hands in';

/** A push that the caller has in hand. */
interface Held {
  meeting_id: string;
  attempt: number;
  /** The name of the request that brought it. */
  pull_id: string;
  deadline: ReturnType<typeof setTimeout>;
  abort: AbortController;
  has_result: boolean;
  /** Whether the deadline has passed. The service makes a new attempt later, and this push no longer takes up room. */
  is_late: boolean;
}

/**
 * The pushes of one instance, pulled over as many requests as needed.
 *
 * One request waits at the service for pushes while there is room for them. A result that is given meanwhile goes with
 * a second request, which does not wait. Each of the two requests hands in results, and takes the pushes that are
 * there.
 *
 * A push may be handed out again, because its result was lost or late. The caller does not get it twice: the push gets
 * the result of the running call, or the remembered success.
 */
export class Puller {
  readonly #requests: Requests;
  readonly #path: readonly string[];
  readonly #concurrency: number;
  readonly #options: PullOptions;
  /**
   * Pushes that the caller has in hand or that wait for the caller, late pushes included; in the order of their
   * arrival.
   */
  readonly #held = new Map<string, Held>();
  readonly #queue: PushInHand[] = [];
  /**
   * By meeting: the delivery that the caller has in hand. The service may hand out two pushes of one meeting, the next
   * one and one that went aside, but the caller gets one after the other.
   */
  readonly #in_hand = new Map<string, string>();
  readonly #successes = new Remembered<PushResult>(REMEMBERED, charsOf, Date.now);
  readonly #results = new ResultQueue();
  #late = 0;
  /** How many pushes the open requests ask for. */
  #asked = 0;
  /** Ends the request that waits; null while none waits. */
  #waiting: AbortController | null = null;
  #is_handing_in = false;
  /** Whether a request that waits is open at the service. */
  #is_open = false;
  /**
   * The names of the waiting request and of the request that hands in results. A request that is repeated after its
   * response was lost keeps its name. So the service takes the pushes of the lost response back at once.
   */
  readonly #pull_ids = new Map<RequestKind, string>();
  /**
   * By the name of the request that brought them: pushes that the caller had not seen when the iteration ended. Under this
   * name the service takes them back, for another machine. A report that they were not reached would make the instance
   * back off, for all machines.
   */
  readonly #unseen = new Map<string, { delivery_id: string; attempt: number }[]>();
  #is_step_due = false;
  /** False while `ready` delays the next request. */
  #is_ready = true;
  /** Null before the first request has ended. */
  #is_connected: boolean | null = null;
  readonly #now: () => number;
  readonly #backoff: Backoff;
  /** Cuts the pause after a failure short; null while there is no pause. */
  #pausing: AbortController | null = null;
  /** Aborted when no more pushes are wanted. */
  readonly #ending = new AbortController();
  #hand_in_until_ms = Infinity;
  #error: unknown = null;
  #is_over = false;
  #wake: () => void = () => {};

  /** @throws RangeError when the concurrency is no whole number of 1 or more */
  constructor(requests: Requests, instance_id: string, options: PullOptions) {
    this.#requests = requests;
    this.#path = ['instances', instance_id, 'pull'];
    this.#concurrency = options.concurrency ?? 1;
    assertConcurrency(this.#concurrency);
    this.#options = options;
    this.#now = options.now ?? steadyNow;
    this.#backoff = new Backoff(this.#now);
  }

  async *pushes(): AsyncGenerator<PushInHand, void, undefined> {
    const { signal } = this.#options;
    const end = () => this.#end();
    signal?.addEventListener('abort', end);
    if (signal?.aborted) end();
    try {
      this.#step();
      for (;;) {
        const push = await this.#next();
        if (push === null) return;
        yield push;
      }
    } finally {
      signal?.removeEventListener('abort', end);
      await this.#close();
    }
  }

  async #next(): Promise<PushInHand | null> {
    for (;;) {
      // The result of another push could not be handed in.
      if (this.#error !== null) throw this.#error;
      const push = this.#shift();
      if (push !== undefined) return push;
      if (this.#is_over) return null;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  /** Takes the first push of a meeting of which the caller has no other push in hand. */
  #shift(): PushInHand | undefined {
    const at = this.#queue.findIndex(({ meeting_id }) => !this.#in_hand.has(meeting_id));
    const push = at === -1 ? undefined : this.#queue.splice(at, 1)[0];
    if (push !== undefined) this.#in_hand.set(push.meeting_id, push.delivery_id);
    return push;
  }

  /** The delivery has its result, or its deadline has passed: its meeting is free for the next push. */
  #release(delivery_id: string, { meeting_id }: Held): void {
    if (this.#in_hand.get(meeting_id) !== delivery_id) return;
    this.#in_hand.delete(meeting_id);
    this.#wake();
  }

  /** Takes no more pushes, and gives back those that the caller has not seen. */
  #end(): void {
    if (this.#ending.signal.aborted) return;
    this.#ending.abort();
    this.#waiting?.abort();
    this.#pausing?.abort();
    for (const { delivery_id } of this.#queue.splice(0)) this.#putAside(delivery_id);
    this.#step();
  }

  /** The caller will not see this push. */
  #putAside(delivery_id: string): void {
    const held = this.#held.get(delivery_id);
    if (held === undefined) return;
    clearTimeout(held.deadline);
    this.#held.delete(delivery_id);
    const { pull_id, attempt } = held;
    this.#unseen.set(pull_id, [...(this.#unseen.get(pull_id) ?? []), { delivery_id, attempt }]);
  }

  /** The caller has left the loop. Results that were not given by now are no longer awaited. */
  async #close(): Promise<void> {
    this.#end();
    const given_up = [...this.#held.values()];
    this.#held.clear();
    this.#late = 0;
    for (const { deadline, abort, pull_id, is_late } of given_up) {
      clearTimeout(deadline);
      abort.abort();
      if (is_late) continue;
      // Under this name the service would also take back the push at which the caller failed. It would hand out this
      // push again at once, and the caller could fail at it for ever.
      for (const unseen of this.#unseen.get(pull_id) ?? [])
        this.#results.add({ ...unseen, not_reached: 'the program that pulls has ended' });
      this.#unseen.delete(pull_id);
    }
    this.#step();
    while (!this.#is_over && this.#error === null) await new Promise<void>((resolve) => (this.#wake = resolve));
  }

  /** Starts requests when there is room for pushes, or when there are results to hand in. */
  #step(): void {
    if (this.#is_over || this.#error !== null) return;
    const held = this.#held.size - this.#late;
    const is_ending = this.#ending.signal.aborted;
    if (is_ending && held === 0) this.#limitHandIn();
    const is_out_of_time = this.#now() >= this.#hand_in_until_ms;
    if (this.#pausing === null && !is_out_of_time) {
      if (this.#room > 0 && this.#waiting === null && !is_ending) void this.#wait(this.#room);
      // By now the request that waits has taken its part of `#room`.
      if (this.#isHandInDue) void this.#handIn(is_ending || !this.#is_ready ? 0 : this.#room);
    }
    const is_idle = this.#waiting === null && !this.#is_handing_in;
    const is_done = this.#results.size === 0 && this.#pull_ids.size === 0 && this.#unseen.size === 0;
    if (is_ending && is_idle && held === 0 && (is_done || is_out_of_time)) {
      this.#is_over = true;
      this.#wake();
    }
  }

  /** Starts the time for handing in, because the last result was given. Ends the pause that runs now. */
  #limitHandIn(): void {
    if (this.#hand_in_until_ms !== Infinity) return;
    this.#hand_in_until_ms = this.#now() + HAND_IN_MS_MAX;
    this.#pausing?.abort();
  }

  /** How many pushes the next request may ask for. */
  get #room(): number {
    const held = this.#held.size - this.#late;
    return Math.min(Math.max(0, this.#concurrency - held - this.#asked), PUSHES_MAX);
  }

  /**
   * Whether there is a reason for a request that hands in: there are results, the response to the last such request was
   * lost, or a push must be taken back. While the iteration ends, the request that waits must have ended first.
   */
  get #isHandInDue(): boolean {
    if (this.#is_handing_in) return false;
    if (!this.#ending.signal.aborted)
      return this.#results.size > 0 || this.#pull_ids.has('hands in') || this.#isTakeBackDue;
    const is_due = this.#results.size > 0 || this.#pull_ids.size > 0 || this.#unseenName !== undefined;
    return this.#waiting === null && is_due;
  }

  /**
   * The name under which the service can take back unseen pushes now. Under this name it would take back every push
   * without a result, so all results come first.
   */
  get #unseenName(): string | undefined {
    if (this.#results.size > 0) return undefined;
    const awaited = new Set([...this.#held.values()].filter(({ is_late }) => !is_late).map(({ pull_id }) => pull_id));
    return [...this.#unseen.keys()].find((name) => !awaited.has(name));
  }

  /**
   * Whether a request that waited was ended here and will not be made again soon. A push may have been on its way then.
   * A request with the same name makes the service take the push back at once. Otherwise the lane of the push would
   * stand still until the deadline of the push.
   */
  get #isTakeBackDue(): boolean {
    return !this.#is_open && (this.#ending.signal.aborted || !this.#is_ready) && this.#pull_ids.has('waits');
  }

  /** Results that are given in the same turn of the event loop go together in one request. */
  #stepSoon(): void {
    if (this.#is_step_due) return;
    this.#is_step_due = true;
    soon(() => {
      this.#is_step_due = false;
      this.#step();
    });
  }

  async #wait(max: number): Promise<void> {
    const waiting = new AbortController();
    this.#waiting = waiting;
    this.#asked += max;
    try {
      const getting_ready = this.#options.ready?.(this.#ending.signal);
      this.#is_ready = getting_ready === undefined;
      if (getting_ready !== undefined) await getting_ready.finally(() => (this.#is_ready = true));
      if (this.#ending.signal.aborted) return;
      this.#is_open = true;
      // The first request of a connection does not wait: its response shows that the service is there.
      await this.#ask('waits', max, this.#is_connected ? WAIT_S : 0, waiting);
    } catch (error) {
      if (error !== NOT_READY && !this.#ending.signal.aborted) this.#fail(error);
    } finally {
      this.#waiting = null;
      this.#is_open = false;
      this.#asked -= max;
      // The results of pushes that have just arrived may be ready in a moment. Then they go with the next request.
      this.#stepSoon();
    }
  }

  async #handIn(max: number): Promise<void> {
    this.#is_handing_in = true;
    this.#asked += max;
    if (!this.#pull_ids.has('hands in')) this.#nameHandIn();
    try {
      await this.#ask('hands in', max, 0, new AbortController());
    } catch (error) {
      // An iteration that ends without results does not wait for a service that is away.
      const has_results = this.#results.size > 0;
      if (this.#ending.signal.aborted && !has_results && !isBusy(error)) {
        this.#pull_ids.clear();
        this.#unseen.clear();
      } else this.#fail(error);
    } finally {
      this.#is_handing_in = false;
      this.#asked -= max;
      this.#step();
    }
  }

  /** Gives the next request that hands in the name under which the service takes back what nobody has seen. */
  #nameHandIn(): void {
    const unseen = this.#unseenName;
    if (this.#isTakeBackDue) {
      // The next request that waits may begin before this request has its response, and must have another name.
      this.#pull_ids.set('hands in', this.#pull_ids.get('waits') as string);
      this.#pull_ids.delete('waits');
    } else if (unseen !== undefined) {
      this.#pull_ids.set('hands in', unseen);
      this.#unseen.delete(unseen);
    }
  }

  /** One request: hands in the results so far, and takes pushes. */
  async #ask(kind: RequestKind, max: number, wait_s: number, abort: AbortController): Promise<void> {
    // When results go one by one, a request without results shows first that Convoke is there.
    const is_alone = this.#results.is_one_by_one;
    const brings = !is_alone || (kind === 'hands in' && this.#is_connected === true);
    const results = brings ? this.#results.take() : [];
    const pull_id = this.#pull_ids.get(kind) ?? randomId();
    this.#pull_ids.set(kind, pull_id);
    const url = this.#requests.urlOf(this.#path);
    const text = JSON.stringify({ results, max, wait_s, pull_id });
    const timeout_ms = wait_s * 1000 + GRACE_MS + text.length / LINK_BYTES_PER_MS;
    let over_at_ms = Date.now() + timeout_ms;
    const onHead = () => {
      over_at_ms = Date.now() + PUSHES_MS_MAX;
      return PUSHES_MS_MAX;
    };
    const look = setInterval(() => {
      if (Date.now() < over_at_ms) return;
      abort.abort(new ConvokeError('timeout', `no response from ${url} in time; this machine may have slept`));
    }, LOOK_MS);
    try {
      const call = { text, timeout_ms, onHead, signal: abort.signal };
      const { pushes, sent_at_ms } = await this.#requests.ask('POST', url, call, readPushes(url));
      this.#pull_ids.delete(kind);
      this.#results.arrived(results);
      this.#succeed();
      for (const push of pushes) this.#take(push, pull_id, sent_at_ms);
    } catch (error) {
      // It is unknown whether the results arrived. So they are handed in again, and the service counts each result
      // once.
      if (isRefusal(error)) throw this.#refused(results, is_alone, error);
      this.#results.putBack(results);
      throw error;
    } finally {
      clearInterval(look);
    }
  }

  /** Something else than Convoke responded. Returns the error to report. */
  #refused(results: readonly HandedInResult[], is_alone: boolean, error: ConvokeError): ConvokeError {
    const left_out = this.#results.refused(results, is_alone, !isPassing(error));
    if (left_out === null) return error;
    const detail = `${error.detail}; it refuses the result of ${left_out}, whose text is left out now`;
    return new ConvokeError(error.code, detail, {
      ...(error.status !== null && { status: error.status }),
      cause: error,
    });
  }

  #take({ delivery_id, attempt, headers, body, deadline_at }: HandedOut, pull_id: string, sent_at_ms: number): void {
    const success = this.#successes.get(delivery_id);
    if (success !== undefined) {
      this.#results.add({ delivery_id, attempt, ...success });
      return;
    }
    // Without a date in the response, a clock that is far behind makes the time too long for a timer.
    const left_ms = Math.min(Date.parse(deadline_at) - sent_at_ms, TIMER_MS_MAX);
    const running = this.#held.get(delivery_id);
    if (running !== undefined) {
      clearTimeout(running.deadline);
      if (running.is_late) {
        this.#late--;
        if (!this.#in_hand.has(running.meeting_id)) this.#in_hand.set(running.meeting_id, delivery_id);
      }
      running.is_late = false;
      running.attempt = attempt;
      running.pull_id = pull_id;
      running.deadline = setTimeout(() => this.#expire(delivery_id), left_ms);
      return;
    }
    const push = this.#read({ delivery_id, attempt, headers, body });
    if (push === null) return;
    const abort = new AbortController();
    const deadline = setTimeout(() => this.#expire(delivery_id), left_ms);
    const { meeting_id } = push;
    const held: Held = { meeting_id, attempt, pull_id, deadline, abort, has_result: false, is_late: false };
    this.#held.set(delivery_id, held);
    this.#queue.push({
      ...push,
      delivery_id,
      headers,
      signal: abort.signal,
      respond: (result) => this.#respond(delivery_id, held, result),
    });
    if (this.#ending.signal.aborted) this.#putAside(this.#queue.pop()!.delivery_id);
    else this.#wake();
  }

  /** Reads a push. Refuses one that is not as the specification says, as a webhook would; then returns null. */
  #read({ delivery_id, attempt, headers, body }: Omit<HandedOut, 'deadline_at'>): Push | null {
    try {
      return readPush(new TextEncoder().encode(body), headers);
    } catch (error) {
      if (!(error instanceof VerificationError)) throw error;
      const status_code = error.reason === 'invalid_body' ? 400 : 401;
      this.#results.add({ delivery_id, attempt, ...fitting({ status_code, body: error.message }) });
      return null;
    }
  }

  #respond(delivery_id: string, held: Held, result: PushResult): void {
    if (held.has_result) return;
    const given = fitting(result);
    held.has_result = true;
    const is_success = 'status_code' in given && given.status_code >= 200 && given.status_code < 300;
    if (is_success) this.#successes.set(delivery_id, given);
    if (this.#held.get(delivery_id) !== held) return;
    clearTimeout(held.deadline);
    this.#held.delete(delivery_id);
    this.#release(delivery_id, held);
    if (held.is_late) this.#late--;
    else this.#results.add({ delivery_id, attempt: held.attempt, ...given });
    if ('not_reached' in given && this.#options.ready !== undefined) {
      this.#is_ready = false;
      this.#waiting?.abort(NOT_READY);
    }
    this.#stepSoon();
  }

  /**
   * The service no longer waits for the result. If it makes a new attempt before the result is given, that attempt gets
   * the result.
   */
  #expire(delivery_id: string): void {
    const held = this.#held.get(delivery_id);
    if (held === undefined) return;
    const at = this.#queue.findIndex((push) => push.delivery_id === delivery_id);
    if (at === -1) {
      held.is_late = true;
      this.#late++;
      this.#release(delivery_id, held);
    } else {
      this.#queue.splice(at, 1);
      this.#held.delete(delivery_id);
    }
    if (this.#late > LATE_MAX) this.#forgetOldestLate();
    held.abort.abort();
    this.#step();
  }

  #forgetOldestLate(): void {
    for (const [delivery_id, { is_late }] of this.#held) {
      if (!is_late) continue;
      this.#held.delete(delivery_id);
      this.#late--;
      return;
    }
  }

  #succeed(): void {
    // While results are refused one by one, the pauses between them grow.
    if (!this.#results.is_one_by_one) this.#backoff.reset();
    if (this.#is_connected) return;
    this.#is_connected = true;
    this.#options.onConnection?.('connected', null);
  }

  #fail(error: unknown): void {
    if (!(error instanceof ConvokeError) || !isWaitedOut(error)) return this.#giveUp(error);
    const left_ms = this.#hand_in_until_ms - this.#now();
    if (left_ms <= 0) return;
    try {
      if (this.#is_connected !== false) this.#options.onConnection?.('reconnecting', error);
    } catch (thrown) {
      return this.#giveUp(thrown);
    }
    this.#is_connected = false;
    if (this.#pausing !== null) return;
    const pause_ms = this.#backoff.pauseAfter(error);
    void this.#pause(left_ms === Infinity ? pause_ms : Math.min(pause_ms, HAND_IN_PAUSE_MS_MAX, left_ms));
  }

  #giveUp(error: unknown): void {
    this.#error ??= error;
    this.#ending.abort();
    this.#waiting?.abort();
    this.#pausing?.abort();
    this.#wake();
  }

  /** Pauses before the next request. When the iteration ends, its last results cut the pause short. */
  async #pause(pause_ms: number): Promise<void> {
    const { sleep = pause } = this.#options;
    this.#pausing = new AbortController();
    await sleep(pause_ms, this.#pausing.signal).catch(() => {});
    this.#pausing = null;
    this.#step();
  }
}

/**
 * Runs after everything that is due in this turn of the event loop; in a runtime without `setImmediate`, a little
 * later.
 */
const soon: (step: () => void) => unknown =
  (globalThis as { setImmediate?: (step: () => void) => unknown }).setImmediate ?? ((step) => setTimeout(step, 0));

function isRefusal(error: unknown): error is ConvokeError {
  return error instanceof ConvokeError && error.code === 'unexpected_response';
}

/** Whether Convoke responded, and may take the request a little later. */
function isBusy(error: unknown): boolean {
  if (!(error instanceof ConvokeError) || error.code === 'unexpected_response') return false;
  return error.status !== null && isPassing(error);
}

/**
 * Reads a response, and the time at which the service sent it: deadlines are on the clock of the service.
 */
function readPushes(url: string): (response: Response, text: string) => { pushes: HandedOut[]; sent_at_ms: number } {
  return (response, text) => {
    if (!response.ok) throw errorFromResponse(response, text, url);
    let pushes: unknown;
    try {
      ({ pushes } = JSON.parse(text) as { pushes: unknown });
    } catch {
      throw errorFromProxy(response, url);
    }
    if (!Array.isArray(pushes) || !pushes.every(isHandedOut)) throw errorFromProxy(response, url);
    return { pushes, sent_at_ms: sentAt(response) };
  };
}

function isHandedOut(value: unknown): value is HandedOut {
  if (typeof value !== 'object' || value === null) return false;
  const { delivery_id, attempt, headers, body, deadline_at } = value as Partial<Record<keyof HandedOut, unknown>>;
  return (
    typeof delivery_id === 'string' &&
    typeof attempt === 'number' &&
    typeof headers === 'object' &&
    headers !== null &&
    Object.values(headers).every((text) => typeof text === 'string') &&
    typeof body === 'string' &&
    !Number.isNaN(Date.parse(String(deadline_at)))
  );
}
