/**
 * Who may do what. The functions here check what needs no read of rows: the scopes of a key, and whether a meeting or
 * an instance_id is within its limits. The store applies the limits to rows of instances and deliveries, because these
 * calls of the store take the limits as conditions. The calls about one meeting take no limits, so a route checks the
 * meeting here first.
 */
import type { ApiKey, Scope } from './api_key.ts';
import { Problem } from './problem.ts';

/** The instances that a key owns. If the key is limited to one instance, only that instance. */
export interface OwnerScope {
  key_id: string;
  instance_id: string | null;
}

/**
 * The part of the data that a key may see: its own instances, some meetings, and the rows that belong to these
 * instances or meetings.
 */
export interface Visibility {
  owner_scope: OwnerScope | null;
  meeting_ids: string[];
}

/** The caller of a request. */
export interface Principal {
  /** Null while no key exists, and for a session that began with a sign-in link. */
  key_id: string | null;
  scopes: readonly Scope[];
  /** The meetings that the caller's key is limited to; null: no limit. */
  meeting_ids: ReadonlySet<string> | null;
  /** The instances that the caller may change; null: all of them. */
  owner_scope: OwnerScope | null;
  /** The rows that the caller may see; null: everything. */
  visibility: Visibility | null;
  /**
   * Whether the caller is a portal link. A link may use only the routes and fields that are open to links: see
   * portal_rights.ts.
   */
  is_portal_link: boolean;
}

/**
 * The rights of everybody while no key exists, of a session that began with a sign-in link, and of a command that opens
 * the data file itself.
 */
export const EVERYTHING_ALLOWED: Principal = {
  key_id: null,
  scopes: ['admin'],
  meeting_ids: null,
  owner_scope: null,
  visibility: null,
  is_portal_link: false,
};

/** Used while the key of a request is not known yet. */
export const NOTHING_ALLOWED: Principal = {
  ...EVERYTHING_ALLOWED,
  scopes: [],
  visibility: { owner_scope: null, meeting_ids: [] },
};

/** The principal of a request with this key. */
export function principalOf({ key_id, scopes, meeting_ids, instance_id }: ApiKey): Principal {
  if (scopes.includes('admin')) return { ...EVERYTHING_ALLOWED, key_id, scopes };
  const owner_scope = { key_id, instance_id };
  const sees_all = scopes.includes('read') && meeting_ids === null;
  return {
    key_id,
    scopes,
    meeting_ids: meeting_ids === null ? null : new Set(meeting_ids),
    owner_scope,
    visibility: sees_all
      ? null
      : {
          owner_scope: scopes.includes('instance') ? owner_scope : null,
          meeting_ids: scopes.includes('read') ? (meeting_ids ?? []) : [],
        },
    is_portal_link: false,
  };
}

export function isAdmin({ scopes }: Principal): boolean {
  return scopes.includes('admin');
}

/**
 * The instances for whose agents a principal may speak; null: for all agents, also those that no instance has. A key
 * with the scope `instance` speaks only for the agents of its own instances, also when it has `send`. A key with `send`
 * and without `instance` is for programs that pass on the messages of others.
 */
export function speakerScope({ scopes, owner_scope }: Principal): OwnerScope | null {
  return scopes.includes('instance') ? owner_scope : null;
}

export const NO_SPEAKER =
  'This key speaks for the agents of its own instances only: name the agent that says it as from_agent.';

/** @throws Problem `not_permitted` for a key without the scope `send`, when the message names no agent */
export function assertMaySpeak(principal: Principal, from_agent: string | undefined): void {
  if (from_agent !== undefined || isAdmin(principal) || principal.scopes.includes('send')) return;
  throw new Problem('not_permitted', NO_SPEAKER);
}

/** @throws Problem `not_permitted` when the principal has none of the scopes */
export function assertScope(principal: Principal, any_of: readonly Scope[]): void {
  const { scopes } = principal;
  if (isAdmin(principal) || any_of.some((scope) => scopes.includes(scope))) return;
  const wanted = [...any_of.filter((scope) => scope !== 'admin'), 'admin'].join(' or ');
  const has = scopes.join() === 'read' ? 'Your key is read-only' : `Your key has ${scopes.join(' and ')}`;
  throw new Problem('not_permitted', `${has}; this needs the scope ${wanted}.`);
}

/**
 * Does not check whether the meeting exists, so the response does not show whether it exists.
 *
 * @throws Problem `not_permitted` for a meeting outside the key's limit
 */
export function assertMeeting(principal: Principal, meeting_id: string): void {
  if (maySeeMeeting(principal, meeting_id)) return;
  throw new Problem(
    'not_permitted',
    `This key is limited to certain meetings, and ${JSON.stringify(meeting_id)} is not one of them.`,
  );
}

/** Whether this principal may see the rows that belong to a meeting. */
export function maySeeMeeting({ meeting_ids }: Principal, meeting_id: string): boolean {
  return meeting_ids === null || meeting_ids.has(meeting_id);
}

/**
 * Whether the principal may see the responses to all deliveries of this instance. If a key sees the instance only
 * because of a meeting, it sees only the deliveries in that meeting.
 */
export function seesResponsesOf(
  visibility: Visibility | null,
  { instance_id, owner_key_id }: { instance_id: string; owner_key_id: string | null },
): boolean {
  if (visibility === null) return true;
  const { owner_scope } = visibility;
  return (
    owner_scope !== null &&
    owner_scope.key_id === owner_key_id &&
    (owner_scope.instance_id === null || owner_scope.instance_id === instance_id)
  );
}

/**
 * Call it for responses about the whole service. @throws Problem `not_permitted` when the key is limited to meetings
 */
export function assertNoMeetingLimit({ meeting_ids }: Principal): void {
  if (meeting_ids === null) return;
  throw new Problem(
    'not_permitted',
    'This key is limited to certain meetings, and this request is about all meetings.',
  );
}

/**
 * The response to a registration shows whether another key owns the id. A key that is limited to one instance may not
 * learn that about other ids.
 *
 * @throws Problem `not_permitted` if the key is limited to another instance
 */
export function assertMayRegister({ owner_scope }: Principal, instance_id: string): void {
  if (owner_scope === null || owner_scope.instance_id === null || owner_scope.instance_id === instance_id) return;
  throw new Problem('not_permitted', `This key is limited to the instance ${JSON.stringify(owner_scope.instance_id)}.`);
}
