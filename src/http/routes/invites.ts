/** One-time links: an admin makes one, and the machine that redeems it gets a key for one instance and its meetings. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { randomBytes } from 'node:crypto';
import type { Changes } from '../../changes/changes.ts';
import type { Log } from '../../delivery/bounded_log.ts';
import type { Clock } from '../../delivery/clock.ts';
import { digestOf, ID_BYTES, makeKeyId, makeToken, SECRET_BYTES } from '../../domain/api_key.ts';
import { assertAddressable, uniqueIds } from '../../domain/id.ts';
import {
  type Invite,
  INVITE_PATH,
  INVITE_S,
  INVITE_SECRET_BYTES,
  inviteInstanceId,
  inviteState,
  isInviteSecret,
} from '../../domain/invite.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { isoTime } from '../../domain/time.ts';
import type { InstanceStore } from '../../store/contract/instances.ts';
import type { InviteStore } from '../../store/contract/invites.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import { type Limits, publicUrlOf } from '../auth/limits.ts';
import { tokenDigestOf } from '../auth/sessions.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { isNavigation, PAGE_HEADERS, type Pages } from '../pages.ts';
import { responses } from '../responses.ts';
import { LIST_BODY_BYTES_MAX } from '../schemas/fields.ts';
import {
  CreateInviteBody,
  AnyQuery,
  InviteLinkParams,
  InviteParams,
  InviteSchema,
  InviteWithLinkSchema,
  ListInvitesQuery,
  RedeemedInviteSchema,
  RedeemInviteBody,
} from '../schemas/invites.ts';
import { pageOf } from '../schemas/page.ts';
import { wireInvite } from '../wire.ts';
import { endedInWords, pageTexts, words } from './invite_page.ts';

const PAGE = 'invite.html';

export interface InviteContext {
  store: { invites: Pick<InviteStore, 'list' | 'find'>; instances: Pick<InstanceStore, 'find'> };
  changes: Pick<Changes, 'invites'>;
  clock: Clock;
  log: Log;
  limits: Pick<Limits, 'limitFailures' | 'isHttps'>;
  audit_trail: Pick<AuditTrail, 'authorOf' | 'holderOfInvite'>;
  pages: Pick<Pages, 'completed'>;
  /** The URL at which people reach the service; null when that is not configured. */
  public_url: string | null;
}

export function inviteRoutes(app: App, context: InviteContext): void {
  app.post('/api/v1/invites/', CREATE, (request, reply) => createInvite(context, request, reply));
  app.get('/api/v1/invites/', LIST, (request) => listInvites(context, request));
  app.delete('/api/v1/invites/:invite_id/', REVOKE, (request, reply) => revokeInvite(context, request, reply));
  app.get(`${INVITE_PATH}:secret`, SHOW, (request, reply) => showInvite(context, request, reply));
  app.post('/api/v1/invites/redeem/', REDEEM, (request) => redeemInvite(context, request));
}

const CREATE = {
  bodyLimit: LIST_BODY_BYTES_MAX,
  config: { access: ['admin'], audit: { action: 'invite.create', target: 'invite' } },
  schema: {
    operationId: 'createInvite',
    tags: ['keys'],
    summary: 'Make a one-time link with which a machine joins meetings',
    description:
      'The machine redeems the link with `convoke connect LINK`, or with `POST /api/v1/invites/redeem/`. It gets a key with the scope `instance`, limited to this instance and these meetings. Only this response contains the link.',
    body: CreateInviteBody,
    response: responses({
      201: ['The invite, with its link.', InviteWithLinkSchema],
      codes: ['quota_exceeded'],
    }),
  },
} satisfies RouteShape;

async function createInvite(
  { store, changes, limits, clock, log, audit_trail, public_url }: InviteContext,
  request: RequestFor<typeof CREATE>,
  reply: FastifyReply,
) {
  const { body, principal } = request;
  const invite_id = `inv_${makeKeyId(randomBytes(ID_BYTES))}`;
  const agent_ids = uniqueIds(body.agent_ids);
  const instance_id = body.instance_id ?? inviteInstanceId(agent_ids[0]!, invite_id);
  assertAddressable('instance_id', instance_id);
  for (const meeting_id of body.meeting_ids) assertAddressable('meeting_ids', meeting_id);
  await assertNoSubscription(store, instance_id);
  const secret = randomBytes(INVITE_SECRET_BYTES).toString('base64url');
  const now = clock.wall();
  const invite = await changes.invites.create(audit_trail.authorOf(request), {
    invite_id,
    digest: digestOf(secret),
    created_by: principal.key_id,
    token_digest: tokenDigestOf(request),
    instance_id,
    meeting_ids: uniqueIds(body.meeting_ids),
    agent_ids,
    created_at: now,
    expires_at: now + (body.expires_in_s ?? INVITE_S) * 1000,
  });
  log.info({ invite_id, instance_id, by: principal.key_id }, 'an invite was made');
  const link = linkOf(request, { limits, public_url }, secret);
  return reply.code(201).send({ ...wireInvite(invite, now), link, is_public_url: public_url !== null });
}

/** A subscription keeps its key, so the store would refuse each machine that redeems such an invite. */
async function assertNoSubscription({ instances }: InviteContext['store'], instance_id: string): Promise<void> {
  const instance = await instances.find(instance_id);
  if (instance !== null && instance.lease_until !== null)
    throw invalidField('instance_id', 'is the id of a subscription of MCP Events, which keeps its key: choose another');
}

const LIST = {
  config: { access: ['admin'] },
  schema: {
    operationId: 'listInvites',
    tags: ['keys'],
    summary: 'List the invites, the latest first',
    description: 'The invites of the last 30 days, ended ones included. Their links are not shown again.',
    querystring: ListInvitesQuery,
    response: responses({ 200: ['A page of invites.', pageOf(InviteSchema)], codes: [] }),
  },
} satisfies RouteShape;

