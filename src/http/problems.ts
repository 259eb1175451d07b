/** Problems (RFC 9457) as they go over the wire. */
import type { FastifyReply } from 'fastify';
import { STATUS_CODES } from 'node:http';
import { PROBLEMS, type Problem } from '../domain/problem.ts';

const PROBLEM_JSON = 'application/problem+json';

export function sendProblem(reply: FastifyReply, problem: Problem): FastifyReply {
  if (problem.status === 401) void reply.header('www-authenticate', challengeOf(problem));
  if (problem.retry_after_s !== undefined) void reply.header('retry-after', String(problem.retry_after_s));
  return reply
    .code(problem.status)
    .type(PROBLEM_JSON)
    .serializer((text: string) => text)
    .send(documentOf(problem));
}

/** The whole answer as bytes, for a connection on which there is no request that could be answered. */
export function answerOf(problem: Problem): string {
  const document = documentOf(problem);
  const retry_after = problem.retry_after_s === undefined ? '' : `retry-after: ${problem.retry_after_s}\r\n`;
  return (
    `HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}\r\ncontent-type: ${PROBLEM_JSON}\r\n` +
    `content-length: ${Buffer.byteLength(document)}\r\n${retry_after}connection: close\r\n\r\n${document}`
  );
}

function documentOf({ code, message: detail, errors }: Problem): string {
  const { status, title } = PROBLEMS[code];
  return JSON.stringify({
    type: `urn:convoke:problem:${code}`,
    title,
    status,
    detail,
    code,
    ...(errors === undefined ? {} : { errors }),
  });
}

/** RFC 6750, section 3: whoever gave a key is told that it is the key. */
function challengeOf({ code }: Problem): string {
  return code === 'api_key_missing' ? 'Bearer realm="convoke"' : 'Bearer realm="convoke", error="invalid_token"';
}
