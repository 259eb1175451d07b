/**
 * Queues deliveries of an instance again: those that failed in a period, or failed and cancelled deliveries chosen by id.
 * A dry run only counts them.
 */
import type { Static } from 'typebox';
import type { Changes } from '../../changes/changes.ts';
import type { Clock } from '../../delivery/clock.ts';
import { invalidField } from '../../domain/problem.ts';
import { isoTime } from '../../domain/time.ts';
import type { DeliveryStore, Recovery } from '../../store/contract/deliveries.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { responses } from '../responses.ts';
import { InstanceParams } from '../schemas/instances.ts';
import { RECOVERED_MAX, RecoverBody, RecoveredSchema } from '../schemas/recovery.ts';
import { existing } from './instances.ts';

/**
 * The most messages and memberships that are read to count the missed messages of an instance: some 20 ms of the store.
 */
const MISSED_ROWS_MAX = 10_000;

export interface RecoveryContext {
  store: { deliveries: Pick<DeliveryStore, 'countRecoverable' | 'countMissed'> };
  changes: Pick<Changes, 'deliveries'>;
  clock: Clock;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
  /** How long settled deliveries are kept. */
  retention_deliveries_ms: number;
}

export function recoveryRoutes(app: App, context: RecoveryContext): void {
  app.post('/api/v1/instances/:instance_id/recover/', RECOVER, (request) => recover(context, request));
}

const RECOVER = {
  config: { access: ['instance'], portal_link: true, audit: { action: 'instance.recover', target: 'instance' } },
  schema: {
    operationId: 'recover',
    tags: ['instances'],
    summary: 'Queue failed or cancelled deliveries of an instance again',
    description:
      'The deliveries that failed from `since` to `until`, or those of `delivery_ids` that failed or were cancelled, with the same webhook-id as before. With `dry_run` it only counts them. When `done` is false, call it again with the `until` of the response. No delivery is queued twice, even after a restart. To cancel, do not call it again; deliveries that are queued already are still sent. The instance gets them one after the other, beside new messages.',
    params: InstanceParams,
    body: RecoverBody,
    response: responses({
      200: ['How many were queued again, or would be.', RecoveredSchema],
      codes: ['instance_does_not_exist'],
    }),
  },
} satisfies RouteShape;

async function recover(context: RecoveryContext, request: RequestFor<typeof RECOVER>) {
  const { changes, clock, audit_trail } = context;
  const { params, body } = request;
  const { instance_id } = params;
  const { limit, dry_run = false } = body;
  const of = recoveryOf(instance_id, body, clock.wall());
  const author = audit_trail.authorOf(request);
  const until = 'until_ms' in of ? isoTime(of.until_ms) : null;
  if (dry_run) return { ...(await counted(context, of, author.owner_scope)), until, dry_run, done: true };
  const { recovered, done } = existing(await changes.deliveries.recover(author, of, limit), instance_id);
  return { recovered, until, dry_run, done };
}

/** @throws Problem `invalid_fields` unless the body names either a period or some deliveries */
function recoveryOf(instance_id: string, body: Static<typeof RecoverBody>, wall_ms: number): Recovery {
  const { since, until, delivery_ids } = body;
  if (delivery_ids !== undefined) {
    if (since !== undefined || until !== undefined)
      throw invalidField('delivery_ids', 'names the deliveries; leave out since and until');
    return { instance_id, delivery_ids };
  }
  if (since === undefined) throw invalidField('since', 'is required, unless delivery_ids names the deliveries');
  const since_ms = Date.parse(since);
  // Deliveries that fail after the call began are not queued again.
  const until_ms = until === undefined ? wall_ms : Math.min(Date.parse(until), wall_ms);
  if (until !== undefined && Date.parse(until) < since_ms) throw invalidField('until', 'must not be before since');
  return { instance_id, since_ms, until_ms };
}

async function counted(
  { store, clock, retention_deliveries_ms }: RecoveryContext,
  of: Recovery,
  owner_scope: Parameters<DeliveryStore['countRecoverable']>[2],
) {
  const { instance_id } = of;
  const found = existing(await store.deliveries.countRecoverable(of, RECOVERED_MAX + 1, owner_scope), instance_id);
  const count = { recovered: Math.min(found, RECOVERED_MAX), at_least: found > RECOVERED_MAX };
  if (!('since_ms' in of)) return count;
  // Looks back no further than deliveries are kept: a message whose delivery was removed must not count as missed.
  const since_ms = Math.max(of.since_ms, clock.wall() - retention_deliveries_ms);
  const span = { since_ms, until_ms: of.until_ms };
  return { ...count, missed: await store.deliveries.countMissed(instance_id, span, MISSED_ROWS_MAX) };
}
