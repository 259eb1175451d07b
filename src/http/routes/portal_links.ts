/** Links that show the instances of a key to its owner, inside another product's page. */
import type { FastifyReply } from 'fastify';
import type { Log } from '../../delivery/bounded_log.ts';
import type { Clock } from '../../delivery/clock.ts';
import { PORTAL_LINK_S, PORTAL_PATH } from '../../domain/portal_link.ts';
import { Problem } from '../../domain/problem.ts';
import { isoTime } from '../../domain/time.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import { type Limits, publicUrlOf } from '../auth/limits.ts';
import type { PortalLinks } from '../auth/portal_links.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { readNoBodyAsEmpty } from '../intake/no_body.ts';
import { responses } from '../responses.ts';
import { KeyParams, PortalLinkBody, PortalLinkSchema } from '../schemas/api_keys.ts';

export interface PortalLinkContext {
  portal_links: Pick<PortalLinks, 'make'>;
  clock: Clock;
  log: Log;
  limits: Pick<Limits, 'isHttps'>;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
  /** The URL at which people reach the service; null when that is not configured. */
  public_url: string | null;
}

export function portalLinkRoutes(app: App, context: PortalLinkContext): void {
  app.post('/api/v1/keys/:key_id/portal-link/', LINK, (request, reply) => makePortalLink(context, request, reply));
}

const LINK = {
  config: { access: ['admin'], audit: { action: 'portal_link.create', target: 'key' } },
  preValidation: readNoBodyAsEmpty,
  schema: {
    operationId: 'createPortalLink',
    tags: ['keys'],
    summary: 'Make a link that shows the instances of a key, for an hour at most',
    description:
      'Anybody with the link sees the instances of the key and their deliveries, tests webhooks, sends again what failed, and pauses. They neither read meetings nor take part in them, and change nothing that decides where pushes go or how they are signed. Pages of the origins in CONVOKE_PORTAL_ORIGINS may show the page in a frame. The link ends when that key or your own key is revoked, expires, or is rotated without an overlap.',
    params: KeyParams,
    body: PortalLinkBody,
    response: responses({
      201: ['The link.', PortalLinkSchema],
      codes: ['key_does_not_exist', 'key_not_active'],
    }),
  },
} satisfies RouteShape;

async function makePortalLink(
  { portal_links, limits, public_url, clock, log, audit_trail }: PortalLinkContext,
  request: RequestFor<typeof LINK>,
  reply: FastifyReply,
) {
  const { key_id } = request.params;
  const { instance_id = null, expires_in_s = PORTAL_LINK_S } = request.body;
  const maker_id = request.principal.key_id;
  if (maker_id === null)
    throw new Problem('not_permitted', 'A link needs the key that makes it: make it with an admin key.');
  const expires_at = (Math.floor(clock.wall() / 1000) + expires_in_s) * 1000;
  const token = await portal_links.make({ key_id, maker_id, expires_at, instance_id });
  await audit_trail.authorOf(request).record();
  log.info({ key_id, instance_id, by: maker_id }, 'a portal link was made');
  const link = `${publicUrlOf(request, limits, public_url)}${PORTAL_PATH}#link=${token}`;
  return reply.code(201).send({ link, expires_at: isoTime(expires_at) });
}
