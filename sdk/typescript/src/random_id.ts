const BYTES = 16;

/**
 * crypto.randomUUID would be simpler, but browsers offer it only to pages that were loaded over https or from
 * localhost.
 */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
