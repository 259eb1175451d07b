/** What is kept of a receiver's response, and how an attempt describes it. */
import errors from 'undici/lib/core/errors.js';
import type { Outcome } from '../../domain/outcome.ts';
import { withoutSecrets } from './push.ts';

export const RESPONSE_EXCERPT_CHARS_MAX = 1024;
/** No more than this is read of the body of a response. */
export const RESPONSE_BYTES_MAX = 64 * 1024;
/**
 * The most bytes after the head that are read. They include chunk extensions and trailers, which nothing else limits.
 */
export const RESPONSE_RAW_BYTES_MAX = 2 * RESPONSE_BYTES_MAX;
export const RESPONSE_HEADER_BYTES_MAX = 16 * 1024;
/** A character takes four bytes at most. */
export const EXCERPT_BYTES_MAX = RESPONSE_EXCERPT_CHARS_MAX * 4;
/** RFC 9110, section 15.2, wants clients to ignore any number of 1xx responses; no honest receiver sends this many. */
export const INTERIM_RESPONSES_MAX = 100;

export function describeStatus(status_code: number, outcome: Outcome): string {
  if (outcome === 'ok') return '';
  if (outcome === 'not_200') return `answered ${status_code}, and only 200 counts as a success for this instance`;
  if (status_code >= 300 && status_code < 400) return `answered ${status_code}; redirects are not followed`;
  return `answered ${status_code}`;
}

/** @param has_responded whether any byte of a response arrived */
export function describeBroken(error: NodeJS.ErrnoException, has_responded: boolean): string {
  // undici 8.12 leaves the code of a parser error undefined.
  if (error instanceof errors.HTTPParserError) return 'the response was not HTTP/1.1';
  const { code } = error;
  if (code === 'UND_ERR_HEADERS_OVERFLOW') {
    return `the headers of the response were over ${RESPONSE_HEADER_BYTES_MAX / 1024} KiB`;
  }
  const how = code === 'ECONNRESET' || code === 'EPIPE' ? 'reset' : 'closed';
  return `the connection was ${how} ${has_responded ? 'in the middle of the response' : 'without a response'}`;
}

/** Lossy UTF-8, without our secrets. NUL is replaced too, because PostgreSQL's text refuses it. */
export function excerptOf(parts: Buffer[], headers: Record<string, string>, is_complete: boolean): string {
  const bytes = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  const text = withoutSecrets(bytes.toString('utf8'), headers, !is_complete || bytes.length === EXCERPT_BYTES_MAX);
  const cut = text.length > RESPONSE_EXCERPT_CHARS_MAX ? text.slice(0, RESPONSE_EXCERPT_CHARS_MAX) : text;
  return (cut.isWellFormed() ? cut : cut.slice(0, -1)).replaceAll('\0', '\ufffd');
}
