/** API keys as both engines read them. */
import { type ApiKey, type Scope, SCOPES } from '../../domain/api_key.ts';
import { storedEarlier } from './earlier.ts';
import type { Weighed } from './page.ts';
import { storedCount, storedTexts, storedTextsOrNull } from './stored_values.ts';
import type { ApiKeysTable } from './tables.ts';

/**
 * The highest valid `change_no`. A higher one is damaged, and the number of the next change is not counted from it.
 * Otherwise one damaged row could use up the numbers, and nobody could change a key any more.
 */
export const CHANGE_NO_MAX = 2 ** 52;

/**
 * A condition: the last change of a key has a higher number. Also true for a damaged number, because it does not show
 * when the key changed.
 */
export const isChangedSince = (change_no: string): string =>
  `(change_no > ${change_no} OR change_no NOT BETWEEN 1 AND ${CHANGE_NO_MAX})`;

/**
 * A condition that each lasting admin key meets. A row with a damaged list of scopes may meet it too. Keys of machines
 * do not meet it: there may be a hundred thousand of them.
 */
export const MAY_BE_LASTING_ADMIN = `revoked_at IS NULL AND expires_at IS NULL AND scopes LIKE '%"admin"%'`;

/** The bytes of the long column of a key. */
export const API_KEY_BYTES = 'coalesce(octet_length(meeting_ids), 0)';

export function apiKeyOf(row: ApiKeysTable & Partial<Weighed>): ApiKey {
  const { previous_digest, previous_until, earlier_tokens, row_bytes: _, ...rest } = row;
  const { key_id } = row;
  const earlier = { newest: previous_digest, until: previous_until, list: earlier_tokens };
  return {
    ...rest,
    earlier_tokens: storedEarlier(earlier, 'api_keys', 'earlier_tokens', key_id),
    // A damaged list gives no rights: it is read as an empty list of scopes, or of meetings.
    scopes: storedTexts(row.scopes, 'api_keys', 'scopes', key_id).filter((scope) =>
      SCOPES.includes(scope as Scope),
    ) as Scope[],
    meeting_ids: storedTextsOrNull(row.meeting_ids, 'api_keys', 'meeting_ids', key_id),
    change_no: storedCount(row.change_no > CHANGE_NO_MAX ? -1 : row.change_no, 'api_keys', 'change_no', key_id),
  };
}
