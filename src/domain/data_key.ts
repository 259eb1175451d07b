import { createSecretKey, type KeyObject } from 'node:crypto';

const KEY_BYTES = 32;

/** Reads the data key from a text, the padded base64 of 32 bytes; null when the text is anything else. */
export function parseDataKey(base64: string): KeyObject | null {
  const bytes = Buffer.from(base64, 'base64');
  // Buffer skips characters that are not base64. So the text was base64 only if the bytes, encoded again, give the same
  // text.
  return bytes.length === KEY_BYTES && bytes.toString('base64') === base64 ? createSecretKey(bytes) : null;
}
