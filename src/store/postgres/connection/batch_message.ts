/**
 * The messages that run a prepared statement with a batch of values, in PostgreSQL's wire protocol. Lists are in the
 * binary format of `array_send`: an element takes 0.01 to 0.1 µs, and a batch has ten thousand elements. The driver
 * would send lists as text, which one side escapes and the other parses, in 0.2 to 1 µs for each element. The driver
 * also begins each message in 256 bytes of new memory, and enlarges that memory in steps. `BatchMessage` uses the
 * memory of the previous batch again.
 */

/** The object ids of the types, from catalog/pg_type.dat of PostgreSQL. */
const INT8 = 20;
const INT2 = 21;
const INT4 = 23;
const TEXT = 25;

/** A list that is one value of a statement. */
export interface List {
  readonly type: typeof INT8 | typeof INT4 | typeof INT2 | typeof TEXT;
  readonly values: readonly (number | string | null)[];
}

/**
 * A list of the type `bigint[]`.
 *
 * @throws RangeError for a value that is no safe integer; the next two functions also throw it
 */
export function bigints(values: readonly (number | null)[]): List {
  return { type: INT8, values: integers(values) };
}

/** A list of the type `int[]`. */
export function ints(values: readonly number[]): List {
  return { type: INT4, values: integers(values) };
}

/** A list of the type `smallint[]`. */
export function smallints(values: readonly number[]): List {
  return { type: INT2, values: integers(values) };
}

/** A list of the type `text[]`. A lone surrogate becomes U+FFFD, as in any other text. The server refuses a NUL. */
export function texts(values: readonly (string | null)[]): List {
  return { type: TEXT, values };
}

/**
 * Refuses values that are no integers. The server does so only for values that are sent as text: in binary, such a
 * value would become some other number.
 */
function integers(values: readonly (number | null)[]): typeof values {
  for (const value of values) {
    if (value !== null && !Number.isSafeInteger(value)) throw new RangeError(`${String(value)} is not a safe integer`);
  }
  return values;
}

/** A value of a statement that is run with a batch. */
export type BatchValue = List | string | number | boolean | null;

/** The format codes: lists are sent in binary, other values as text. */
const BINARY = 1;
const AS_TEXT = 0;

/**
 * The head of a list: the number of dimensions, whether there are NULLs, and the type. A list that is not empty adds
 * its length and its first index.
 */
const EMPTY_HEAD_BYTES = 12;
const HEAD_BYTES = 20;
const LENGTH_BYTES = 4;
const NULL_LENGTH = -1;
const WIDTHS = { [INT8]: 8, [INT4]: 4, [INT2]: 2 };

const START_BYTES = 64 << 10;
/** A buffer that one large batch has made larger than this is dropped afterwards. */
const KEPT_BYTES_MAX = 1 << 20;

/** Describe the unnamed portal, Execute it, and Sync. */
const RUN = Buffer.from('D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04', 'latin1');

/** The writer of one connection: each message overwrites the previous one. */
export class BatchMessage {
  #bytes = Buffer.allocUnsafeSlow(START_BYTES);
  #view = viewOf(this.#bytes);
  #at = 0;

  /** Bind, Describe, Execute and Sync, for the prepared statement of this name. */
  of(name: string, values: readonly BatchValue[]): Buffer {
    this.#at = 0;
    if (this.#bytes.length > KEPT_BYTES_MAX) this.#replace(START_BYTES);
    this.#room(1 + LENGTH_BYTES + 1 + Buffer.byteLength(name) + 1 + 2 + 2 * values.length + 2);
    this.#bytes[this.#at] = 'B'.charCodeAt(0);
    this.#at += 1 + LENGTH_BYTES;
    // The unnamed portal.
    this.#bytes[this.#at++] = 0;
    this.#at += this.#bytes.write(name, this.#at);
    this.#bytes[this.#at++] = 0;
    this.#int16(values.length);
    for (const value of values) this.#int16(isList(value) ? BINARY : AS_TEXT);
    this.#int16(values.length);
    for (const value of values) this.#value(value);
    this.#room(2 + RUN.length);
    // All results are text.
    this.#int16(0);
    this.#view.setInt32(1, this.#at - 1);
    this.#at += RUN.copy(this.#bytes, this.#at);
    return this.#bytes.subarray(0, this.#at);
  }

  #value(value: BatchValue): void {
    this.#room(LENGTH_BYTES);
    const length_at = this.#at;
    this.#at += LENGTH_BYTES;
    if (value !== null) {
      if (isList(value)) this.#list(value);
      else this.#text(String(value));
    }
    this.#view.setInt32(length_at, value === null ? NULL_LENGTH : this.#at - length_at - LENGTH_BYTES);
  }

  #list({ type, values }: List): void {
    this.#room(HEAD_BYTES);
    const is_empty = values.length === 0;
    const head_at = this.#at;
    this.#view.setInt32(head_at, is_empty ? 0 : 1);
    this.#view.setInt32(head_at + 4, values.includes(null) ? 1 : 0);
    this.#view.setInt32(head_at + 8, type);
    this.#view.setInt32(head_at + 12, values.length);
    this.#view.setInt32(head_at + 16, 1);
    this.#at += is_empty ? EMPTY_HEAD_BYTES : HEAD_BYTES;
    if (type === TEXT) this.#texts(values as (string | null)[]);
    else this.#integers(values as (number | null)[], type);
  }

  #integers(values: readonly (number | null)[], type: keyof typeof WIDTHS): void {
    const width = WIDTHS[type];
    this.#room(values.length * (LENGTH_BYTES + width));
    const view = this.#view;
    let at = this.#at;
    for (const value of values) {
      view.setInt32(at, value === null ? NULL_LENGTH : width);
      at += LENGTH_BYTES;
      if (value === null) continue;
      if (type === INT2) view.setInt16(at, value);
      else if (type === INT4) view.setInt32(at, value);
      else setInt64(view, at, value);
      at += width;
    }
    this.#at = at;
  }

  #texts(values: readonly (string | null)[]): void {
    for (const value of values) {
      this.#room(LENGTH_BYTES);
      const length_at = this.#at;
      this.#at += LENGTH_BYTES;
      if (value !== null) this.#text(value);
      this.#view.setInt32(length_at, value === null ? NULL_LENGTH : this.#at - length_at - LENGTH_BYTES);
    }
  }

  #text(text: string): void {
    // Most texts fit even if each character takes three bytes. The real length is counted only when there is less room.
    if (this.#bytes.length - this.#at < 3 * text.length) this.#room(Buffer.byteLength(text));
    this.#at += this.#bytes.write(text, this.#at);
  }

  #int16(value: number): void {
    this.#view.setInt16(this.#at, value);
    this.#at += 2;
  }

  #room(bytes: number): void {
    const needed = this.#at + bytes;
    if (needed > this.#bytes.length) this.#replace(Math.max(needed, 2 * this.#bytes.length));
  }

  #replace(length: number): void {
    const bytes = Buffer.allocUnsafeSlow(length);
    this.#bytes.copy(bytes, 0, 0, this.#at);
    this.#bytes = bytes;
    this.#view = viewOf(bytes);
  }
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
}

function isList(value: BatchValue): value is List {
  return typeof value === 'object' && value !== null;
}

function setInt64(view: DataView, at: number, value: number): void {
  const upper = Math.floor(value / 2 ** 32);
  view.setInt32(at, upper);
  view.setUint32(at + 4, value - upper * 2 ** 32);
}
