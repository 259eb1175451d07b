/** Messages as both engines read them. */
import type { Said } from '../../domain/said.ts';
import type { IdCodec } from '../../domain/id.ts';
import type { MessageHead, MessageRow } from '../contract/messages.ts';
import { storedCount, storedObjectJson, storedTextsOrNull } from './stored_values.ts';
import type { MessagesTable } from './tables.ts';

/** The columns of `Said`. */
export type SaidColumns = Pick<MessagesTable, 'from_agent' | 'in_reply_to' | 'hops'>;

/** The columns of each message that a page of a meeting reads. */
export type PagedRow = SaidColumns &
  Pick<MessagesTable, 'message_no' | 'seq' | 'accepted_at' | 'target_agents' | 'message'>;

export function saidOf({ from_agent, in_reply_to, hops }: SaidColumns, message_no: number, ids: IdCodec): Said | null {
  if (from_agent === null && in_reply_to === null) return null;
  return {
    from_agent,
    in_reply_to: in_reply_to === null ? null : ids.encode('msg', in_reply_to),
    hops: storedCount(hops, 'messages', 'hops', String(message_no)),
  };
}

/** Cuts a page out of `limit + 1` rows, and reads no more of them than it needs. The first message always fits. */
export function pageOfMessages(
  rows: Iterable<PagedRow>,
  { limit, chars_max, forward }: { limit: number; chars_max: number; forward: boolean },
  ids: IdCodec,
): { data: MessageRow[]; has_more: boolean } {
  const data: MessageRow[] = [];
  let has_more = false;
  let chars = 0;
  for (const { message_no, seq, accepted_at, target_agents, message, ...said } of rows) {
    chars += message.length;
    has_more = data.length === limit || (chars > chars_max && data.length > 0);
    if (has_more) break;
    data.push({
      message_id: ids.encode('msg', message_no),
      seq,
      accepted_at,
      target_agents: targetsOf(target_agents, message_no),
      said: saidOf(said, message_no, ids),
      message: storedObjectJson(message, 'messages', 'message', String(message_no)),
    });
  }
  if (!forward) data.reverse();
  return { data, has_more };
}

export type HeadRow = Omit<MessagesTable, 'timestamp' | 'message'>;

/** Cuts a page out of `limit + 1` rows, as above, where `chars_max` bounds the lists of agents. */
export function pageOfHeads(
  rows: Iterable<HeadRow>,
  limit: number,
  chars_max: number,
  ids: IdCodec,
): { data: MessageHead[]; has_more: boolean } {
  const data: MessageHead[] = [];
  let chars = 0;
  for (const { message_no, target_agents, from_agent, in_reply_to, hops, ...head } of rows) {
    chars += target_agents?.length ?? 0;
    if (data.length === limit || (chars > chars_max && data.length > 0)) return { data, has_more: true };
    data.push({
      message_id: ids.encode('msg', message_no),
      ...head,
      target_agents: targetsOf(target_agents, message_no),
      said: saidOf({ from_agent, in_reply_to, hops }, message_no, ids),
    });
  }
  return { data, has_more: false };
}

function targetsOf(target_agents: string | null, message_no: number): string[] | null {
  return storedTextsOrNull(target_agents, 'messages', 'target_agents', String(message_no));
}
