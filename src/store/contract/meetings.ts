import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { Health } from '../../domain/instance.ts';
import type { Page, PageRequest } from './page.ts';

export interface Membership {
  meeting_id: string;
  instance_id: string;
  agent_ids: string[];
  joined_at: number;
  left_at: number | null;
}

export interface MeetingInstance extends Membership {
  instance_name: string;
  health: Health;
}

export interface MeetingRow {
  meeting_id: string;
  last_seq: number;
  instance_count: number;
  agent_count: number;
  pending_deliveries: number;
  created_at: number;
  last_activity_at: number;
}

export interface MeetingFilter extends PageRequest {
  /** Part of the id. */
  q?: string | undefined;
  /** Only meetings that this instance is in. */
  instance_id?: string | undefined;
  /** With `instance_id`: also those that it has left. */
  include_left?: boolean | undefined;
}

export interface MeetingStore {
  /** Rejects with `instance_does_not_exist` and `quota_exceeded`. */
  join(
    meeting_id: string,
    instance_id: string,
    agent_ids: string[],
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ created: boolean; membership: Membership }>;
  /** Null when there was no membership to end. Leaving again returns the first time of leaving. */
  leave(
    meeting_id: string,
    instance_id: string,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ left_at: number } | null>;
  list(filter: MeetingFilter, visibility?: Visibility | null): Promise<Page<MeetingRow>>;
  /** Null when there is no such meeting. */
  instances(
    meeting_id: string,
    filter: PageRequest & { include_left?: boolean | undefined },
  ): Promise<Page<MeetingInstance> | null>;
}
