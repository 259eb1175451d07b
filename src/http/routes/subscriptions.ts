/** The checks of a registration that is a subscription of MCP Events: its lease, and the challenge at its URL. */
import { randomBytes } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { FastifyRequest } from 'fastify';
import type { Clock } from '../../delivery/clock.ts';
import { verifySubscriber } from '../../delivery/runtimes/subscriber.ts';
import { LEASE_S } from '../../domain/instance.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import type { RuntimeSettings } from '../../domain/runtimes/runtimes.ts';
import type { InstanceStore, Registration } from '../../store/contract/instances.ts';
import type { Keyring } from '../auth/keyring.ts';
import { tokenDigestOf } from '../auth/sessions.ts';
import { assertStanding } from '../auth/standing.ts';
import type { TestPushes } from '../test_pushes.ts';

interface SubscriptionContext {
  store: { instances: Pick<InstanceStore, 'find'> };
  test_pushes: TestPushes;
  keyring: Pick<Keyring, 'known'>;
  clock: Clock;
  user_agent: string;
}

interface Given {
  instance_id: string;
  lease_s?: number;
  webhook_url?: string;
  webhook_secret?: string;
}

const CHALLENGE_BYTES = 24;
const LOOPBACK = /^(localhost|127\.[0-9.]+|\[::1\])$/;

/**
 * When a subscription ends unless it is renewed, and the token that asks for it; nothing for every other instance.
 * Before the first registration, the server at the URL must answer a challenge.
 *
 * @throws Problem `invalid_fields`, `api_key_missing`, `callback_not_verified`, `overloaded`; `api_key_revoked` and the
 * like when the key ended while the challenge was open
 */
export async function leaseOf(
  context: SubscriptionContext,
  { instance_id, lease_s, webhook_url = '', webhook_secret }: Given,
  request: Pick<FastifyRequest, 'principal' | 'standing' | 'signed_in'>,
  response: ServerResponse,
  runtime: RuntimeSettings | null,
): Promise<Pick<Registration, 'lease_until' | 'token_digest'>> {
  if (runtime?.name !== 'mcp_events') {
    if (lease_s !== undefined) throw invalidField('lease_s', 'is for the runtime mcp_events');
    return {};
  }
  const { key_id, owner_scope } = request.principal;
  const { store, test_pushes, keyring, clock, user_agent } = context;
  if (key_id === null || keyring.known(key_id) === null)
    throw new Problem('api_key_missing', 'A subscription belongs to a key and ends with it: send a key.');
  if (webhook_secret === undefined) throw invalidField('webhook_secret', 'is required by the runtime mcp_events');
  const { protocol, hostname } = new URL(webhook_url);
  if (protocol !== 'https:' && !LOOPBACK.test(hostname))
    throw invalidField('webhook_url', 'must be https for MCP Events; http is for this machine only');
  const wall_ms = clock.wall();
  const visibility = owner_scope === null ? null : { owner_scope, meeting_ids: [] };
  const known = await store.instances.find(instance_id, visibility);
  const is_verified =
    known !== null &&
    known.owner_key_id === key_id &&
    known.webhook_url === webhook_url &&
    (known.lease_until ?? 0) > wall_ms;
  if (!is_verified) {
    const subscriber = { instance_id, url: webhook_url, secret: webhook_secret, id: runtime.options['id'] as string };
    const challenge = randomBytes(CHALLENGE_BYTES).toString('base64url');
    const failure = await test_pushes.make({ instance_id, key_id }, response, (transport) =>
      verifySubscriber(transport, subscriber, challenge, wall_ms, user_agent),
    );
    if (failure !== null)
      throw new Problem(
        'callback_not_verified',
        `The program at webhook_url did not answer the challenge: ${failure}.`,
        {
          errors: [{ path: 'webhook_url', message: failure }],
        },
      );
    // The program may hold its answer back for seconds, and in that time the key may be revoked.
    assertStanding(request.standing);
  }
  return { lease_until: wall_ms + (lease_s ?? LEASE_S.default) * 1000, token_digest: tokenDigestOf(request) };
}
