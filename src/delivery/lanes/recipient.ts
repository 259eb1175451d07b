import { isProbed } from '../../domain/delivery.ts';
import type { Instance, InstanceHealth } from '../../domain/instance.ts';
import type { Partition } from '../cluster/partitions.ts';
import { Fifo } from '../fifo.ts';
import type { Target } from '../transport/target.ts';
import { Lane } from './lane.ts';
import { Registration } from './registration.ts';

/** The assumed duration of a push before the first push ended, in milliseconds. */
export const PUSH_MS_GUESS = 5;
/** An instance counts as away when an attempt has waited this long: for a pull, or for room for a long attempt. */
export const AWAY_AFTER_MS = 250;
/**
 * For the rules of a membership, a pulling machine was away when an attempt waited this long for its pull: see
 * `noteReturn`.
 */
const GONE_AFTER_MS = 10_000;
/** The weight of the latest push in the average. */
const PUSH_MS_WEIGHT = 0.1;

/**
 * `doubtful`: turns of instances that may not respond. They have limits of their own, so that hundreds of attempts that
 * hang do not delay instances that respond. `trusted`: all other turns.
 */
export const TURN_KINDS = ['trusted', 'doubtful'] as const;
export type TurnKind = (typeof TURN_KINDS)[number];

/** An instance that gets deliveries: its registration, its lanes, and the state that they share. */
export class Recipient {
  static #made = 0;
  /** No two recipients of a process have the same number, although an evicted instance may get a new recipient. */
  readonly number = ++Recipient.#made;
  readonly instance_id: string;
  readonly partition: Partition;
  readonly registration = new Registration();
  readonly lanes = new Map<string, Lane>();
  /** Lanes that are in the state `ready`, in the order in which they take steps. */
  readonly ready = new Fifo<Lane>();
  /** The lane of the deliveries that went aside and are due: see aside_deliveries.ts. Null until the lane is needed. */
  #aside: Lane | null = null;
  /** When the next delivery aside is due; null when none is known. */
  aside_due_at: number | null = null;
  /**
   * A time of the invalidation clock. A row that was requested before this time may be stale, because somebody may have
   * changed it since.
   */
  invalidated_at: number;
  /** True when the instance was deleted, or another node delivers to it. This node then starts nothing more for it. */
  dropped = false;
  /** True when the instance counts as one with a backlog, for example because it was away: see turns.ts. */
  is_behind = false;
  /** Whether a message was accepted for the instance since its last attempt. */
  is_touched = false;
  /** How many attempts the instance started in its turn; null while it has no turn. */
  attempts_in_turn: number | null = null;
  /** The kind of the turn that the instance has or waits for. */
  turn_kind: TurnKind = 'trusted';
  /** Whether an attempt ended since the turn began. */
  has_ended_in_turn = false;
  /**
   * `listed`: the instance is in the first list of `Turns`. `listed_behind`: it is in one of the lists for instances
   * with a backlog.
   */
  listed = false;
  listed_behind = false;
  in_flight = 0;
  /**
   * The part of `in_flight` that may take as long as an agent thinks: pushes in the hand of a pulling machine, and long
   * attempts at a webhook.
   */
  long_in_flight = 0;
  /** How many reads of the instance's lanes are in flight. */
  loads = 0;
  /**
   * Since when an attempt waits for a pull of its machine, or for room for a long attempt; null when none waits. Even
   * with a machine that pulls quickly, attempts wait for a moment, so only a long wait has a meaning.
   */
  waits_since: number | null = null;
  /** Whether a timer checks `waits_since`. */
  wait_watched = false;
  /**
   * When an attempt last ended, or last began while no other was in flight. By this time `isMoving` in lane_memory.ts
   * decides whether the instance moves.
   */
  moved_at = 0;
  /**
   * When the machine came back, or when this node took the partition of the instance, on the steady clock. Messages
   * that were accepted earlier count as messages that waited while the machine was away.
   */
  returned_at: number;
  #is_backing_off = false;
  /** How long a push to the instance took lately, on average. */
  push_ms = PUSH_MS_GUESS;

  constructor(instance_id: string, partition: Partition) {
    this.instance_id = instance_id;
    this.partition = partition;
    this.invalidated_at = partition.acquired_at;
    this.returned_at = partition.taken_at;
  }

