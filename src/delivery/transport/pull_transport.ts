import type { OwnerScope } from '../../domain/access.ts';
import type { Connection } from '../../domain/instance.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';
import type { Clock, Timer } from '../clock.ts';
import { TimerWheel } from '../timer_wheel.ts';
import { judgeReported, LOST, type PullResult, unreported } from './pull_result.ts';
import { PullRoom } from './pull_room.ts';
import {
  AwaitedResult,
  deliveryIdOf,
  type HandedOut,
  PullingInstance,
  type PullEnd,
  type PullPermit,
  type PullRequest,
  type Revocable,
  tooManyWait,
  WaitingPull,
} from './pulling_instance.ts';
import type { Push, PushResult, Transport, Way } from './transport.ts';

/** The longest deadline for a result. */
const DEADLINE_MS_MAX = 600_000;
/**
 * How long a pull without a wait stays open at most, while the engine reads deliveries of its instance. Between two
 * pulls of the machine, these deliveries may be on disk only.
 */
const READ_MS_MAX = 1_000;
/** The longest pause between two pulls of a machine that still counts as connected. */
const CONNECTED_MS = 10_000;
/**
 * How often the keys and sessions of pulls are checked, so that a pull ends within a second after its key expires. A
 * revoked key ends its pulls at once, and on other nodes as soon as they read the revocation.
 */
const LOOK_MS = 900;

export interface PullTransportParts {
  clock: Clock;
  /** A pull of an instance begins to wait, or the instance has room for another push again. */
  onReady: (instance_id: string) => void;
  /** Whether a push for an instance may come from a read that is in progress or due: see `Engine.isReading`. */
  isReading: (instance_id: string) => boolean;
  /** A machine began to pull, a different machine pulls, or (null) no machine pulls any more. */
  onConnection: (instance_id: string, connection: Connection | null) => void;
}

/**
 * Pushes to machines that cannot be called. Such a machine asks for its pushes with pulls. A push is handed out only to
 * a pull that waits, so no attempt is made while no machine pulls. Later pulls bring the results.
 *
 * A waiting pull is one object, and one timer ends all waits and all attempts: thousands of machines that wait cost
 * memory and nothing else.
 */
export class PullTransport implements Transport {
  readonly #clock: Clock;
  readonly #onReady: (instance_id: string) => void;
  readonly #isReading: (instance_id: string) => boolean;
  readonly #onConnection: (instance_id: string, connection: Connection | null) => void;
  readonly #wheel: TimerWheel;
  readonly #instances = new Map<string, PullingInstance>();
  readonly #room: PullRoom;
  #waiting = 0;
  /** Pulls that end right after this turn of the event loop. */
  #closing: WaitingPull[] = [];
  #look_timer: Timer | null = null;
  #changes = 0;
  #is_draining = false;
  /** One function for all pulls, and one for all machines: a function for each would take memory. */
  readonly #onWaitOver = (pull: WaitingPull): void => this.#end(pull, null);
  readonly #onIdle = (instance: PullingInstance): void => this.#disconnect(instance);

  constructor({ clock, onReady, isReading, onConnection }: PullTransportParts) {
    this.#clock = clock;
    this.#onReady = onReady;
    this.#isReading = isReading;
    this.#onConnection = onConnection;
    this.#room = new PullRoom(onReady);
    this.#wheel = new TimerWheel(clock, DEADLINE_MS_MAX);
  }

