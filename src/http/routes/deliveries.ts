import { assertMeeting } from '../../domain/access.ts';
import { Problem } from '../../domain/problem.ts';
import { responses } from '../responses.ts';
import { queuedEvent } from '../../feed/events.ts';
import type { App, HttpContext } from '../context.ts';
import {
  DeliveryParams,
  DeliverySchema,
  DeliveryWithAttemptsSchema,
  ListDeliveriesQuery,
} from '../schemas/deliveries.ts';
import { pageOf } from '../schemas/page.ts';
import { wireDelivery, wireDeliveryWithAttempts } from '../wire.ts';

export function deliveryRoutes(
  app: App,
  { store, engine, clock, expire_after_ms, audit_trail, feed }: HttpContext,
): void {
  app.get(
    '/api/v1/deliveries/',
    {
      config: { access: ['read', 'instance'] },
      schema: {
        operationId: 'listDeliveries',
        tags: ['deliveries'],
        summary: 'List deliveries, newest first',
        description: 'What became of each message at each instance. Those that are settled are removed after a while.',
        querystring: ListDeliveriesQuery,
        response: responses({ 200: ['A page of deliveries.', pageOf(DeliverySchema)], codes: [] }),
      },
    },
    async ({ query, principal }) => {
      if (query.meeting_id !== undefined) assertMeeting(principal, query.meeting_id);
      const page = await store.deliveries.list(
        { ...query, limit: query.limit ?? 50 },
        clock.now(),
        principal.visibility,
      );
      return { data: page.data.map(wireDelivery), next_cursor: page.next_cursor };
    },
  );

  app.get(
    '/api/v1/deliveries/:delivery_id/',
    {
      config: { access: ['read', 'instance'] },
      schema: {
        operationId: 'getDelivery',
        tags: ['deliveries'],
        summary: 'One delivery with every attempt',
        description: 'What was answered to each attempt, when the next one comes, and what the delivery waits for.',
        params: DeliveryParams,
        response: responses({
          200: ['The delivery.', DeliveryWithAttemptsSchema],
          codes: ['delivery_does_not_exist'],
        }),
      },
    },
    async ({ params: { delivery_id }, principal }) => {
      const row = await store.deliveries.get(delivery_id, clock.now(), principal.visibility);
      if (row === null) throw deliveryNotFound(delivery_id);
      return wireDeliveryWithAttempts(row);
    },
  );

  app.post(
    '/api/v1/deliveries/:delivery_id/retry/',
    {
      config: { access: ['instance'], audit: { action: 'delivery.retry', target: 'delivery' } },
      schema: {
        operationId: 'retryDelivery',
        tags: ['deliveries'],
        summary: 'Queue a delivery again at once, with the same webhook-id',
        description:
          'One that failed, or one that is pending and would be tried later. A receiver that handled it skips it by its webhook-id.',
        params: DeliveryParams,
        response: responses({
          200: ['The delivery, pending.', DeliveryWithAttemptsSchema],
          codes: ['delivery_does_not_exist', 'delivery_not_retryable'],
        }),
      },
    },
    async (request) => {
      const { params, principal } = request;
      const { delivery_id } = params;
      const now = clock.now();
      const { deliveries } = audit_trail.storeFor(request);
      const retried = await deliveries.retry(delivery_id, now, now + expire_after_ms, principal.owner_scope);
      if (retried === null) throw deliveryNotFound(delivery_id);
      const row = await store.deliveries.get(delivery_id, now);
      engine.deliveryRetried({ ...retried, delivery_id });
      const { instance_id, meeting_id } = retried;
      feed.publish(queuedEvent({ instance_id, meeting_id, delivery_id, deliveries: 1 }, clock.wall()));
      if (row === null) throw deliveryNotFound(delivery_id);
      return wireDeliveryWithAttempts(row);
    },
  );
}

function deliveryNotFound(delivery_id: string): Problem {
  return new Problem(
    'delivery_does_not_exist',
    `There is no delivery ${JSON.stringify(delivery_id)}; settled ones are removed after a while.`,
  );
}
