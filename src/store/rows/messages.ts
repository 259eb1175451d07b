/** Messages as both engines read them. */
import type { IdCodec } from '../../domain/id.ts';
import type { MessageHead } from '../contract/messages.ts';
import { storedTextsOrNull } from './stored_values.ts';
import type { MessagesTable } from './tables.ts';

export type HeadRow = Omit<MessagesTable, 'timestamp' | 'message'>;

/** Cuts a page out of `limit + 1` rows, and reads no more of them than it needs: at least one, and `chars_max` of lists. */
export function pageOfHeads(
  rows: Iterable<HeadRow>,
  limit: number,
  chars_max: number,
  ids: IdCodec,
): { data: MessageHead[]; has_more: boolean } {
  const data: MessageHead[] = [];
  let chars = 0;
  for (const { message_no, target_agents, ...head } of rows) {
    chars += target_agents?.length ?? 0;
    if (data.length === limit || (chars > chars_max && data.length > 0)) return { data, has_more: true };
    data.push({
      message_id: ids.encode('msg', message_no),
      ...head,
      target_agents: storedTextsOrNull(target_agents, 'messages', 'target_agents', String(message_no)),
    });
  }
  return { data, has_more: false };
}
