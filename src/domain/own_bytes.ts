/**
 * The bytes of a text, in memory of their own.
 *
 * Node makes small Buffers as parts of a shared piece of memory (64 KiB), and keeps the piece as long as one of its
 * parts is used. So bytes that stay in memory for longer than a request need memory of their own.
 */
export function ownBytes(text: string, encoding: 'utf8' | 'hex' = 'utf8'): Buffer {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text, encoding));
  const written = bytes.write(text, encoding);
  return written === bytes.byteLength ? bytes : bytes.subarray(0, written);
}
