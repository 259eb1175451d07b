/** The parts of a receiver's response that are kept. */
import { isUtf8 } from 'node:buffer';
import { excerptOfText } from '../../domain/outcome.ts';
import { withoutSecrets } from './push.ts';
import type { KeptBody } from './transport.ts';

export const RESPONSE_EXCERPT_CHARS_MAX = 1024;
/** The most bytes of a response body that are read. */
export const RESPONSE_BYTES_MAX = 64 * 1024;
/**
 * The most bytes that are read after the head, for each byte that a body may have. They include chunk extensions and
 * trailers, which have no other limit.
 */
export const RAW_BYTES_OF_BODY = 2;
const tooLong = (bytes_max: number): string => `the body of the response was over ${bytes_max / 1024} KiB`;
const NOT_UTF8 = 'the body of the response is not UTF-8: it is compressed, or has another charset';
/** The most bytes of bodies in one `KeptBodies`. A body counts until the push has its result. */
const KEPT_BYTES_MAX = 32 << 20;
const CHARACTER_BYTES_MAX = 4;
const EXCERPT_BYTES_MAX = RESPONSE_EXCERPT_CHARS_MAX * CHARACTER_BYTES_MAX;
/** RFC 9110, section 15.2, wants clients to ignore any number of 1xx responses; no honest receiver sends this many. */
export const INTERIM_RESPONSES_MAX = 100;

/** The memory of bodies that are kept: one object for short bodies, one for bodies that may be long. */
export class KeptBodies {
  #bytes = 0;

  /** @returns whether there is room for this many more bytes; the caller must release them */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > KEPT_BYTES_MAX) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** The body of one response, as it arrives: its beginning, or all of it. */
export class ResponseBody {
  readonly #kept: KeptBodies | null;
  readonly #bytes_max: number;
  #parts: Buffer[] | null = null;
  #kept_bytes = 0;
  #lost = '';
  /** The bytes of the body so far. */
  bytes = 0;

  /** @param kept null when only the beginning is wanted */
  constructor(kept: KeptBodies | null, bytes_max = RESPONSE_BYTES_MAX) {
    this.#kept = kept;
    this.#bytes_max = bytes_max;
  }

  get isTooLong(): boolean {
    return this.bytes > this.#bytes_max;
  }

  add(chunk: Buffer): void {
    const bytes_max = this.#kept === null || this.#lost !== '' ? EXCERPT_BYTES_MAX : this.#bytes_max;
    if (this.bytes < bytes_max) this.#keep(chunk, bytes_max);
    this.bytes += chunk.length;
  }

  #keep(chunk: Buffer, bytes_max: number): void {
    // Copies the bytes: the chunk is a view of the 64 KiB that the socket read, and would keep all of these in memory.
    const part = Buffer.from(chunk.subarray(0, bytes_max - this.bytes));
    if (this.#kept !== null && this.#lost === '') {
      if (this.#kept.take(part.length)) this.#kept_bytes += part.length;
      else this.#lost = 'the service had no room for the body of the response: many others arrived at the same time';
    }
    if (this.#parts === null) this.#parts = [part];
    else this.#parts.push(part);
  }

  /** The body has ended. Call it once. */
  end(): void {
    this.#kept?.release(this.#kept_bytes);
    this.#kept_bytes = 0;
  }

  /** The first characters, to be shown to people. */
  excerpt(headers: Record<string, string>, is_complete: boolean): string {
    if (this.#parts === null) return '';
    return excerptOf(this.#parts, headers, is_complete);
  }

  /**
   * The whole body.
   *
   * @param late the deadline in words, when it passed before the end of the body
   */
  whole(is_complete: boolean, late: string | null): KeptBody {
    if (this.#lost !== '') return { lost: this.#lost };
    if (this.isTooLong) return { lost: tooLong(this.#bytes_max) };
    if (late !== null) return { lost: `the body of the response did not arrive whole ${late}`, is_late: true };
    if (!is_complete) return { lost: 'the body of the response did not arrive whole' };
    const bytes = Buffer.concat(this.#parts ?? []);
    return isUtf8(bytes) ? { text: withoutMark(bytes.toString()) } : { lost: NOT_UTF8 };
  }
}

/**
 * The body of a response that a machine reports. A machine cuts a body that is too long, between two characters, and
 * does not report the cut. So a body of about RESPONSE_BYTES_MAX that is no JSON counts as cut.
 */
export function reportedBody(body: string): KeptBody {
  const may_be_cut = Buffer.byteLength(body) > RESPONSE_BYTES_MAX - CHARACTER_BYTES_MAX;
  const text = withoutMark(body);
  return may_be_cut && !isJson(text) ? { lost: tooLong(RESPONSE_BYTES_MAX) } : { text };
}

/** .NET and others begin a text with a byte order mark, which is no JSON. */
function withoutMark(text: string): string {
  return text.startsWith('\ufeff') ? text.slice(1) : text;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Decodes the beginning of a body as UTF-8, without secrets of the push. Replaces invalid bytes, and also NUL, which
 * PostgreSQL's type `text` refuses.
 */
export function excerptOf(parts: Buffer[], headers: Record<string, string>, is_complete: boolean): string {
  const bytes = (parts.length === 1 ? parts[0]! : Buffer.concat(parts)).subarray(0, EXCERPT_BYTES_MAX);
  const text = withoutSecrets(bytes.toString('utf8'), headers, !is_complete || bytes.length === EXCERPT_BYTES_MAX);
  return excerptOfText(text, RESPONSE_EXCERPT_CHARS_MAX).replaceAll('\0', '\ufffd');
}