async function listInvites({ store, clock }: InviteContext, { query }: RequestFor<typeof LIST>) {
  const { data, next_cursor } = await store.invites.list({ ...query, limit: query.limit ?? 50 });
  const now = clock.wall();
  return { data: data.map((invite) => wireInvite(invite, now)), next_cursor };
}

const REVOKE = {
  config: { access: ['admin'], audit: { action: 'invite.revoke', target: 'invite' } },
  schema: {
    operationId: 'revokeInvite',
    tags: ['keys'],
    summary: 'Revoke an invite; its link is refused from the response on',
    description: 'An invite that was redeemed cannot be revoked: revoke its key instead.',
    params: InviteParams,
    response: responses({ 204: ['Revoked.'], codes: ['invite_does_not_exist', 'invite_redeemed'] }),
  },
} satisfies RouteShape;

async function revokeInvite(
  { changes, log, audit_trail }: InviteContext,
  request: RequestFor<typeof REVOKE>,
  reply: FastifyReply,
) {
  const { params, principal } = request;
  const { invite_id } = params;
  const revoked = await changes.invites.revoke(audit_trail.authorOf(request), invite_id);
  if (revoked === null) {
    throw new Problem('invite_does_not_exist', `There is no invite ${JSON.stringify(invite_id)}.`);
  }
  log.info({ invite_id, by: principal.key_id }, 'an invite was revoked');
  return reply.code(204).send();
}

/** A GET redeems nothing, because programs that preview a link or fetch it in advance send a GET too. */
const SHOW = {
  config: { access: 'public' },
  // Any query is allowed: programs through which people send links add parameters, to count clicks.
  schema: { hide: true, params: InviteLinkParams, querystring: AnyQuery },
} satisfies RouteShape;

async function showInvite(
  context: InviteContext,
  request: RequestFor<typeof SHOW>,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { pages, clock } = context;
  const { secret } = request.params;
  void reply.headers({ ...PAGE_HEADERS, 'cache-control': 'no-store', 'x-robots-tag': 'noindex' });
  const invite = await findInvite(context, request, secret).catch((error: unknown) => {
    if (error instanceof Problem && error.code === 'invite_does_not_exist') return null;
    throw error;
  });
  const state = invite === null ? null : inviteState(invite, clock.wall());
  const texts = pageTexts(invite, state, linkOf(request, context, secret));
  void reply.code(state === null ? 404 : state === 'pending' ? 200 : 410);
  const page = isNavigation(request.headers) ? await pages.completed(PAGE, { ...texts }) : null;
  if (page === null) return reply.type('text/plain; charset=utf-8').send(words(texts));
  return reply.type('text/html; charset=utf-8').send(page);
}

const REDEEM = {
  config: { access: 'public', audit: { action: 'invite.redeem', target: 'invite' } },
  schema: {
    operationId: 'redeemInvite',
    tags: ['keys'],
    summary: 'Redeem an invite: get a key for one instance and its meetings',
    description:
      'Needs no key: the end of the link is enough. The link works once. When several machines redeem it at the same moment, one of them gets a key. While the service has no keys, it gives none: `api_key` is null. GET of the link itself shows a page for people and redeems nothing.',
    body: RedeemInviteBody,
    response: responses({
      200: ['The key and the ids that the machine needs.', RedeemedInviteSchema],
      codes: ['invite_does_not_exist', 'invite_ended'],
    }),
  },
} satisfies RouteShape;

async function redeemInvite(context: InviteContext, request: RequestFor<typeof REDEEM>) {
  const { changes, clock, log, audit_trail } = context;
  const invite = await findInvite(context, request, request.body.secret);
  const key_id = makeKeyId(randomBytes(ID_BYTES));
  const token = makeToken(key_id, randomBytes(SECRET_BYTES));
  const author = audit_trail.holderOfInvite(request);
  const redeemed = await changes.invites.redeem(author, invite, { key_id, digest: digestOf(token) });
  if (redeemed === null) throw await ended(context, invite);
  const { invite_id, instance_id, meeting_ids, agent_ids } = redeemed.invite;
  const has_key = redeemed.key !== null;
  log.info(
    { invite_id, instance_id, key_id: has_key ? key_id : null, at: isoTime(clock.wall()) },
    'an invite was redeemed',
  );
  return { invite_id, instance_id, meeting_ids, agent_ids, api_key: has_key ? token : null };
}

/**
 * @throws Problem `invite_does_not_exist`; `rate_limited` for an address that has asked for too many unknown links
 */
function findInvite(
  { store, limits }: Pick<InviteContext, 'store' | 'limits'>,
  request: FastifyRequest,
  secret: string,
): Promise<Invite> {
  return limits.limitFailures(request, async () => {
    const invite = isInviteSecret(secret) ? await store.invites.find(digestOf(secret)) : null;
    if (invite === null) throw new Problem('invite_does_not_exist', 'There is no invite with this link.');
    return invite;
  });
}

/** Why an invite could not be redeemed. The invite is read again: another machine may have redeemed it first. */
async function ended({ store, clock }: Pick<InviteContext, 'store' | 'clock'>, invite: Invite): Promise<Problem> {
  const now = (await store.invites.find(invite.digest)) ?? invite;
  return new Problem('invite_ended', endedInWords(now, inviteState(now, clock.wall())));
}

function linkOf(
  request: FastifyRequest,
  { limits, public_url }: Pick<InviteContext, 'public_url'> & { limits: Pick<Limits, 'isHttps'> },
  secret: string,
): string {
  return `${publicUrlOf(request, limits, public_url)}${INVITE_PATH}${secret}`;
}
