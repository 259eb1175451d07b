import type { RuntimeRequest } from '../../domain/runtimes/runtime.ts';
import { signPush } from '../../domain/signature.ts';
import { type SigningTarget, signingKeysOf } from '../transport/target.ts';
import type { Push } from '../transport/transport.ts';

/**
 * The headers that sign a request to a runtime, under the names that the runtime knows. The signature covers the bytes
 * that are sent. The signed id is `signed_id`, or the id of the delivery when the request has no `signed_id`. The
 * signed time is the time of the attempt.
 */
export function signatureOf(
  { headers }: Pick<Push, 'headers'>,
  target: SigningTarget,
  { signed_as, signed_id, body }: Pick<RuntimeRequest, 'signed_as' | 'signed_id' | 'body'>,
): Record<string, string> {
  if (signed_as === undefined) return {};
  const id = signed_id ?? headers['webhook-id'] ?? '';
  const timestamp_s = Number(headers['webhook-timestamp']);
  const keys = signingKeysOf(target, timestamp_s * 1000);
  return {
    [`${signed_as}-id`]: id,
    [`${signed_as}-timestamp`]: String(timestamp_s),
    [`${signed_as}-signature`]: signPush(keys, id, timestamp_s, Buffer.from(body)),
  };
}
