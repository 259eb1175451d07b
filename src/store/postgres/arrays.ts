/**
 * Lists as PostgreSQL takes them in binary: the `array_send` format of its wire protocol. As text, which is what the driver makes
 * of a list, every element is escaped here and parsed there: 0.2 to 1 µs instead of 0.01 to 0.1, and a batch has ten thousand.
 */

/** Dimensions, whether there are NULLs, and the type; then the length of the only dimension, and its first index. */
const EMPTY_HEAD_BYTES = 12;
const HEAD_BYTES = 20;
const LENGTH_BYTES = 4;
const NULL_LENGTH = -1;

/** Object ids of the types: catalog/pg_type.dat. */
const INT8 = 20;
const INT2 = 21;
const INT4 = 23;
const TEXT = 25;

/**
 * `bigint[]`
 *
 * @throws RangeError for what is no safe integer, as those below
 */
export function bigints(values: readonly (number | null)[]): Buffer {
  const { bytes, view } = roomFor(values.length * (LENGTH_BYTES + 8));
  let at = HEAD_BYTES;
  for (const value of values) {
    view.setInt32(at, value === null ? NULL_LENGTH : 8);
    at += LENGTH_BYTES;
    if (value === null) continue;
    assertInteger(value);
    const upper = Math.floor(value / 2 ** 32);
    view.setInt32(at, upper);
    view.setUint32(at + 4, value - upper * 2 ** 32);
    at += 8;
  }
  return withHead(bytes, view, INT8, values, at);
}

/** `int[]` */
export function ints(values: readonly number[]): Buffer {
  return integers(values, INT4, 4, (view, at, value) => view.setInt32(at, value));
}

/** `smallint[]` */
export function smallints(values: readonly number[]): Buffer {
  return integers(values, INT2, 2, (view, at, value) => view.setInt16(at, value));
}

function integers(
  values: readonly number[],
  type: number,
  width: number,
  write: (view: DataView, at: number, value: number) => void,
): Buffer {
  const { bytes, view } = roomFor(values.length * (LENGTH_BYTES + width));
  let at = HEAD_BYTES;
  for (const value of values) {
    assertInteger(value);
    view.setInt32(at, width);
    write(view, at + LENGTH_BYTES, value);
    at += LENGTH_BYTES + width;
  }
  return withHead(bytes, view, type, values, at);
}

/** `text[]`. A lone surrogate becomes U+FFFD, as in any other text; a NUL is refused by the server. */
export function texts(values: readonly (string | null)[]): Buffer {
  let elements_bytes = 0;
  for (const value of values) elements_bytes += LENGTH_BYTES + (value === null ? 0 : Buffer.byteLength(value));
  const { bytes, view } = roomFor(elements_bytes);
  let at = HEAD_BYTES;
  for (const value of values) {
    const length = value === null ? NULL_LENGTH : bytes.write(value, at + LENGTH_BYTES);
    view.setInt32(at, length);
    at += LENGTH_BYTES + Math.max(length, 0);
  }
  return withHead(bytes, view, TEXT, values, at);
}

/** As text, the server would refuse it; here it would become some other number. */
function assertInteger(value: number): void {
  if (!Number.isSafeInteger(value)) throw new RangeError(`${String(value)} is not a safe integer`);
}

function roomFor(elements_bytes: number): { bytes: Buffer; view: DataView } {
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + elements_bytes);
  return { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.length) };
}

function withHead(bytes: Buffer, view: DataView, type: number, values: readonly unknown[], end: number): Buffer {
  const is_empty = values.length === 0;
  view.setInt32(0, is_empty ? 0 : 1);
  view.setInt32(4, values.includes(null) ? 1 : 0);
  view.setInt32(8, type);
  if (is_empty) return bytes.subarray(0, EMPTY_HEAD_BYTES);
  view.setInt32(12, values.length);
  view.setInt32(16, 1);
  return bytes.subarray(0, end);
}
