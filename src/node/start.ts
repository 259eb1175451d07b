/** What a start needs, its audit entry, and its warnings. */
import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import type { TraceSettings } from '../config/traces.ts';
import type { Log } from '../delivery/bounded_log.ts';
import type { Clock } from '../delivery/clock.ts';
import { refusedUrls } from '../delivery/transport/stored_urls.ts';
import type { EgressPolicy } from '../domain/address.ts';
import type { NewAuditEntry } from '../domain/audit.ts';
import type { Store } from '../store/store.ts';
import { StoreError } from '../store/store_error.ts';
import type { StartedThread } from '../store/thread/thread_start.ts';
import { VERSION } from '../version.ts';

/** What a node gets from the program that starts it, besides the configuration. */
export interface Surroundings {
  log: Logger;
  clock?: Clock;
  /** Null or absent: no traces are sent. */
  traces?: TraceSettings | null;
  /** The result of `startStoreThread`; a new one when absent. */
  store_thread?: StartedThread;
  /**
   * Called when the thread of the store ended by itself. Then the node can do nothing any more, and the program may
   * close it and start another. Absent: only the log says it.
   */
  onStoreLost?: (error: Error) => void;
}

/** The most instances with a refused URL that the log names at the start; it counts the others. */
const REFUSED_URLS_NAMED_MAX = 20;

/** The audit entry of a start. It names the settings that differ from their defaults, without their values. */
export function entryOfStart({ changed_settings }: Config): NewAuditEntry {
  return {
    principal: 'service',
    address: null,
    action: 'service.start',
    target_kind: 'service',
    target_id: null,
    outcome: 'done',
    code: null,
    details: { version: VERSION, settings: changed_settings },
  };
}

/**
 * Warns that the clock may be wrong, or that the service was off for a long time: Convoke cannot know which is true.
 */
export function warnOfClock(held_ms: number, log: Log): void {
  if (held_ms === 0) return;
  log.warn(
    { ahead_hours: Math.round(held_ms / 3_600_000) },
    'the clock is far ahead of the last run of the service, so nothing expires because of it: start once with CONVOKE_TRUST_CLOCK=true when the clock is right',
  );
}

/** Warns of instances whose URL the policy now refuses. Otherwise the operator would only notice missing pushes. */
export async function warnOfRefusedUrls(store: Store, policy: EgressPolicy, log: Log): Promise<void> {
  let instances = 0;
  for await (const refused of refusedUrls(store, policy)) {
    if (++instances <= REFUSED_URLS_NAMED_MAX)
      log.warn(refused, 'a stored webhook_url is refused; its pushes are blocked');
  }
  if (instances > REFUSED_URLS_NAMED_MAX) {
    log.warn({ instances }, 'more stored webhook_urls are refused; `convoke doctor` counts them');
  }
}

/** Handles the failure of work that continues after a start: logs it, unless the node was stopped meanwhile. */
export function logFailure(log: Pick<Log, 'error'>, message: string): (error: unknown) => void {
  return (error) => {
    if (error instanceof StoreError && error.code === 'STORE_CLOSED') return;
    log.error({ err: error }, message);
  };
}
