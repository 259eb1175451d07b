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
 * The keys whose last change has a higher number, in the order of the changes. Also the keys with a damaged number,
 * because it does not show when they changed: one that is too low, or above CHANGE_NO_MAX. Each half reads a range of
 * the index on `change_no`.
 *
 * @param rows a statement that reads all keys
 * @param change_no a parameter that is at least 0, and at most CHANGE_NO_MAX
 */
export const changedSince = (rows: string, change_no: string): string =>
  `${rows} WHERE change_no > ${change_no} UNION ALL ${rows} WHERE change_no < 1 ORDER BY change_no`;

/**
 * A condition that each lasting admin key meets. A row with a damaged list of scopes may meet it too. The index
 * `api_keys_of_admins` has exactly this condition, so the keys of machines are not read.
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
