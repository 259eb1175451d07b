import type { Attempt } from '../../domain/outcome.ts';
import type { PushResult } from '../transport/transport.ts';

/** The result of one request, by HTTP alone: `ok` is any 2xx. */
export interface Exchanged extends Pick<Attempt, 'outcome' | 'status_code' | 'detail'> {
  /** The whole body after a 2xx; otherwise its beginning. */
  body: string;
  /** The beginning of the body, as it is stored and shown. */
  excerpt: string;
  retry_after: string | null;
}

/** The result of the webhook transport, for a request that keeps the body. */
export function exchangedOf(result: PushResult): Exchanged {
  const { status_code, detail, retry_after, kept_body, response_excerpt: excerpt } = result;
  if (kept_body !== undefined && 'lost' in kept_body) {
    const outcome = kept_body.is_late === true ? 'timeout' : 'broken_response';
    return { outcome, status_code, detail: kept_body.lost, retry_after, body: excerpt, excerpt };
  }
  return { outcome: result.outcome, status_code, detail, retry_after, body: kept_body?.text ?? excerpt, excerpt };
}
