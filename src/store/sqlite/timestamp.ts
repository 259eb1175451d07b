import { timestampOf } from '../../domain/push_body.ts';

/** What a NUL is in the text of a message: JSON has no other spelling of it. */
const ESCAPED_NUL = '\\u0000';

/**
 * The timestamp of a message, as its row has it. Node 22 reads a text of SQLite up to its first NUL and no further, so a
 * timestamp that may have one is taken from the message.
 */
export function storedTimestamp({ timestamp, message }: { timestamp: string; message: string }): string {
  if (typeof message !== 'string' || !message.includes(ESCAPED_NUL)) return timestamp;
  try {
    return timestampOf(JSON.parse(message) as Record<string, unknown>, message);
  } catch {
    // Damaged. The timestamp is not.
    return timestamp;
  }
}
