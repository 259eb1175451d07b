import type { EgressPolicy } from '../../domain/address.ts';
import { isRefusal, parseWebhookUrl } from '../../domain/webhook_url.ts';
import type { Store } from '../../store/store.ts';

const PAGE = 1_000;

/** An instance whose stored URL the current policy refuses. The reason names an address only if the URL contains it. */
export interface RefusedUrl {
  instance_id: string;
  reason: string;
}

/**
 * Checks every stored webhook_url: the policy may have changed since the URL was registered. A refused URL stays
 * stored; its pushes end as `blocked`, until the policy or the URL changes.
 */
export async function* refusedUrls(store: Store, policy: EgressPolicy): AsyncGenerator<RefusedUrl> {
  let after: string | null = null;
  for (;;) {
    const stored: { instance_id: string; webhook_url: string }[] = await store.instances.webhookUrls(after, PAGE);
    for (const { instance_id, webhook_url } of stored) {
      const parsed = parseWebhookUrl(webhook_url, policy);
      if (isRefusal(parsed)) yield { instance_id, reason: `webhook_url ${parsed.message}` };
    }
    if (stored.length < PAGE) return;
    after = stored.at(-1)!.instance_id;
  }
}
