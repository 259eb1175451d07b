/**
 * Judges the head of a request before a route sees it. It refuses everything that a proxy might read in another way
 * than Convoke does (RFC 9112, sections 3 and 6), because request smuggling needs such a difference. Node's parser
 * refuses the rest: Content-Length and Transfer-Encoding together, folded lines, bare line feeds, lengths that are no
 * number.
 */
import type { IncomingMessage } from 'node:http';
import { Problem } from '../../domain/problem.ts';

/**
 * The most headers of a request. Programs send about a dozen. Node silently drops the headers after the first 2,000.
 */
const HEADERS_MAX = 100;

/** Node keeps the first of these headers, or joins them. A proxy in between may keep the last. */
const SENT_ONCE = new Set(['authorization', 'content-type', 'content-encoding', 'expect', 'idempotency-key', 'origin']);

const WITHOUT_BODY = new Set(['GET', 'HEAD', 'DELETE']);

/** Without this check, text in another charset would be read as UTF-8, and stored wrong. */
const CHARSET = /;\s*charset\s*=\s*"?([^";\s]*)/i;

/** @throws Problem `malformed_request`, `headers_too_large` or `unsupported_media_type` */
export function assertPlainHead(request: IncomingMessage): void {
  if (request.httpVersionMajor !== 1) throw malformed(`HTTP/${request.httpVersion} is not spoken here; use HTTP/1.1.`);
  assertPlainHeaders(request.rawHeaders);
  assertPlainTarget(request.url ?? '');
  assertPlainTransfer(request);
  assertPlainBody(request);
}

/**
 * Refuses a body on a method that takes none. The route would not read the body, and a less careful proxy would take it
 * for the next request. Called only for requests that have a route.
 *
 * @throws Problem `malformed_request`
 */
export function assertMayHaveBody(request: IncomingMessage): void {
  const { method = '' } = request;
  if (WITHOUT_BODY.has(method) && hasBody(request)) throw malformed(`${method} takes no body; leave it out.`);
}

/** Whether a body follows the head. */
export function hasBody({ headers }: IncomingMessage): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

function assertPlainHeaders(raw_headers: string[]): void {
  if (raw_headers.length > 2 * HEADERS_MAX) {
    throw new Problem(
      'headers_too_large',
      `There are ${raw_headers.length / 2} headers; at most ${HEADERS_MAX} are taken.`,
    );
  }
  let hosts = 0;
  let seen: Set<string> | undefined;
  for (let i = 0; i < raw_headers.length; i += 2) {
    const name = (raw_headers[i] as string).toLowerCase();
    if (name === 'host') hosts++;
    if (!SENT_ONCE.has(name)) continue;
    seen ??= new Set();
    if (seen.has(name)) throw malformed(`The header ${name} is there twice; send it once.`);
    seen.add(name);
  }
  if (hosts !== 1) throw malformed(`There are ${hosts} Host headers; send one.`);
}

function assertPlainTarget(url: string): void {
  if (!url.startsWith('/')) throw malformed('The request target is not a path; send only the path.');
  if (url.includes('#')) throw malformed('The request target has a fragment; leave out what begins with #.');
}

/**
 * Called for every request except those for the pages: the service does not read the query of a page, and a person gets
 * the page whatever is in its address.
 *
 * @throws Problem `malformed_request`
 */
export function assertPlainQuery({ url = '' }: IncomingMessage): void {
  const query_start = url.indexOf('?');
  if (query_start === -1 || !url.includes('%', query_start)) return;
  try {
    decodeURIComponent(url.slice(query_start));
  } catch {
    throw malformed('The query is not percent-encoded UTF-8.');
  }
}

function assertPlainTransfer({ headers, httpVersion }: IncomingMessage): void {
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && httpVersion === '1.0')
    throw malformed('Transfer-Encoding does not exist in HTTP/1.0; send Content-Length.');
  if (coding !== undefined && coding.toLowerCase() !== 'chunked')
    throw malformed('The Transfer-Encoding is not chunked; no other is known.');
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue')
    throw malformed('The Expect header is not 100-continue; no other expectation is known.');
}

function assertPlainBody({ headers }: IncomingMessage): void {
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new Problem(
      'unsupported_media_type',
      `The body is encoded as ${JSON.stringify(encoding)}; send it as it is, without content-encoding.`,
    );
  }
  const charset = CHARSET.exec(headers['content-type'] ?? '')?.[1];
  if (charset !== undefined && charset.toLowerCase() !== 'utf-8') {
    throw new Problem('unsupported_media_type', `The charset is ${JSON.stringify(charset)}; send JSON in UTF-8.`);
  }
}

function malformed(detail: string): Problem {
  return new Problem('malformed_request', detail);
}
