import { createSecretKey, type KeyObject } from 'node:crypto';

const KEY_BYTES = 32;

/** The key that padded base64 of 32 bytes stands for; null when the text is anything else. */
export function parseDataKey(base64: string): KeyObject | null {
  const bytes = Buffer.from(base64, 'base64');
  // Buffer skips what is not base64; only what comes back the same was.
  return bytes.length === KEY_BYTES && bytes.toString('base64') === base64 ? createSecretKey(bytes) : null;
}
