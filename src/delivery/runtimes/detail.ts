import { CUT } from '../../domain/runtimes/words.ts';
import { withoutSecrets } from '../transport/push.ts';

/**
 * Hides secrets in the detail of an attempt. The detail may be a text of the runtime, and the runtime knows the headers
 * of its request. Where such a text was cut, a part of a secret may stand.
 */
export function detailWithoutSecrets(detail: string, headers: Record<string, string>): string {
  const pieces = detail.split(CUT);
  return pieces.map((piece, i) => withoutSecrets(piece, headers, i < pieces.length - 1)).join(CUT);
}
