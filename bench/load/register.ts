import type { AuditAction } from '../../src/domain/audit.ts';
import type { AuditedStore } from '../../src/store/store.ts';
import { type Fleet, membersOf, SECRET } from './fleet.ts';

/** How many calls are made at a time. One transaction of the store takes all calls that arrive together. */
const CALLS = 500;

/**
 * Registers the instances of a fleet and lets each join its meeting, through the methods of the store.
 *
 * @param storeFor the store to use for this change by this instance
 * @param wall_ms the time at which the instances register and join
 */
export async function registerFleet(
  storeFor: (action: AuditAction, instance_id: string) => Pick<AuditedStore, 'instances' | 'meetings'>,
  fleet: Fleet,
  wall_ms: number,
): Promise<void> {
  let calls: Promise<unknown>[] = [];
  for (const { instance_id, meeting_id, agent_id, transport, webhook_url } of membersOf(fleet)) {
    calls.push(
      storeFor('instance.register', instance_id).instances.register(
        {
          instance_id,
          instance_name: instance_id,
          agent_ids: [agent_id],
          transport,
          webhook_url,
          webhook_headers: undefined,
          webhook_secret: SECRET,
          new_secret: SECRET,
          success_statuses: undefined,
        },
        wall_ms,
      ),
      storeFor('meeting.join', instance_id).meetings.join(meeting_id, instance_id, [agent_id], wall_ms),
    );
    if (calls.length >= CALLS) {
      await Promise.all(calls);
      calls = [];
    }
  }
  await Promise.all(calls);
}
