import type { ListMessagesQuery, MessagePage } from '@convoke/sdk';
import { parseExactly } from '../domain/exact_json.ts';
import type { Caller } from './caller.ts';

/**
 * A page of the messages of a meeting, for a model. A model copies a number as it reads it, so no digit may be lost.
 *
 * @throws ConvokeError when the service refuses the call
 */
export async function listMessages(
  { client, signal }: Caller,
  meeting_id: string,
  query: ListMessagesQuery,
): Promise<MessagePage> {
  const { data, has_more } = await client.listRawMessages(meeting_id, query, { signal });
  const exact = data.map(({ message, ...about }) => ({
    ...about,
    message: parseExactly(message.text) as Record<string, unknown>,
  }));
  return { data: exact, has_more };
}
