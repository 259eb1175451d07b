import { timestampOf } from '../../domain/push_body.ts';

/** A NUL in the text of a message: JSON has no other way to write it. */
const ESCAPED_NUL = '\\u0000';

/**
 * The timestamp of a message, from its row. Node 22 reads a text of SQLite only up to its first NUL. So when the
 * message contains a NUL, the timestamp comes from the message.
 */
export function storedTimestamp({ timestamp, message }: { timestamp: string; message: string }): string {
  if (typeof message !== 'string' || !message.includes(ESCAPED_NUL)) return timestamp;
  try {
    return timestampOf(JSON.parse(message) as Record<string, unknown>, message);
  } catch {
    // The message is damaged, but the timestamp is not.
    return timestamp;
  }
}