  /** Pulls that wait, pushes whose results are awaited, and machines that are connected. */
  get counts(): { waiting: number; awaited: number; connected: number } {
    return { waiting: this.#waiting, awaited: this.#room.count, connected: this.#instances.size };
  }

  // ── for machines ──────────────────────────────────────────────────────────────────────────────────────────────────

  /** How many changes of registrations have reached this node. */
  get changes(): number {
    return this.#changes;
  }

  /**
   * The permit of an earlier pull of the same caller, so that this pull need not read the registration again. Null when
   * the registration may have changed since.
   */
  permitOf(instance_id: string, owner_scope: OwnerScope | null): PullPermit | null {
    const permit = this.#instances.get(instance_id)?.permit ?? null;
    if (permit === null) return null;
    const { key_id, instance_id: limit } = permit.owner_scope ?? {};
    return key_id === owner_scope?.key_id && limit === owner_scope?.instance_id ? permit : null;
  }

  /** Adds a pull that waits for pushes. */
  pull(request: PullRequest): WaitingPull {
    const instance = this.#connect(request);
    const { permit } = request;
    if (permit !== instance.permit) instance.permit = permit.as_of === this.#changes ? permit : null;
    const pull = new WaitingPull(request, instance, this.#onWaitOver);
    instance.beginWait(pull);
    this.#waiting++;
    this.#wheel.add(pull, request.wait_ms || READ_MS_MAX);
    if (instance.too_many !== null) this.#end(instance.too_many, tooManyWait());
    this.#look_timer ??= this.#clock.after(LOOK_MS, () => this.#lookAgain());
    this.#onReady(request.instance_id);
    if (this.#is_draining || request.wait_ms === 0) this.#closeSoon(pull);
    return pull;
  }

  /** The client no longer waits for the response. */
  cancel(pull: WaitingPull): void {
    if (this.#leave(pull)) this.#giveBack(pull.pushes);
  }

  /** Ends a pull with a problem; its pushes count as not handed out. */
  refuse(pull: WaitingPull, problem: Problem): void {
    this.#end(pull, problem);
  }

  /** Takes back pushes that never left this node. The attempts with these pushes count as not made. */
  giveBack(pushes: readonly HandedOut[]): void {
    this.#giveBack(pushes as readonly AwaitedResult[]);
  }

  /** The response with these pushes broke off: see `PullingInstance.lose`. */
  lose(pushes: readonly HandedOut[]): void {
    for (const awaited of pushes as readonly AwaitedResult[]) {
      if (awaited.instance.lose(awaited)) this.#timeOut(awaited, LOST);
      else this.#settle(awaited, null);
    }
  }

  /**
   * The client has lost the response to this pull, or stopped waiting for it. The pull may still wait here, because
   * this node may not know yet that the connection is dead. Then its pushes count as not handed out.
   */
  takeBack(instance_id: string, pull_id: string): void {
    const instance = this.#instances.get(instance_id);
    if (instance === undefined) return;
    for (const pull of instance.waiting.filter(({ request }) => request.pull_id === pull_id)) {
      const pushes = pull.pushes.splice(0);
      this.#end(pull, null);
      this.#giveBack(pushes);
    }
    this.lose(instance.in_hand.filter((awaited) => awaited.pull_id === pull_id));
  }

  /**
   * Takes the result of a push.
   *
   * @returns whether the result counts: the push was handed out to this instance, and its result is awaited
   */
  take(instance_id: string, result: PullResult): boolean {
    const awaited = this.#instances.get(instance_id)?.awaited(result.delivery_id) ?? null;
    if (awaited === null || awaited.attempt !== result.attempt) return false;
    const judged = judgeReported(awaited.push, result, this.#msSince(awaited));
    awaited.instance.reported(awaited, judged.outcome === 'ok', this.#clock.now());
    this.#settle(awaited, judged);
    return true;
  }

  /** Ends the pulls whose key or session is no longer valid, and takes back what such a pull took. */
  endRevoked(): void {
    const ended: [WaitingPull, ProblemCode][] = [];
    const in_hand: AwaitedResult[] = [];
    for (const instance of this.#instances.values()) {
      for (const pull of instance.waiting) {
        const code = pull.request.standing.revocationReason();
        if (code !== null) ended.push([pull, code]);
      }
      for (const awaited of instance.in_hand) if (awaited.standing.revocationReason() !== null) in_hand.push(awaited);
    }
    for (const [pull, code] of ended) this.#end(pull, new Problem(code));
    this.#giveBack(in_hand);
  }

  #lookAgain(): void {
    this.#look_timer = null;
    this.endRevoked();
    if (this.#waiting + this.#room.count > 0) this.#look_timer = this.#clock.after(LOOK_MS, () => this.#lookAgain());
  }

  #connect({ instance_id, permit, address, client }: PullRequest): PullingInstance {
    const { owner_key_id } = permit;
    const now = this.#clock.now();
    const known = this.#instances.get(instance_id);
    if (known === undefined) {
      const connection = { since: this.#clock.wall(), address, client };
      const owner = this.#room.enter(owner_key_id);
      const instance = new PullingInstance(instance_id, owner, connection, now, this.#changes, this.#onIdle);
      this.#instances.set(instance_id, instance);
      this.#onConnection(instance_id, connection);
      return instance;
    }
    if (known.owner.key_id !== owner_key_id) {
      this.#room.leave(known.owner, instance_id);
      known.owner = this.#room.enter(owner_key_id);
      // The machine of the earlier owner cannot report results any more, so its pushes would hold up their lanes.
      this.#giveBack(known.in_hand.filter(({ owner }) => owner !== known.owner));
    }
    this.#wheel.delete(known);
    const { connection } = known;
    const is_other = connection.address !== address || connection.client !== client;
    // While several machines of an instance pull, the first one is shown.
    if (is_other && known.waiting.length === 0 && now - known.announced_at >= CONNECTED_MS) {
      known.connection = { since: connection.since, address, client };
      known.announced_at = now;
      this.#onConnection(instance_id, known.connection);
    }
    return known;
  }

  #disconnect(instance: PullingInstance): void {
    this.#wheel.delete(instance);
    if (!this.#instances.delete(instance.instance_id)) return;
    this.#room.leave(instance.owner, instance.instance_id);
    this.#onConnection(instance.instance_id, null);
  }

  // ── for the engine ────────────────────────────────────────────────────────────────────────────────────────────────

  canPush(instance_id: string, { updated_at }: Way): boolean {
    const instance = this.#instances.get(instance_id);
    return instance !== undefined && this.#takerOf(instance, updated_at) !== null;
  }

  push(push: Push, way: Way): Promise<PushResult | null> {
    const instance = this.#instances.get(push.instance_id);
    const pull = instance === undefined ? null : this.#takerOf(instance, way.updated_at);
    if (pull === null) return Promise.resolve(null);
    if (!pull.hasRoomFor(push)) {
      this.#end(pull, null);
      return this.push(push, way);
    }
    return new Promise((resolve) => this.#handOut(pull, push, way.ack_timeout_ms, resolve));
  }

  #handOut(pull: WaitingPull, push: Push, ack_timeout_ms: number, resolve: (result: PushResult | null) => void): void {
    const { instance } = pull;
    // The delivery may be in hand already, as one aside: after the database went back, it is in its lane again too.
    const earlier = instance.awaited(deliveryIdOf(push));
    if (earlier !== null) this.#settle(earlier, null);
    const times = { started_at: this.#clock.now(), deadline_at: this.#clock.wall() + ack_timeout_ms, ack_timeout_ms };
    const awaited = new AwaitedResult(push, pull, times, resolve, this.#onDeadline);
    instance.handOut(awaited);
    this.#room.take(awaited.owner, push.body.byteLength);
    this.#wheel.add(awaited, ack_timeout_ms);
    pull.pushes.push(awaited);
    pull.bytes += push.body.byteLength;
    if (pull.pushes.length >= pull.request.max || instance.goesAlone(push)) this.#end(pull, null);
    else this.#closeSoon(pull);
  }

  /** The pull that gets the next push; null when no suitable pull waits, or when too many pushes are in hand. */
  #takerOf(instance: PullingInstance, updated_at: number): WaitingPull | null {
    if (instance.waiting.length === 0 || !this.#room.isFor(instance)) return null;
    for (let pull = instance.waiting[0]; pull !== undefined; pull = instance.waiting[0]) {
      const { permit } = pull.request;
      if (permit.updated_at === updated_at) return pull;
      // The permit is of a newer registration than the engine has, so the pull waits: the engine will read the row
      // again. But when a clock was set back or is slow, a later time may belong to an older registration. So a permit
      // does not count as newer when the registration may have changed since it was read.
      if (permit.updated_at > updated_at && !instance.mayBeStale(permit)) return null;
      // The registration changed, perhaps its owner too: the machine has to ask again.
      instance.permit = null;
      this.#end(pull, null);
    }
    return null;
  }

  readEnded(instance_id: string | null): void {
    if (instance_id !== null) this.#closeAfterRead(this.#instances.get(instance_id)?.waiting[0]);
    else for (const { waiting } of this.#instances.values()) this.#closeAfterRead(waiting[0]);
  }

  #closeAfterRead(pull: WaitingPull | undefined): void {
    if (pull?.request.wait_ms === 0) this.#closeSoon(pull);
  }

  registrationChanged(instance_id: string | null): void {
    this.#changes++;
    if (instance_id !== null) this.#instances.get(instance_id)?.registrationChanged(this.#changes);
    else for (const instance of this.#instances.values()) instance.registrationChanged(this.#changes);
  }

  forget(instance_id: string): void {
    const instance = this.#instances.get(instance_id);
    if (instance !== undefined) this.#release(instance);
  }

  handOver(isTaken: (instance_id: string) => boolean): void {
    for (const instance of this.#instances.values()) if (isTaken(instance.instance_id)) this.#release(instance);
  }

  /** Ends all waiting pulls, and takes back the pushes in hand. */
  #release(instance: PullingInstance): void {
    for (const pull of instance.waiting) this.#end(pull, null);
    this.#giveBack(instance.in_hand);
    this.#disconnect(instance);
  }

  /** Ends all waiting pulls without further pushes. From now on, each new pull ends at once. Results still count. */
  drain(): void {
    this.#is_draining = true;
    for (const { waiting } of this.#instances.values()) for (const pull of waiting) this.#end(pull, null);
  }

  async close(): Promise<void> {
    this.drain();
    this.handOver(() => true);
    this.#wheel.stop();
    this.#look_timer?.cancel();
  }

  // ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Ends a pull after this turn of the event loop, so that it can take more pushes of the same turn. A pull without a
   * push stays open when a read may bring one.
   */
  #closeSoon(pull: WaitingPull): void {
    if (pull.is_closing) return;
    pull.is_closing = true;
    if (this.#closing.push(pull) > 1) return;
    this.#clock.soon(() => {
      for (const each of this.#closing.splice(0)) {
        each.is_closing = false;
        if (!this.#mayGetPush(each)) this.#end(each, null);
      }
    });
  }

  /** Whether a read may bring a push to a pull that has none. The first of several pulls gets the pushes. */
  #mayGetPush(pull: WaitingPull): boolean {
    const { instance, pushes } = pull;
    if (this.#is_draining || pushes.length > 0 || instance.waiting[0] !== pull) return false;
    return this.#isReading(instance.instance_id);
  }

  #end(pull: WaitingPull, problem: Problem | null): void {
    if (!this.#leave(pull)) return;
    if (problem === null) return pull.request.onEnd({ pushes: pull.pushes });
    this.#giveBack(pull.pushes);
    pull.request.onEnd({ problem });
  }

  /** @returns whether the pull still waited */
  #leave(pull: WaitingPull): boolean {
    const { instance } = pull;
    if (!instance.endWait(pull)) return false;
    this.#waiting--;
    this.#wheel.delete(pull);
    this.#noteIfIdle(instance);
    return true;
  }

  readonly #onDeadline = (awaited: AwaitedResult): void => {
    this.#timeOut(awaited, `no result within ${Math.round(awaited.ack_timeout_ms / 1000)} s`);
  };

  #timeOut(awaited: AwaitedResult, detail: string): void {
    const is_stale = !awaited.instance.isNews(awaited, this.#wheel.turn);
    this.#settle(awaited, unreported(detail, this.#msSince(awaited), is_stale));
  }

  #giveBack(pushes: readonly AwaitedResult[]): void {
    for (const awaited of pushes) this.#settle(awaited, null);
  }

  #settle(awaited: AwaitedResult, result: PushResult | null): void {
    const { instance, push } = awaited;
    if (!instance.settle(awaited)) return;
    this.#wheel.delete(awaited);
    this.#noteIfIdle(instance);
    awaited.resolve(result);
    this.#room.giveBack(awaited.owner, push.body.byteLength);
  }

  #noteIfIdle(instance: PullingInstance): void {
    if (instance.isIdle && this.#instances.get(instance.instance_id) === instance)
      this.#wheel.add(instance, CONNECTED_MS);
  }

  /** How long ago a push was handed out. */
  #msSince({ started_at }: AwaitedResult): number {
    return this.#clock.now() - started_at;
  }
}

export type { HandedOut, PullEnd, PullPermit, PullRequest, PullResult, Revocable, WaitingPull };
