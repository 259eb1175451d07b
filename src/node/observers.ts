/** Makes figures, events of the feed and lines of the log from the reports of the parts. */
import type { Log } from '../delivery/bounded_log.ts';
import type { Clock } from '../delivery/clock.ts';
import type { PartitionsObserver } from '../delivery/cluster/partitions.ts';
import type { DeliveryLog } from '../delivery/delivery_log.ts';
import type { AttemptEvent, Observer } from '../delivery/observer.ts';
import type { History } from '../delivery/history.ts';
import type { InstanceHistory } from '../delivery/instance_history.ts';
import type { Engine } from '../delivery/engine.ts';
import type { ExpiryObserver } from '../delivery/expiry.ts';
import type { MaintenanceObserver } from '../delivery/maintenance.ts';
import type { Metrics } from '../delivery/metrics.ts';
import { settledEvent } from '../feed/events.ts';
import type { Feed } from '../feed/feed.ts';
import type { Notices } from './notices.ts';
import { publishAccepted, publishAttempted, publishSuppressed } from '../feed/from_engine.ts';

/** The parts that get the reports of the engine and the maintenance. */
export interface Reported {
  metrics: Metrics;
  history: History;
  instance_history: InstanceHistory;
  feed: Feed;
  delivery_log: DeliveryLog;
  /** Null: no meeting gets notices. */
  notices: Notices | null;
  log: Log;
  clock: Clock;
}

export function engineObserver(to: Reported): Observer {
  const { metrics, history, instance_history, feed, delivery_log, notices, log, clock } = to;
  return {
    accepted(messages, deliveries, batch, results) {
      metrics.accepted(messages, deliveries);
      history.accepted(messages);
      if (feed.is_active) publishAccepted(feed, batch, results);
    },
    attempted(event: AttemptEvent) {
      const wall_ms = clock.wall();
      metrics.attempted(event, wall_ms);
      history.attempted(event, wall_ms);
      instance_history.attempted(event, wall_ms);
      if (feed.is_active) publishAttempted(feed, event, wall_ms);
      delivery_log.attempted(event);
      notices?.attempted(event);
    },
    settled(state, reason, deliveries, lane) {
      metrics.settled(state, reason, deliveries);
      if (state === 'failed') history.failed(deliveries);
      if (state === 'failed' && lane !== undefined) notices?.failed(lane, reason, deliveries);
    },
    removed: (instance_id) => instance_history.removed(instance_id),
    suppressed(delivery, reason) {
      metrics.settled('cancelled', reason, 1);
      if (feed.is_active) publishSuppressed(feed, delivery, reason, clock.wall());
      delivery_log.suppressed(delivery, reason);
      notices?.suppressed(delivery, reason);
    },
    replied: (way, result) => metrics.replied(way, result),
    storageFailed(error) {
      log.error({ err: error }, 'the store failed; what attempts made is kept and tried again');
      notices?.storageFailed(error);
    },
  };
}

export function partitionsObserver(metrics: Metrics, log: Log): PartitionsObserver {
  return {
    onHandOver(what, partition_nos) {
      metrics.onHandOver(what, partition_nos.length);
      if (what === 'lost') log.warn({ partitions: partition_nos }, 'partitions were lost: the lease had ended');
      else log.info({ partitions: partition_nos }, what === 'taken' ? 'took partitions' : 'gave partitions back');
    },
    storageFailed: (error) => log.error({ err: error }, 'the lease could not be renewed; it is tried again'),
  };
}

export function maintenanceObserver(
  { metrics, history, feed, notices, log, clock }: Reported,
  engine: Pick<Engine, 'expired'>,
): MaintenanceObserver {
  return {
    expired(lanes) {
      engine.expired(lanes);
      for (const { count: deliveries, ...lane } of lanes) {
        metrics.settled('failed', 'expired', deliveries);
        history.failed(deliveries);
        notices?.failed(lane, 'expired', deliveries);
        const settled = { ...lane, state: 'failed', reason: 'expired', deliveries } as const;
        feed.publish(settledEvent(settled, clock.wall()));
      }
    },
    isMostlyEmpty: ({ page_bytes, pages, free_pages }) =>
      log.warn(
        { bytes: pages * page_bytes, free_bytes: free_pages * page_bytes },
        'most of the data file is empty: `convoke compact` makes it smaller while no service runs',
      ),
    failed: (error) => log.error({ err: error }, 'maintenance failed'),
  };
}

export function expiryObserver(log: Log): ExpiryObserver {
  return {
    corrected: (behind_ms) =>
      log.warn(
        { behind_seconds: Math.round(behind_ms / 1_000) },
        'the time of this node was wrong, and is that of its wall clock and of the database now: deliveries expire by it',
      ),
    doubted: (behind_ms) =>
      log.warn(
        { behind_hours: Math.round(behind_ms / 3_600_000) },
        'the time of this node is far behind its wall clock and the database, so other nodes may fail what it accepts as expired: start it again when the wall clock is right',
      ),
  };
}
