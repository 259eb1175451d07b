/** Problems (RFC 9457) as they go over the wire. */
import type { FastifyReply } from 'fastify';
import type { ServerResponse } from 'node:http';
import type { Static } from 'typebox';
import { PartDone } from '../changes/part_done.ts';
import { Problem, type ProblemCode, PROBLEMS } from '../domain/problem.ts';
import { http } from '../node_http.ts';
import { StoreError } from '../store/store_error.ts';
import type { ProblemSchema } from './schemas/problem.ts';

const PROBLEM_JSON = 'application/problem+json';

export function sendProblem(reply: FastifyReply, problem: Problem): FastifyReply {
  const document = documentOf(problem);
  return reply
    .code(problem.status)
    .headers(headersOf(problem, document))
    .serializer((text: string) => text)
    .send(document);
}

/** The whole response as text, for a connection that has no request to respond to. */
export function answerOf(problem: Problem): string {
  const document = documentOf(problem);
  const head = Object.entries(lastHeadersOf(problem, document)).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${problem.status} ${http.STATUS_CODES[problem.status]}\r\n${head.join('')}\r\n${document}`;
}

/** Responds to a request that no route sees, and closes its connection. */
export function endWithProblem(response: ServerResponse, problem: Problem): void {
  const document = documentOf(problem);
  response.writeHead(problem.status, lastHeadersOf(problem, document)).end(document);
}

function lastHeadersOf(problem: Problem, document: string): Record<string, string> {
  return { ...headersOf(problem, document), connection: 'close' };
}

/** @param document the problem as JSON */
export function headersOf(problem: Problem, document: string): Record<string, string> {
  const { status, retry_after_s } = problem;
  return {
    'content-type': PROBLEM_JSON,
    'x-content-type-options': 'nosniff',
    'content-length': String(Buffer.byteLength(document)),
    ...(status === 401 && { 'www-authenticate': challengeOf(problem) }),
    ...(retry_after_s !== undefined && { 'retry-after': String(retry_after_s) }),
  };
}

export function documentOf(problem: Problem): string {
  return JSON.stringify(wireProblem(problem));
}

/** A problem as JSON. */
export function wireProblem({ code, message: detail, errors }: Problem): Static<typeof ProblemSchema> {
  const { status, title } = PROBLEMS[code];
  return { type: `urn:convoke:problem:${code}`, title, status, detail, code, ...(errors !== undefined && { errors }) };
}

/**
 * The value of WWW-Authenticate (RFC 6750, section 3). From this value, a client that sent a wrong key learns that the
 * key is wrong.
 */
function challengeOf({ code }: Problem): string {
  return code === 'api_key_missing' ? 'Bearer realm="convoke"' : 'Bearer realm="convoke", error="invalid_token"';
}

const PROBLEM_OF_FRAMEWORK_ERROR: Record<string, readonly [ProblemCode, detail?: string]> = {
  FST_ERR_BAD_URL: ['malformed_request', 'The path is not percent-encoded UTF-8.'],
  FST_ERR_MAX_PARAM_LENGTH: [
    'malformed_request',
    'The path has a part that is too long: an id has at most 200 characters.',
  ],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: ['unsupported_media_type'],
  FST_ERR_CTP_EMPTY_TYPE: ['unsupported_media_type'],
};

function detailOf(error: StoreError): string {
  const { code } = error;
  if (error instanceof PartDone)
    return `A part was done, then the storage failed (${code}). After the time in Retry-After, ${error.next}.`;
  if (code === 'IN_DOUBT')
    return 'The storage has not answered, and may do it all the same (IN_DOUBT). Try again after the time in Retry-After, a message with the same Idempotency-Key.';
  const why =
    code === 'ROWS_LOCKED' ? 'Another session of the database has locked a row that this request needs. ' : '';
  return `${why}Nothing was stored (${code}). Try again after the time in Retry-After.`;
}

/** The problem with which the service responds to an error. */
export function problemOf(error: Error & { code?: string; statusCode?: number }): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof StoreError) return new Problem('storage_unavailable', detailOf(error), { retry_after_s: 2 });
  const known = PROBLEM_OF_FRAMEWORK_ERROR[error.code ?? ''];
  if (known !== undefined) return new Problem(...known);
  const status = error.statusCode ?? 500;
  return status < 500 ? new Problem('malformed_request', error.message) : new Problem('internal_error');
}
