import type { OwnerScope } from '../../domain/access.ts';
import type { Connection } from '../../domain/instance.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';
import { WheelEntry } from '../timer_wheel.ts';
import { LOSSES_MAX } from './pull_result.ts';
import type { PullOwner } from './pull_room.ts';
import type { Push, PushResult } from './transport.ts';

/**
 * The most pulls of one instance that wait at a time. One more pull ends the pull that has waited longest, without a
 * push. The client of that pull waits some seconds before it pulls again. Otherwise seventeen clients would end each
 * other's pulls without a pause.
 */
const WAITING_MAX = 16;
const WAIT_AGAIN_S = 5;

/** The most bytes of bodies in one response; a single push may be larger. */
const RESPONSE_BYTES_MAX = 512 << 10;
/** For how many deliveries of an instance the lost responses are counted: the latest ones. */
const LOST_MAX = 256;

/** A push that a machine has in hand, while its result is awaited. */
export interface HandedOut {
  readonly delivery_id: string;
  /** Starts at 1. */
  readonly attempt: number;
  readonly push: Push;
  /** After this time the result no longer counts; on the wall clock. */
  readonly deadline_at: number;
}

/** How a pull ends: with pushes (an empty list when its time was up), or with the problem of its key or session. */
export type PullEnd = { pushes: readonly HandedOut[] } | { problem: Problem };

/** The right to pull: a key, a session, or the fact that no key exists. */
export interface Revocable {
  /** Why the right is no longer valid; null while it is valid. */
  revocationReason(): ProblemCode | null;
}

/** The right of a caller to pull, according to the registration that was read. */
export interface PullPermit {
  /** The scope of the caller; null for admins. */
  owner_scope: OwnerScope | null;
  /** The key that owns the instance; null when no key does. */
  owner_key_id: string | null;
  /** When the registration last changed. */
  updated_at: number;
  /** How many changes this node knew of before it read the registration: see `PullTransport.changes`. */
  as_of: number;
}

/** A request of a machine for pushes. */
export interface PullRequest {
  instance_id: string;
  /** The name of the request; null when it has none. */
  pull_id: string | null;
  permit: PullPermit;
  /** The most pushes that the machine takes. */
  max: number;
  wait_ms: number;
  address: string | null;
  client: string | null;
  standing: Revocable;
  /** Called once. */
  onEnd: (end: PullEnd) => void;
}

/** A pull that waits. */
export class WaitingPull extends WheelEntry {
  readonly request: PullRequest;
  readonly instance: PullingInstance;
  readonly #onTimeout: (pull: WaitingPull) => void;
  readonly pushes: AwaitedResult[] = [];
  /** The bytes of the bodies of `pushes`. */
  bytes = 0;
  /** The pull ends after this turn of the event loop. */
  is_closing = false;

  constructor(request: PullRequest, instance: PullingInstance, onTimeout: (pull: WaitingPull) => void) {
    super();
    this.request = request;
    this.instance = instance;
    this.#onTimeout = onTimeout;
  }

  /** Whether the response takes one more push; otherwise the push needs another response. */
  hasRoomFor(push: Push): boolean {
    if (this.pushes.length === 0) return true;
    return this.bytes + push.body.byteLength <= RESPONSE_BYTES_MAX && !this.instance.goesAlone(push);
  }

  expire(): void {
    this.#onTimeout(this);
  }
}

/** A push that was handed out, until its result arrives or its time is up. */
export class AwaitedResult extends WheelEntry implements HandedOut {
  readonly delivery_id: string;
  readonly attempt: number;
  readonly push: Push;
  /** When the push was handed out, on the steady clock. */
  readonly started_at: number;
  readonly deadline_at: number;
  readonly ack_timeout_ms: number;
  readonly instance: PullingInstance;
  /** The owner of the instance when the push was handed out. */
  readonly owner: PullOwner;
  /** The name of the pull that took the push. */
  readonly pull_id: string | null;
  /** What permitted this pull. */
  readonly standing: Revocable;
  readonly resolve: (result: PushResult | null) => void;
  readonly #onTimeout: (awaited: AwaitedResult) => void;

  constructor(
    push: Push,
    { instance, request: { pull_id, standing } }: WaitingPull,
    times: { started_at: number; deadline_at: number; ack_timeout_ms: number },
    resolve: (result: PushResult | null) => void,
    onTimeout: (awaited: AwaitedResult) => void,
  ) {
    super();
    this.delivery_id = deliveryIdOf(push);
    this.attempt = Number(push.headers['convoke-attempt']);
    this.push = push;
    this.started_at = times.started_at;
    this.deadline_at = times.deadline_at;
    this.ack_timeout_ms = times.ack_timeout_ms;
    this.instance = instance;
    this.owner = instance.owner;
    this.pull_id = pull_id;
    this.standing = standing;
    this.resolve = resolve;
    this.#onTimeout = onTimeout;
  }

  expire(): void {
    this.#onTimeout(this);
  }
}

export function deliveryIdOf({ headers }: Push): string {
  return headers['webhook-id'] as string;
}

/** Shared by the thousands of machines that only wait. */
const NONE: readonly never[] = [];

