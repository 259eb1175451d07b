import type { Instance } from '../domain/instance.ts';
import type { LaneKey } from '../store/contract/deliveries.ts';
import type { Dispatcher } from './attempts/dispatcher.ts';
import type { Clock } from './clock.ts';
import type { RemoteChanges } from './cluster/remote_changes.ts';
import type { Observer } from './observer.ts';
import type { Partitions } from './cluster/partitions.ts';
import type { Discovery } from './discovery.ts';
import type { InvalidationClock } from './lanes/invalidation_clock.ts';
import type { RecipientCache } from './lanes/recipient_cache.ts';
import type { Registrations } from './lanes/registrations.ts';
import type { AsideDeliveries } from './lanes/aside_deliveries.ts';
import type { Meetings } from './meetings.ts';
import type { Transport } from './transport/transport.ts';

export interface LocalChangesParts {
  clock: Clock;
  /** Null without a cluster. */
  remote_changes: RemoteChanges | null;
  transport: Transport;
  observer: Observer;
  partitions: Partitions;
  invalidations: InvalidationClock;
  meetings: Meetings;
  discovery: Discovery;
  recipients: RecipientCache;
  registrations: Registrations;
  aside_deliveries: AsideDeliveries;
  dispatcher: Dispatcher;
}

/** Tells the parts of the engine which changes the API of this node made in the store. */
export class LocalChanges {
  readonly #parts: LocalChangesParts;

  constructor(parts: LocalChangesParts) {
    this.#parts = parts;
  }

  /** A registration was made or changed. `resets_backoff`: the change ends the back-off. */
  instanceChanged(row: Instance, resets_backoff: boolean): void {
    const { remote_changes, transport, recipients, registrations, dispatcher } = this.#parts;
    transport.registrationChanged?.(row.instance_id);
    const recipient = recipients.known(row.instance_id);
    if (recipient === undefined) return;
    // In a cluster, rows arrive over many connections, so the row that arrives last may be an older row. So a node of a
    // cluster reads the row again.
    if (remote_changes === null) registrations.take(recipient, row, resets_backoff);
    else {
      const { instance_id } = row;
      remote_changes.onInstanceChange({ kind: 'instance', instance_id, resets_backoff, requeued: false });
    }
    dispatcher.run();
  }

  /**
   * The rules of a membership changed. The registration is read again, because it says whether the instance has any
   * rules.
   */
  memberRulesChanged(instance_id: string): void {
    const { recipients, dispatcher } = this.#parts;
    const recipient = recipients.known(instance_id);
    if (recipient === undefined) return;
    recipient.registration.invalidate();
    dispatcher.wake(recipient);
  }

  /**
   * Nobody knows how the instance is stored now. So registration and deliveries are read again before anything is
   * started.
   */
  invalidateInstance(instance_id: string): void {
    const { invalidations, transport, recipients, dispatcher } = this.#parts;
    transport.registrationChanged?.(instance_id);
    const recipient = recipients.known(instance_id);
    if (recipient === undefined) return;
    recipient.invalidated_at = invalidations.tick();
    recipient.registration.may_need_reset = true;
    recipient.registration.invalidate();
    for (const lane of [...recipient.lanes.values(), recipient.aside]) dispatcher.invalidateLane(recipient, lane);
    dispatcher.run();
  }

  /** @param cancelled how many pending deliveries this step of the removal cancelled */
  removalStep(instance_id: string, cancelled: number): void {
    this.#parts.observer.settled('cancelled', 'instance_deleted', cancelled);
    this.invalidateInstance(instance_id);
  }

  /** The last step of the removal was made. */
  instanceRemoved(instance_id: string): void {
    const { observer, transport, recipients, dispatcher } = this.#parts;
    observer.removed(instance_id);
    transport.forget(instance_id);
    const recipient = recipients.known(instance_id);
    if (recipient !== undefined) recipients.drop(recipient);
    dispatcher.run();
  }

  /**
   * A delivery was queued again by hand. An attempt on this delivery should start at once, so the back-off ends too.
   * But the delivery still waits for the deliveries that are before it in its lane.
   */
  deliveryRetried(retried: LaneKey & { aside: boolean; delivery_id?: string }): void {
    const { clock, recipients, registrations, aside_deliveries, dispatcher } = this.#parts;
    const { instance_id, meeting_id, aside, delivery_id } = retried;
    const recipient = recipients.of(instance_id);
    // Another node delivers to this instance. The store notifies that node.
    if (recipient === null) return;
    registrations.resetBackoff(recipient);
    if (aside) aside_deliveries.schedule(recipient, clock.now());
    else {
      const lane = recipient.lanes.get(meeting_id);
      const head = lane?.queue.peek();
      if (lane !== undefined && (head === undefined || head.delivery_id === delivery_id)) {
        lane.held_until = 0;
        if (head !== undefined) head.next_attempt_at = null;
        else if (lane.backlog !== null) lane.backlog.is_unsettled = true;
        dispatcher.offer(recipient, lane);
      }
    }
    dispatcher.wake(recipient);
  }

  /** The settings of a meeting changed. Resolves when this node uses the new settings, or when the store has failed. */
  meetingChanged(meeting_id: string, resumed: boolean): Promise<void> {
    return this.#parts.meetings.changed(meeting_id, resumed);
  }

  /** Pending deliveries of an instance, of a meeting, or of a lane were cancelled. */
  async dropped({ instance_id, meeting_id }: Partial<LaneKey>, deliveries: number): Promise<void> {
    this.#parts.observer.settled('cancelled', 'dropped', deliveries);
    if (meeting_id !== undefined) await this.meetingChanged(meeting_id, false);
    else if (instance_id !== undefined) this.invalidateInstance(instance_id);
  }

  /**
   * Maintenance ended deliveries that had expired. Their lanes are read again: otherwise a delivery that this node has
   * in memory would expire a second time, and be counted twice.
   */
  expired(lanes: readonly LaneKey[]): void {
    const { recipients, dispatcher } = this.#parts;
    for (const { instance_id, meeting_id } of lanes) {
      const recipient = recipients.known(instance_id);
      if (recipient === undefined) continue;
      const lane = recipient.lanes.get(meeting_id);
      if (lane !== undefined) dispatcher.invalidateLane(recipient, lane);
      if (recipient.hasAside(new Set([meeting_id]))) dispatcher.invalidateLane(recipient, recipient.aside);
    }
    dispatcher.run();
  }

  /**
   * The deliveries of meetings may have changed, so their lanes are read again. Otherwise a dropped delivery could be
   * pushed from memory, or from a read that began before the change.
   */
  invalidateMeetings(meeting_ids: ReadonlySet<string>): void {
    const { invalidations, recipients, dispatcher } = this.#parts;
    recipients.invalidate(invalidations.tick());
    for (const recipient of recipients.all()) {
      for (const lane of recipient.lanesIn(meeting_ids)) dispatcher.invalidateLane(recipient, lane);
      if (recipient.hasAside(meeting_ids)) dispatcher.invalidateLane(recipient, recipient.aside);
    }
  }

  /**
   * The settings of meetings were read, and their deliveries may have changed once more since `invalidateMeetings`.
   */
  meetingsRead(meeting_ids: ReadonlySet<string>, resumed: boolean): void {
    const { meetings, partitions, discovery } = this.#parts;
    this.invalidateMeetings(meeting_ids);
    // While a meeting was paused, its deliveries aside were not read. Now they may be due.
    const is_any_active = [...meeting_ids].some((meeting_id) => !meetings.isPaused(meeting_id));
    if (resumed && is_any_active) void discovery.scanAside(partitions.held);
  }
}
