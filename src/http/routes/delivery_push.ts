/** The POST that an attempt of a delivery makes, without its secrets. */
import type { Clock } from '../../delivery/clock.ts';
import { pushHeaders } from '../../delivery/transport/push.ts';
import type { Instance } from '../../domain/instance.ts';
import { pushBody, pushBodyHead, timestampOf } from '../../domain/push_body.ts';
import type { DeliveryStore } from '../../store/contract/deliveries.ts';
import type { InstanceStore } from '../../store/contract/instances.ts';
import type { FoundMessage, MessageStore } from '../../store/contract/messages.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { responses } from '../responses.ts';
import { DeliveryParams } from '../schemas/deliveries.ts';
import { DeliveryPushSchema, HIDDEN, SIGNATURE } from '../schemas/delivery_push.ts';
import { deliveryNotFound } from './deliveries.ts';

export interface DeliveryPushContext {
  store: {
    deliveries: Pick<DeliveryStore, 'get'>;
    messages: Pick<MessageStore, 'get'>;
    instances: Pick<InstanceStore, 'find'>;
  };
  clock: Clock;
  user_agent: string;
}

export function deliveryPushRoutes(app: App, context: DeliveryPushContext): void {
  app.get('/api/v1/deliveries/:delivery_id/push/', GET_DELIVERY_PUSH, (request) => getDeliveryPush(context, request));
}

const GET_DELIVERY_PUSH = {
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'getDeliveryPush',
    tags: ['deliveries'],
    summary: 'The request that an attempt of a delivery makes',
    description: `Its headers and its body, for the latest attempt; if none was made, for the first. The address and the headers are those of the instance now. Values of webhook_headers are \`${HIDDEN}\`, and the signature is \`${SIGNATURE}\`. The response to each attempt is with the delivery.`,
    params: DeliveryParams,
    response: responses({ 200: ['The request.', DeliveryPushSchema], codes: ['delivery_does_not_exist'] }),
  },
} satisfies RouteShape;

async function getDeliveryPush(
  { store, clock, user_agent }: DeliveryPushContext,
  { params: { delivery_id }, principal: { visibility } }: RequestFor<typeof GET_DELIVERY_PUSH>,
) {
  const delivery = await store.deliveries.get(delivery_id, clock.now(), visibility);
  // A message is kept as long as it has a delivery. It can be missing here only if the delivery was removed just now.
  const message = delivery === null ? null : await store.messages.get(delivery.message_id);
  if (delivery === null || message === null) throw deliveryNotFound(delivery_id);
  const instance = await store.instances.find(delivery.instance_id, visibility);
  const { attempt = 1, started_at } = delivery.attempts.at(-1) ?? {};
  const timestamp_s = Math.floor((started_at === undefined ? clock.wall() : Date.parse(started_at)) / 1000);
  // Leaves out the headers of a trace: they are for tools that watch, and not for the receiver.
  const of = { ...delivery, origin: message.origin, trace: null };
  return {
    delivery_id,
    url: instance === null || instance.webhook_url === '' ? null : instance.webhook_url,
    runtime: instance?.runtime?.name ?? null,
    headers: pushHeaders(hiddenHeaders(instance), of, attempt, timestamp_s, SIGNATURE, user_agent),
    body: bodyOf(message, delivery.target_agents),
  };
}

function hiddenHeaders(instance: Instance | null): Record<string, string> {
  return Object.fromEntries(Object.keys(instance?.webhook_headers ?? {}).map((name) => [name, HIDDEN]));
}

function bodyOf({ meeting_id, message }: FoundMessage, target_agents: string[]): string {
  const timestamp = timestampOf(JSON.parse(message) as Record<string, unknown>, message);
  const body = pushBody(pushBodyHead(meeting_id, message), JSON.stringify(target_agents), timestamp);
  return Buffer.from(body).toString();
}
