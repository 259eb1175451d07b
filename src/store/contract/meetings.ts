import type { OwnerScope, Visibility } from '../../domain/access.ts';
import type { MemberRules } from '../../domain/catch_up.ts';
import type { Candidate } from '../../domain/explanation.ts';
import type { Health } from '../../domain/instance.ts';
import type { Page, PageRequest } from './page.ts';
import type { Reads, SearchPage } from './search.ts';

export interface Membership extends MemberRules {
  meeting_id: string;
  instance_id: string;
  agent_ids: string[];
  joined_at: number;
  left_at: number | null;
}

/** The rules of a membership that a join may set. An absent field stays as it is. */
export type GivenRules = { [Name in keyof MemberRules]?: MemberRules[Name] | undefined };

/** The fields of a membership that can be changed without a join. An absent field stays as it is. */
export interface MembershipPatch extends GivenRules {
  agent_ids?: string[] | undefined;
}

export interface MeetingInstance extends Membership {
  instance_name: string;
  health: Health;
}

/** A present or past membership, with everything that decides whether it gets a message. */
export interface CandidateRow extends Candidate {
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
}

/** The settings of a meeting. Null: the default of the service. */
export interface MeetingSettings {
  /** Whether the meeting is paused: its deliveries wait, and no attempt on them starts. */
  paused: boolean;
  /** The most messages of agents in a row (hops); 0: any number. */
  hop_limit: number | null;
  /** The most messages from one agent to another within the window; 0: any number. */
  pair_limit: number | null;
  /** In seconds; 0: no window, and so no limit. */
  pair_window_s: number | null;
}

/** The settings of a meeting that has none of its own. */
export const NO_SETTINGS: MeetingSettings = { paused: false, hop_limit: null, pair_limit: null, pair_window_s: null };

/** A field that is absent stays as it is. */
export type MeetingPatch = { [Name in keyof MeetingSettings]?: MeetingSettings[Name] | undefined };

/** The most meetings with settings of their own. Each node holds all of them in memory. */
export const MEETINGS_SET_MAX = 20_000;

export interface SetMeeting extends MeetingSettings {
  meeting_id: string;
}

export interface MeetingRow extends MeetingSettings {
  meeting_id: string;
  last_seq: number;
  instance_count: number;
  agent_count: number;
  pending_deliveries: number;
  created_at: number;
  last_activity_at: number;
}

export interface MeetingFilter extends PageRequest {
  /** A part of the id. */
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
    rules?: GivenRules,
  ): Promise<{ created: boolean; membership: Membership }>;
  /** Null when the instance never joined the meeting. When it has left already, `left_at` stays as it is and is returned. */
  leave(
    meeting_id: string,
    instance_id: string,
    wall_ms: number,
    owner_scope?: OwnerScope | null,
  ): Promise<{ left_at: number } | null>;
  /** Null when the instance is not in the meeting now. Rejects with `quota_exceeded`. */
  changeMembership(
    meeting_id: string,
    instance_id: string,
    patch: MembershipPatch,
    owner_scope?: OwnerScope | null,
  ): Promise<Membership | null>;
  /**
   * In the order of the ids. With `q` one call reads at most `reads`, SEARCH_READS when absent, because no index has a
   * part of an id.
   */
  list(filter: MeetingFilter, visibility?: Visibility | null, reads?: Reads): Promise<SearchPage<MeetingRow, string>>;
  /** Null when there is no such meeting. */
  get(meeting_id: string): Promise<MeetingRow | null>;
  /** Null when there is no such meeting; rejects with `quota_exceeded` beyond MEETINGS_SET_MAX. */
  patch(meeting_id: string, patch: MeetingPatch, wall_ms: number): Promise<MeetingRow | null>;
  /** The settings of a meeting; null when it has none of its own. */
  settings(meeting_id: string): Promise<MeetingSettings | null>;
  /**
   * A page of the meetings with settings of their own, in the order of their ids. `after` is null for the first page.
   */
  allSettings(after: string | null, limit: number): Promise<SetMeeting[]>;
  /** Null when there is no such meeting. */
  instances(
    meeting_id: string,
    filter: PageRequest & { include_left?: boolean | undefined },
  ): Promise<Page<MeetingInstance> | null>;
  /** Null when there is no such meeting. @param now_ms the steady time */
  candidates(
    meeting_id: string,
    filter: PageRequest & { instance_id?: string | undefined },
    now_ms: number,
  ): Promise<Page<CandidateRow> | null>;
}
