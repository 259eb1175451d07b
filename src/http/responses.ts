import type { TSchema } from 'typebox';
import { PROBLEMS, type ProblemCode } from '../domain/problem.ts';
import { PROBLEM_HEADERS, ProblemSchema } from './schemas/problem.ts';

/** The problems that every route can have, from the checks before it and from the store. */
const COMMON_CODES = [
  'malformed_json',
  'malformed_request',
  'api_key_missing',
  'api_key_malformed',
  'api_key_unknown',
  'api_key_revoked',
  'api_key_expired',
  'session_ended',
  'not_permitted',
  'host_not_allowed',
  'origin_not_allowed',
  'csrf_token_wrong',
  'request_timeout',
  'body_too_large',
  'unsupported_media_type',
  'invalid_fields',
  'rate_limited',
  'headers_too_large',
  'storage_unavailable',
  'overloaded',
] as const;

type Answer = readonly [description: string, schema?: TSchema | undefined, headers?: Record<string, TSchema>];

type AnswerSchemas<Answers> = {
  [Status in keyof Answers as Status extends number ? Status : never]: Answers[Status] extends readonly [
    string,
    infer Schema extends TSchema,
    ...unknown[],
  ]
    ? Schema
    : TSchema & { static: null };
};

/** The `response` of a route: its successes by status, and the problems of its codes. */
export function responses<const Answers extends { [status: number]: Answer; codes: readonly ProblemCode[] }>(
  given: Answers,
): AnswerSchemas<Answers> {
  const response: Record<string, unknown> = {};
  const codes = [...new Set([...given.codes, ...COMMON_CODES])];
  for (const status of new Set(codes.map((code) => PROBLEMS[code].status))) {
    const named = codes.filter((code) => PROBLEMS[code].status === status);
    response[status] = {
      description: named.map((code) => `${code}: ${PROBLEMS[code].title}.`).join(' '),
      content: { 'application/problem+json': { schema: ProblemSchema } },
      headers: PROBLEM_HEADERS[status],
    };
  }
  for (const [status, answer] of Object.entries(given)) {
    if (status === 'codes') continue;
    const [description, schema = { type: 'null' }, headers] = answer as Answer;
    response[status] = { ...schema, 'x-response-description': description, headers };
  }
  return response as AnswerSchemas<Answers>;
}
