import type { Message, RawMessage } from '@convoke/sdk';
import { parseExactly } from '../domain/exact_json.ts';

/**
 * A message of a page, for a model or a program. Both copy a number as they read it, so no digit may be lost. To read
 * all messages of a page in this way can take seconds, so a caller reads only those that its result has.
 */
export function exactly({ message, ...about }: RawMessage): Message {
  return { ...about, message: parseExactly(message.text) as Record<string, unknown> };
}
