import type { InstanceHealth } from '../../domain/instance.ts';
import type { LaneCursors } from '../cluster/lane_cursors.ts';
import type { Partitions } from '../cluster/partitions.ts';
import { Lane } from './lane.ts';
import type { LaneMemory } from './lane_memory.ts';
import { Recipient } from './recipient.ts';
import type { Turns } from './turns.ts';

/** The most instances without work that are remembered, so that their next message needs no read of the table. */
const IDLE_MAX = 20_000;

/** The instances of this node in memory, and the lanes of each. */
export class RecipientCache {
  readonly #partitions: Partitions;
  readonly #memory: LaneMemory;
  readonly #turns: Turns;
  /** Null without a cluster. */
  readonly #cursors: LaneCursors | null;
  readonly #recipients = new Map<string, Recipient>();
  #evict_at = IDLE_MAX;
  /** The time of the invalidation clock when all instances were invalidated, even those that are not in memory. */
  #invalidated_at = 0;

  constructor(partitions: Partitions, memory: LaneMemory, turns: Turns, cursors: LaneCursors | null) {
    this.#partitions = partitions;
    this.#memory = memory;
    this.#turns = turns;
    this.#cursors = cursors;
  }

  get size(): number {
    return this.#recipients.size;
  }

  all(): Iterable<Recipient> {
    return this.#recipients.values();
  }

  /**
   * Called when deliveries of a meeting may have changed. Invalidates all instances, because any of them can be in the
   * meeting. Even an instance without a lane is invalidated: its first message may have been requested before the
   * change.
   *
   * @param now the time of the invalidation clock
   */
  invalidate(now: number): void {
    this.#invalidated_at = now;
    for (const recipient of this.#recipients.values()) recipient.invalidated_at = now;
  }

  *healths(): Generator<[instance_id: string, health: InstanceHealth]> {
    for (const { instance_id, registration } of this.#recipients.values()) yield [instance_id, registration.health];
  }

  /** The recipient of an instance, if it is in memory. */
  known(instance_id: string): Recipient | undefined {
    return this.#recipients.get(instance_id);
  }

  /**
   * The recipient of an instance; makes a recipient if none is in memory. Null when another node delivers to the
   * instance.
   */
  of(instance_id: string): Recipient | null {
    const known = this.#recipients.get(instance_id);
    if (known !== undefined) return known;
    const partition = this.#partitions.of(instance_id);
    if (partition === null) return null;
    if (this.#recipients.size >= this.#evict_at) this.#evictIdle();
    const recipient = new Recipient(instance_id, partition);
    recipient.invalidated_at = Math.max(recipient.invalidated_at, this.#invalidated_at);
    this.#recipients.set(instance_id, recipient);
    return recipient;
  }

  /**
   * Evicts instances that have nothing to deliver, those in memory for the longest time first. The table has everything
   * that memory knows of them.
   */
  #evictIdle(): void {
    let left = IDLE_MAX / 10;
    for (const [instance_id, recipient] of this.#recipients) {
      if (left === 0) break;
      const { health_dirty, reading } = recipient.registration;
      if (!recipient.isIdle || health_dirty || reading !== 'none') continue;
      this.#recipients.delete(instance_id);
      this.#cursors?.drop(recipient);
      left--;
    }
    // The next search waits until there are more recipients. If most instances have something to deliver, a search for
    // each new instance would take quadratic time.
    this.#evict_at = Math.max(IDLE_MAX, Math.ceil(this.#recipients.size * 1.1));
  }

  /** Drops an instance that was deleted, or to which another node delivers now: no more attempts start for it. */
  drop(recipient: Recipient): void {
    for (const lane of recipient.allLanes) {
      // An attempt in flight ends by itself. Its settlement changes nothing: the row is no longer pending, or the store
      // refuses the earlier epoch. A read in flight drops its rows.
      this.#memory.trim(lane, 0);
      this.#memory.joinTail(lane);
    }
    recipient.dropped = true;
    this.#turns.end(recipient);
    this.#cursors?.drop(recipient);
    // The id may already be registered again.
    if (this.#recipients.get(recipient.instance_id) === recipient) this.#recipients.delete(recipient.instance_id);
  }

  /**
   * Returns the lane of a meeting; makes a lane if none is in memory.
   *
   * @param known_to matters only for a new lane: none of its deliveries up to this seq is pending. Null: this node does
   * not know what is pending, and the lane must be read
   */
  laneOf(recipient: Recipient, meeting_id: string, known_to: number | null): Lane {
    const known = recipient.lanes.get(meeting_id);
    if (known !== undefined) return known;
    const cursor = this.#cursors?.take(recipient, meeting_id);
    const lane = new Lane(meeting_id, cursor?.last_seq ?? known_to ?? 0);
    recipient.lanes.set(meeting_id, lane);
    if (cursor !== undefined) lane.contiguous_from = cursor.contiguous_from;
    else if (known_to === null) lane.spill().is_unsettled = true;
    return lane;
  }

  /**
   * Whether a forgotten lane of the recipient may already have delivered a message that this node requested at
   * `requested_at`. If so, the message may no longer be pending.
   */
  mayHaveRead(recipient: Recipient, requested_at: number): boolean {
    return this.#cursors !== null && requested_at < this.#cursors.forgottenAt(recipient);
  }

  /**
   * Forgets an empty lane, but only after all pending lanes were found. Before that, only the lane in memory knows
   * which deliveries it has delivered already.
   */
  evictIfIdle(recipient: Recipient, lane: Lane): void {
    if (!lane.isEmpty || lane.isBusy || lane.aside || !recipient.partition.discovered) return;
    recipient.lanes.delete(lane.meeting_id);
    if (!recipient.dropped) this.#cursors?.add(recipient, lane);
  }
}
