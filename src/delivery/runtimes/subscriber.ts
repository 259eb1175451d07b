/**
 * The requests that a subscriber of MCP Events gets besides events: a challenge before the first event, and a notice of
 * the end of the subscription.
 */
import {
  type CallbackFailure,
  callbackFailureOf,
  isEchoOf,
  terminationOf,
  verificationOf,
} from '../../domain/runtimes/mcp_events.ts';
import { TIMEOUT_S } from '../../domain/runtimes/runtimes.ts';
import type { RuntimeRequest } from '../../domain/runtimes/runtime.ts';
import type { PushResult } from '../transport/transport.ts';
import type { WebhookTransport } from '../transport/webhook_transport.ts';
import { exchangedOf } from './exchanged.ts';
import { signatureOf } from './signature_of.ts';

interface Subscriber {
  instance_id: string;
  url: string;
  secret: string;
  /** The id of the subscription. */
  id: string;
}

/**
 * Asks a URL whether its server expects events under this secret. Without this check anybody could make the service
 * send requests to any server.
 *
 * @param challenge a text that nobody can guess
 * @returns null when the server expects them; otherwise the category of the failure
 */
export async function verifySubscriber(
  transport: Pick<WebhookTransport, 'pushFor'>,
  subscriber: Subscriber,
  challenge: string,
  wall_ms: number,
  user_agent: string,
): Promise<CallbackFailure | null> {
  const { id, url } = subscriber;
  const result = await post(transport, subscriber, verificationOf(id, challenge, url), wall_ms, user_agent);
  if (result === null) return 'timeout';
  const { outcome, status_code } = result;
  if (outcome === 'ok') return isEchoOf(challenge, exchangedOf(result).body) ? null : 'challenge_failed';
  return callbackFailureOf(outcome, status_code);
}

/**
 * Tells the subscriber once that the subscription has ended because its key was revoked. The response does not matter:
 * a subscriber that misses this request learns of the end when its next renewal fails.
 *
 * @param nonce a text that no other such request has
 */
export async function endSubscription(
  transport: Pick<WebhookTransport, 'pushFor'>,
  subscriber: Subscriber,
  nonce: string,
  wall_ms: number,
  user_agent: string,
): Promise<void> {
  await post(transport, subscriber, terminationOf(subscriber.id, nonce, subscriber.url), wall_ms, user_agent);
}

function post(
  transport: Pick<WebhookTransport, 'pushFor'>,
  { instance_id, url, secret }: Subscriber,
  request: RuntimeRequest,
  wall_ms: number,
  user_agent: string,
): Promise<PushResult | null> {
  const target = { secret, earlier_secrets: [], keys: null };
  const signed = signatureOf({ headers: { 'webhook-timestamp': String(Math.floor(wall_ms / 1000)) } }, target, request);
  return transport.pushFor(
    {
      instance_id,
      url,
      method: 'POST',
      headers: { ...request.headers, ...signed, 'user-agent': user_agent },
      body: Buffer.from(request.body),
      success_statuses: '2xx',
      keeps_body: true,
      fresh_connection: true,
    },
    TIMEOUT_S * 1000,
  );
}
