/** API keys as both engines read them. */
import { type ApiKey, type Scope, SCOPES } from '../../domain/api_key.ts';
import { storedTexts, storedTextsOrNull } from './stored_values.ts';
import type { ApiKeysTable } from './tables.ts';

export function apiKeyOf(row: ApiKeysTable): ApiKey {
  const { key_id } = row;
  return {
    ...row,
    // A damaged row never gives more rights than it held: it counts as no scope, or no meeting.
    scopes: storedTexts(row.scopes, 'api_keys', 'scopes', key_id).filter((scope) =>
      SCOPES.includes(scope as Scope),
    ) as Scope[],
    meeting_ids: storedTextsOrNull(row.meeting_ids, 'api_keys', 'meeting_ids', key_id),
  };
}
