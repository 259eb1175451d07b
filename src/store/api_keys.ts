/** API keys as both engines read them. */
import type { ApiKey, Scope } from '../domain/api_key.ts';
import type { ApiKeysTable } from './tables.ts';

export function apiKeyOf(row: ApiKeysTable): ApiKey {
  return {
    ...row,
    scopes: JSON.parse(row.scopes) as Scope[],
    meeting_ids: row.meeting_ids === null ? null : (JSON.parse(row.meeting_ids) as string[]),
  };
}
