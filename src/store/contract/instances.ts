import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { Connection, Health, Instance, InstanceState, TransportName } from '../../domain/instance.ts';
import type { RuntimeSettings } from '../../domain/runtimes/runtimes.ts';
import type { SuccessStatuses } from '../../domain/outcome.ts';
import type { PageRequest } from './page.ts';
import type { Reads, SearchPage } from './search.ts';

/** An instance with the number of its pending deliveries. */
export interface InstanceRow extends Instance {
  pending_deliveries: number;
  /** The machine that pulls for the instance; null when none does. */
  connection: Connection | null;
}

export interface Registration {
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  /** `webhook` when absent. */
  transport?: TransportName | undefined;
  ack_timeout_s?: number | undefined;
  /** Absent: the stored value stays. It is TIMEOUT_S for a new instance, and when the registration ends a runtime. */
  timeout_s?: number | undefined;
  /** Absent or null: pushes of the specification. Each registration must name the runtime again. */
  runtime?: RuntimeSettings | null | undefined;
  /** When the instance is removed unless it registers again; absent or null: never. */
  lease_until?: number | null | undefined;
  /**
   * The token with which a lease is made or renewed. The lease ends with this token and with the key that owns the
   * instance, at the latest.
   */
  token_digest?: string | null | undefined;
  /** Empty only for `pull`. */
  webhook_url: string;
  webhook_headers: Record<string, string> | undefined;
  webhook_secret: string | undefined;
  /** Used when the instance is new and no webhook_secret was sent. */
  new_secret: string;
  success_statuses: SuccessStatuses | undefined;
  replies?: boolean | undefined;
  /** The owner of a new instance; absent: none. */
  owner_key_id?: string | null | undefined;
}

export interface InstancePatch {
  instance_name?: string | undefined;
  agent_ids?: string[] | undefined;
  /**
   * A new URL resets the health. A URL of another origin also removes the stored headers, because that origin could
   * read them.
   */
  webhook_url?: string | undefined;
  is_active?: boolean | undefined;
  webhook_enabled?: boolean | undefined;
  webhook_headers?: Record<string, string> | undefined;
  success_statuses?: SuccessStatuses | undefined;
  ack_timeout_s?: number | undefined;
  timeout_s?: number | undefined;
  replies?: boolean | undefined;
  /** The new owner; null: none. */
  owner_key_id?: string | null | undefined;
}

/**
 * Whether a change ends the back-off. True also when the change gives the same URL again: to end a back-off too soon
 * costs only one attempt.
 */
export function liftsBackoff({ is_active, webhook_enabled, webhook_url }: InstancePatch): boolean {
  return is_active === true || webhook_enabled === true || webhook_url !== undefined;
}

export interface InstanceFilter extends PageRequest {
  agent_id?: string | undefined;
  meeting_id?: string | undefined;
  is_active?: boolean | undefined;
  paused?: boolean | undefined;
  health?: Health | undefined;
  q?: string | undefined;
}

/** The number of instances in each state. `connected` counts those whose machine pulls, whatever their state. */
export type InstanceCounts = Record<InstanceState | 'connected', number>;

/** A machine began to pull for an instance. When `connection` is null, no machine pulls for it any more. */
export interface ConnectionChange {
  instance_id: string;
  connection: Connection | null;
  /** The epoch of the instance's partition. */
  epoch: number;
}

/** An id, and when the instance with this id was first registered. */
export type ListedId = Pick<InstanceRow, 'instance_id' | 'created_at'>;

export interface InstanceStore {
  /**
   * Creates or updates an instance (spec section 3). Switches the instance on and ends its back-off. Forgets its
   * failures when the URL or the transport changes. Without headers in the request the stored headers stay, unless the
   * transport or the origin of the URL changes: `dropped_header_names` names the headers that were dropped then.
   * Rejects with `instance_id_taken` when an instance with this id exists and the caller does not own it, and with
   * `quota_exceeded`.
   */
  register(
    registration: Registration,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ created: boolean; instance: InstanceRow; dropped_header_names: string[] }>;
  /** Counts all pending deliveries of the instance: use `find` where nobody needs their number. */
  get(instance_id: string, visibility?: Visibility | null): Promise<InstanceRow | null>;
  /** The instance, without counts; null when the caller does not see it. Takes as long whatever is pending. */
  find(instance_id: string, visibility?: Visibility | null): Promise<Instance | null>;
  /** The instances with these ids, as far as they exist; without counts, which delivering does not need. */
  load(instance_ids: string[]): Promise<Instance[]>;
  /**
   * In the order of the ids. With `q`, `is_active`, `paused` or `health`, and with a second condition, one call reads at
   * most `reads`, SEARCH_READS when absent, because no index has these.
   */
  list(filter: InstanceFilter, visibility?: Visibility | null, reads?: Reads): Promise<SearchPage<InstanceRow, string>>;
  /**
   * The instances that follow `after`, at most `limit`, in the order of instance_id. Reads no more of each than the live
   * feed needs, because an instance may have thousands of agents.
   */
  listIds(after: string | null, limit: number, visibility: Visibility): Promise<ListedId[]>;
  /**
   * Counts at most `limit` instances that follow `after`, in the order of instance_id, so that no call takes long.
   * `next` is where to continue; null when all were counted.
   */
  count(
    after: string | null,
    limit: number,
    visibility?: Visibility | null,
  ): Promise<{ counts: InstanceCounts; next: string | null }>;
  /**
   * The next webhook URLs, in the order of instance_id. Instances that pull have none.
   *
   * @param after the last instance_id of the page before
   */
  webhookUrls(after: string | null, limit: number): Promise<{ instance_id: string; webhook_url: string }[]>;
  /** Null when there is no such instance. Switching on ends the back-off, and so does another URL. */
  patch(
    instance_id: string,
    patch: InstancePatch,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<InstanceRow | null>;
  /**
   * Notes which machines pull. A note counts as long as the partition has the same epoch; without a cluster, until the
   * store is closed.
   */
  noteConnections(changes: ConnectionChange[]): Promise<void>;
  heartbeat(instance_id: string, wall_ms: number, owner_scope?: OwnerScope | null): Promise<InstanceRow | null>;
  /** Replaces the webhook secret. For `overlap_ms` the previous secret signs too. */
  rotateSecret(
    instance_id: string,
    new_secret: string,
    overlap_ms: number,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<InstanceRow | null>;
  /**
   * Switches an instance off and cancels its pending deliveries, at most `limit` in one call. Call it again while
   * `done` is false. The last call deletes the instance and its memberships.
   *
   * @param lease_ended_at removes the instance only if its lease had ended by this time; null or absent: in any case
   */
  remove(
    instance_id: string,
    limit: number,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
    lease_ended_at?: number | null,
  ): Promise<{ existed: boolean; done: boolean; cancelled: number }>;
  /** Instances whose lease has ended, in the order in which the leases ended. */
  endedLeases(wall_ms: number, limit: number): Promise<string[]>;
}
