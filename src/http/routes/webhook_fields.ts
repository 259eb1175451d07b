/** The fields of a request that say where pushes go. */
import { RESERVED_HEADERS } from '../../delivery/transport/push.ts';
import type { EgressPolicy } from '../../domain/address.ts';
import type { TransportName } from '../../domain/instance.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { isRefusal, parseWebhookUrl } from '../../domain/webhook_url.ts';

/** The URL of a machine that pulls is only shown, so the egress policy does not apply to it. */
export function assertUrlAllowed(webhook_url: string, transport: TransportName, policy: EgressPolicy): void {
  const parsed = parseWebhookUrl(webhook_url, policy);
  if (!isRefusal(parsed) || (parsed.policy_denied && transport === 'pull')) return;
  if (!parsed.policy_denied) throw invalidField('webhook_url', parsed.message);
  throw new Problem('webhook_url_not_allowed', `webhook_url ${parsed.message}`, {
    errors: [{ path: 'webhook_url', message: parsed.message }],
  });
}

/** The headers with lower-case names. Refuses names that Convoke sets itself. */
export function webhookHeaders(headers: Record<string, string> | undefined): Record<string, string> | undefined {
  if (headers === undefined) return undefined;
  const lowered = new Map<string, string>();
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase();
    if (RESERVED_HEADERS.has(lower))
      throw invalidField(`webhook_headers.${name}`, 'is set by Convoke itself; leave it out');
    if (lowered.has(lower)) throw invalidField(`webhook_headers.${name}`, 'is there twice, in different letters');
    lowered.set(lower, value.trim());
  }
  return Object.fromEntries(lowered);
}