/** An instance whose machine pulls, or pulled a moment ago. */
export class PullingInstance extends WheelEntry {
  readonly instance_id: string;
  owner: PullOwner;
  connection: Connection;
  /** The permit of its latest pull; null when the registration may have changed since. */
  permit: PullPermit | null = null;
  /** How many changes its node knew of when the registration may last have changed. */
  #changed_at: number;
  /** When the connection was last announced, on the steady clock. */
  announced_at: number;
  #waiting: readonly WaitingPull[] = NONE;
  /** Null while the machine has nothing in hand, because most machines only wait. */
  #in_hand: Map<string, AwaitedResult> | null = null;
  #in_hand_bytes = 0;
  /** When a success was last reported, on the steady clock. */
  #succeeded_at = -Infinity;
  /** The turn of the wheel in which a push last timed out. */
  #timed_out_in = -1;
  /** How many responses with each delivery were lost since its attempt began; null while it is empty. */
  #losses: Map<string, number> | null = null;
  readonly #onIdle: (instance: PullingInstance) => void;

  constructor(
    instance_id: string,
    owner: PullOwner,
    connection: Connection,
    announced_at: number,
    changes: number,
    onIdle: (instance: PullingInstance) => void,
  ) {
    super();
    this.instance_id = instance_id;
    this.owner = owner;
    this.connection = connection;
    this.announced_at = announced_at;
    this.#changed_at = changes;
    this.#onIdle = onIdle;
  }

  /** The waiting pulls, in the order in which they began to wait. */
  get waiting(): readonly WaitingPull[] {
    return this.#waiting;
  }

  /** The pull that has waited longest, when too many wait; otherwise null. */
  get too_many(): WaitingPull | null {
    return this.#waiting.length > WAITING_MAX ? (this.#waiting[0] as WaitingPull) : null;
  }

  /** The pushes whose results are awaited. */
  get in_hand(): readonly AwaitedResult[] {
    return this.#in_hand === null ? NONE : [...this.#in_hand.values()];
  }

  get in_hand_count(): number {
    return this.#in_hand?.size ?? 0;
  }

  /** The bytes of the bodies of the pushes in hand. */
  get in_hand_bytes(): number {
    return this.#in_hand_bytes;
  }

  /** Whether no pull of the machine waits and it has no push in hand. */
  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#in_hand === null;
  }

  /** @param changes how many changes its node knows of, this one included */
  registrationChanged(changes: number): void {
    this.permit = null;
    this.#changed_at = changes;
  }

  /** Whether the registration may have changed since it was read for this permit. */
  mayBeStale({ as_of }: PullPermit): boolean {
    return as_of < this.#changed_at;
  }

  beginWait(pull: WaitingPull): void {
    // The array of `concat` has exactly the room that it needs; `push` would make room for 17.
    this.#waiting = this.#waiting.concat(pull);
  }

  /** @returns whether the pull waited */
  endWait(pull: WaitingPull): boolean {
    if (!this.#waiting.includes(pull)) return false;
    this.#waiting = this.#waiting.length === 1 ? NONE : this.#waiting.filter((each) => each !== pull);
    return true;
  }

  /** The push with this delivery, while its result is awaited. */
  awaited(delivery_id: string): AwaitedResult | null {
    return this.#in_hand?.get(delivery_id) ?? null;
  }

  handOut(awaited: AwaitedResult): void {
    this.#in_hand ??= new Map();
    this.#in_hand.set(awaited.delivery_id, awaited);
    this.#in_hand_bytes += awaited.push.body.byteLength;
  }

  /** @returns whether the result was awaited */
  settle(awaited: AwaitedResult): boolean {
    if (this.#in_hand === null || this.#in_hand.get(awaited.delivery_id) !== awaited) return false;
    this.#in_hand.delete(awaited.delivery_id);
    if (this.#in_hand.size === 0) this.#in_hand = null;
    this.#in_hand_bytes -= awaited.push.body.byteLength;
    return true;
  }

  /**
   * A response with this push was lost. Something on the way, such as a filter, may cut every response with this push.
   * So a lost push counts as not handed out, but only LOSSES_MAX - 1 times. A push whose result is no longer awaited
   * does not count: the machine has asked again, which counted this loss, or has reported the result.
   *
   * @returns whether the attempt is over
   */
  lose(awaited: AwaitedResult): boolean {
    const { delivery_id } = awaited;
    if (this.awaited(delivery_id) !== awaited) return false;
    const losses = (this.#losses ??= new Map<string, number>());
    const count = (losses.get(delivery_id) ?? 0) + 1;
    losses.delete(delivery_id);
    losses.set(delivery_id, count % LOSSES_MAX);
    if (losses.size > LOST_MAX) losses.delete(losses.keys().next().value as string);
    return count === LOSSES_MAX;
  }

  /** The machine reported the result of a push, so a response with the push has arrived. */
  reported({ delivery_id }: AwaitedResult, is_success: boolean, now: number): void {
    if (is_success) this.#succeeded_at = now;
    this.#losses?.delete(delivery_id);
    if (this.#losses?.size === 0) this.#losses = null;
  }

  /**
   * Whether the timeout of a push says something new about the instance. When a machine dies with pushes in hand, its
   * successor may work long before the deadline of these pushes. Pushes whose time is up in the same turn of the wheel
   * count once.
   */
  isNews({ started_at }: AwaitedResult, turn: number): boolean {
    if (started_at < this.#succeeded_at || turn === this.#timed_out_in) return false;
    this.#timed_out_in = turn;
    return true;
  }

  /**
   * Whether a push gets a response of its own, because a response with it was lost: no other push should be lost with
   * it.
   */
  goesAlone(push: Push): boolean {
    return this.#losses?.has(deliveryIdOf(push)) === true;
  }

  /** The instance was idle for as long as a machine may pause between two pulls. */
  expire(): void {
    this.#onIdle(this);
  }
}

export function tooManyWait(): Problem {
  return new Problem(
    'overloaded',
    `More than ${WAITING_MAX} requests of this instance wait for pushes. Pull again, with the same results.`,
    { retry_after_s: WAIT_AGAIN_S },
  );
}
