/**
 * What the holder of a portal link may do: look at the instances of its key and their deliveries, test a webhook, send
 * again what failed, pause, and change settings that can be set back. A route or a field is closed to links unless it
 * says that it is open. The reasons are in docs/portal.md.
 */
import type { Principal } from './access.ts';
import { Problem } from './problem.ts';

/** True: open to portal links. A sentence: closed, and the sentence says why. */
export type PortalRight = true | string;

const CLOSED = 'A portal link shows instances and helps them to hear again. It does nothing else.';

const FIELDS: Partial<Record<string, PortalRight>> = {
  instance_name: true,
  is_active: true,
  webhook_enabled: true,
  success_statuses: true,
  timeout_s: true,
  ack_timeout_s: true,
  webhook_url: 'its holder could read meetings at an address of their own',
  webhook_headers:
    'they may decide to whom a receiver gives the pushes, and no one can read the old ones to restore them',
  agent_ids: 'they decide for whom the instance may speak',
  replies: 'its holder could speak in meetings by responses to pushes',
};

/** @throws Problem `not_permitted` when the caller is a portal link and the route is not open to links */
export function assertOpenToLinks({ is_portal_link }: Principal, right: PortalRight = CLOSED): void {
  if (is_portal_link && right !== true) throw new Problem('not_permitted', `${right} Use the key itself.`);
}

/** @throws Problem `not_permitted` when a portal link changes a field of an instance that is not open to links */
export function assertFieldsOpenToLinks(principal: Principal, fields: Iterable<string>): void {
  for (const field of fields) {
    const right = FIELDS[field];
    if (right !== true) {
      const why = right === undefined ? '' : `: ${right}`;
      assertOpenToLinks(principal, `A portal link does not change ${field}${why}.`);
    }
  }
}
