/** Webhook subscriptions: each is an instance with a lease, in one meeting. */
import { hash } from 'node:crypto';
import { ConvokeError, type Membership } from '@convoke/sdk';
import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';
import { LEASE_S } from '../../domain/instance.ts';
import type { Outcome } from '../../domain/outcome.ts';
import { type CallbackFailure, callbackFailureOf } from '../../domain/runtimes/mcp_events.ts';
import type { Caller } from '../caller.ts';
import { type SubscribeParams, type UnsubscribeParams, type Wanted, wantedOf } from './event_types.ts';
import { EVENT_ERRORS } from './failures.ts';
import { newestSeq } from './pages.ts';

const ID_CHARS = 32;

/** The last call of this process for each subscription that is being changed. */
const calls = new Map<string, Promise<unknown>>();

/**
 * Changes a subscription after the calls that arrived before. So of two first calls, the second one renews what the
 * first one began, and a call that fails removes only what it began itself.
 */
async function inTurn<Result>(id: string, change: () => Promise<Result>): Promise<Result> {
  const earlier = calls.get(id) ?? Promise.resolve();
  const call = earlier.then(change, change);
  calls.set(id, call);
  try {
    return await call;
  } finally {
    if (calls.get(id) === call) calls.delete(id);
  }
}

/**
 * Begins a subscription, or renews it.
 *
 * @throws ProtocolError; ConvokeError when the service refuses the call
 */
export async function subscribe(caller: Caller, params: SubscribeParams) {
  const wanted = wantedOf(params);
  const { delivery } = params;
  if (delivery.mode !== 'webhook')
    throw new ProtocolError(EVENT_ERRORS.Unsupported, 'Only webhooks are subscribed to: poll or stream without it.', {
      feature: 'deliveryMode',
      value: delivery.mode,
    });
  const id = await idOf(caller, delivery.url, wanted);
  return inTurn(id, () => register(caller, id, wanted, params));
}

async function register(
  caller: Caller,
  id: string,
  wanted: Wanted,
  { delivery, cursor = null, ttlMs }: SubscribeParams,
) {
  const { client, signal } = caller;
  const { meeting_id } = wanted;
  const last_seq = await newestSeq(caller, meeting_id);
  const before = await client.getInstance(id, { signal }).catch(nullIfMissing);
  const agent_ids = [wanted.agent ?? id];
  const registered = await client.register(
    {
      instance_id: id,
      instance_name: `MCP Events: ${meeting_id}`.slice(0, 200).toWellFormed(),
      agent_ids,
      runtime: 'mcp_events',
      runtime_options: { id },
      lease_s: leaseSeconds(ttlMs),
      webhook_url: delivery.url,
      webhook_secret: delivery.secret,
      success_statuses: '2xx',
    },
    { signal },
  );
  const joining = client.joinMeeting({ instance_id: id, meeting_id, agent_ids }, { signal });
  const membership = await joining.catch(async (error: unknown) => {
    if (before === null) await client.deleteInstance(id);
    throw error;
  });
  const about = { resultType: 'complete', id, refreshBefore: registered.lease_until };
  if (before === null) {
    // Earlier messages are not sent: events/poll has them.
    return { ...about, cursor: String(last_seq), truncated: cursor !== null && Number(cursor) < last_seq };
  }
  const { health, last_success_at, pending_deliveries } = before;
  return {
    ...about,
    // Leaves the cursor of the client as it is while a delivery is pending, and after a message that was not delivered:
    // a later cursor could skip this message.
    cursor: pending_deliveries > 0 || (await mayHaveLost(caller, membership, cursor)) ? cursor : String(last_seq),
    truncated: false,
    deliveryStatus: { active: health !== 'down', lastDeliveryAt: last_success_at, lastError: lastError(before) },
  };
}

/**
 * Whether there may be an event after the cursor of the client that only a poll returns: its delivery failed or was
 * cancelled, or the event had no delivery, because the instance was switched off or out of the meeting.
 */
async function mayHaveLost(
  { client, signal }: Caller,
  { instance_id, meeting_id, joined_at }: Membership,
  cursor: string | null,
): Promise<boolean> {
  if (cursor === null) return false;
  const after_seq = Number(cursor);
  const [next] = (await client.listMessages(meeting_id, { after_seq, limit: 1 }, { signal })).data;
  if (next === undefined) return false;
  if (Date.parse(next.accepted_at) < Date.parse(joined_at)) return true;
  const { missed } = await client.recover(instance_id, { since: next.accepted_at, dry_run: true }, { signal });
  if (missed === undefined || missed.messages > 0 || missed.at_least) return true;
  const keys = { instance_id, meeting_id, after_seq };
  const found = await Promise.all(
    (['failed', 'cancelled'] as const).map((state) => client.listDeliveries({ ...keys, state, limit: 1 }, { signal })),
  );
  // An empty page with a next_cursor is a search that has not come to its end: there may be such an event.
  return found.some(({ data, next_cursor }) => data.length > 0 || next_cursor !== null);
}

/** @throws ProtocolError; ConvokeError when the service refuses the call */
export async function unsubscribe(caller: Caller, params: UnsubscribeParams) {
  const id = await idOf(caller, params.delivery.url, wantedOf(params));
  const { client, signal } = caller;
  const existed = await inTurn(id, () => client.deleteInstance(id, { signal }).then(() => true, nullIfMissing));
  if (existed === null)
    throw new ProtocolError(EVENT_ERRORS.NotFound, 'There is no such subscription of this key.', {
      kind: 'subscription',
    });
  return { resultType: 'complete' };
}

/** The same key, URL, event and arguments always have the same id. */
async function idOf(caller: Caller, url: string, { meeting_id, agent }: Wanted): Promise<string> {
  const { key_id } = await caller.session();
  if (key_id === null) throw new ProtocolError(EVENT_ERRORS.Forbidden, 'A subscription belongs to a key: send one.');
  if (!URL.canParse(url)) throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'delivery.url must be a URL.');
  return `mcp-${hash('sha256', JSON.stringify([key_id, url, meeting_id, agent])).slice(0, ID_CHARS)}`;
}

/** The lease for the `ttlMs` of the client. Null asks for a lease without an end, and gets the longest one. */
function leaseSeconds(ttl_ms: number | null | undefined): number {
  if (ttl_ms === undefined) return LEASE_S.default;
  return ttl_ms === null ? LEASE_S.max : Math.min(Math.max(Math.floor(ttl_ms / 1000), LEASE_S.min), LEASE_S.max);
}

/** The category of the last failure since the last success. The extension permits no other details of the failure. */
function lastError({
  consecutive_failures,
  last_failure,
}: {
  consecutive_failures: number;
  last_failure: { outcome: Outcome; status_code: number | null } | null;
}): CallbackFailure | null {
  if (consecutive_failures === 0 || last_failure === null) return null;
  return callbackFailureOf(last_failure.outcome, last_failure.status_code);
}

function nullIfMissing(error: unknown): null {
  if (error instanceof ConvokeError && error.code === 'instance_does_not_exist') return null;
  throw error;
}