  get aside(): Lane {
    return (this.#aside ??= new Lane('', 0, true));
  }

  /** The lanes of the instance, and the lane of its deliveries aside. */
  get allLanes(): Lane[] {
    return this.#aside === null ? [...this.lanes.values()] : [...this.lanes.values(), this.#aside];
  }

  /** The lanes of some meetings. */
  *lanesIn(meeting_ids: ReadonlySet<string>): Generator<Lane> {
    const { lanes } = this;
    for (const meeting_id of meeting_ids.size < lanes.size ? meeting_ids : lanes.keys()) {
      const lane = meeting_ids.has(meeting_id) ? lanes.get(meeting_id) : undefined;
      if (lane !== undefined) yield lane;
    }
  }

  /** Whether memory has a delivery aside of one of these meetings, or a read in progress may bring one. */
  hasAside(meeting_ids: ReadonlySet<string>): boolean {
    const aside = this.#aside;
    return aside !== null && (aside.isBusy || aside.queue.some((delivery) => meeting_ids.has(delivery.meeting_id)));
  }

  /** Takes over the registration and the health from a row. */
  replace(row: Instance, now: number): void {
    this.registration.replace(row);
    this.#noteBackoff(now);
  }

  /** Notes the health that the instance has after a push to `target`. */
  learn(target: Target, health: InstanceHealth, is_gone: boolean, now: number): void {
    if (this.registration.learn(target, health, is_gone)) this.#noteBackoff(now);
  }

  /** Ends the back-off. */
  resetBackoff(now: number): void {
    this.registration.resetBackoff();
    this.#noteBackoff(now);
  }

  /** An instance that backs off counts as away. */
  #noteBackoff(now: number): void {
    const was_away = this.#is_backing_off;
    this.#is_backing_off = this.registration.health.backoff_step > 0;
    if (!this.#is_backing_off) {
      if (was_away) this.returned_at = now;
      return;
    }
    this.is_behind = true;
    this.is_touched = false;
  }

  /** Messages that were accepted before this time of the steady clock waited while its machine was away. */
  get away_until(): number {
    return this.#is_backing_off ? Infinity : this.returned_at;
  }

  /**
   * The machine of the instance pulls. If an attempt waited long for this pull, and the machine worked on no other push
   * meanwhile, the machine was away until now.
   */
  noteReturn(now: number): void {
    const { waits_since, moved_at } = this;
    if (waits_since === null) return;
    if (this.long_in_flight === 0 && now - Math.max(waits_since, moved_at) >= GONE_AFTER_MS) this.returned_at = now;
    this.waits_since = null;
  }

  /**
   * A message was accepted for the instance, so the instance goes first: see `goes_first`. While the instance backs off
   * or is away, the message waits like the other messages of the instance.
   */
  touch(now: number): void {
    const { backoff_until } = this.registration.health;
    if ((backoff_until === null || backoff_until <= now) && !this.isAway(now)) this.is_touched = true;
  }

  /**
   * Whether the machine counts as away: an attempt has waited too long for its pull, or for room for a long attempt.
   */
  isAway(now: number): boolean {
    return this.waits_since !== null && now - this.waits_since >= AWAY_AFTER_MS;
  }

  /** An attempt starts. */
  attemptStarts(): void {
    this.is_touched = false;
    if (this.attempts_in_turn !== null) this.attempts_in_turn++;
  }

  /** An attempt ended. */
  attemptEnds(now: number, duration_ms: number): void {
    this.moved_at = now;
    this.has_ended_in_turn = true;
    this.push_ms += (duration_ms - this.push_ms) * PUSH_MS_WEIGHT;
  }

  /**
   * Whether the instance goes before the instances with a backlog: it has no backlog itself, or a message was just
   * accepted for it. Because of such a message, the instance goes first for one attempt.
   */
  get goes_first(): boolean {
    return !this.is_behind || this.is_touched;
  }

  /** Whether the instance has a short attempt or a read in flight, or is listed. */
  get isActive(): boolean {
    if (this.listed || this.listed_behind || this.registration.reading === 'in_flight') return true;
    return this.in_flight - this.long_in_flight + this.loads > 0;
  }

  /** Whether the instance may not respond: it is probed, it never responded, or a short attempt is in flight. */
  get isDoubtful(): boolean {
    const { health } = this.registration;
    return isProbed(health) || health.last_success_at === null || this.in_flight - this.long_in_flight > 0;
  }

  /** Whether a lane has a part on disk only. A paused lane does not count, because it has nothing to catch up with. */
  get isSpilled(): boolean {
    for (const { backlog, is_paused } of this.lanes.values()) if (backlog !== null && !is_paused) return true;
    return false;
  }

  /** @param concurrency the most attempts in flight to one instance */
  canStart(now: number, concurrency: number): boolean {
    if (this.dropped || this.partition.paused || this.ready.length === 0) return false;
    const { isCurrent, target, health } = this.registration;
    if (!isCurrent || target === null || !target.switched_on) return false;
    if (health.backoff_until !== null && now < health.backoff_until) return false;
    if (isProbed(health)) return this.in_flight + this.loads < 1;
    const short = this.in_flight - this.long_in_flight;
    // A turn begins with one attempt, so that a receiver that does not respond takes the room of one attempt.
    const awaits_first = (this.attempts_in_turn ?? 0) > 0 && !this.has_ended_in_turn;
    if (awaits_first && short > 0) return false;
    return short + this.loads < concurrency;
  }

  get isIdle(): boolean {
    return (
      this.lanes.size === 0 &&
      this.in_flight === 0 &&
      this.loads === 0 &&
      (this.#aside?.isEmpty ?? true) &&
      this.aside_due_at === null
    );
  }
}
