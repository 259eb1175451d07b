import type { Attempt } from '../../domain/outcome.ts';
import type { PushResult } from '../transport/transport.ts';

/** What one request came to, as far as HTTP goes: `ok` is any 2xx. */
export interface Exchanged extends Pick<Attempt, 'outcome' | 'status_code' | 'detail'> {
  /** Whole after a 2xx; the beginning of it otherwise. */
  body: string;
  retry_after: string | null;
}

/** What the webhook transport made of a request that keeps the body. */
export function exchangedOf(result: PushResult): Exchanged {
  const { outcome, status_code, detail, retry_after, kept_body, response_excerpt } = result;
  if (kept_body !== undefined && 'lost' in kept_body) {
    return { outcome: 'broken_response', status_code, detail: kept_body.lost, retry_after, body: response_excerpt };
  }
  return { outcome, status_code, detail, retry_after, body: kept_body?.text ?? response_excerpt };
}
