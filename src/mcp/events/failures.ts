import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';
import { ConvokeError } from '@convoke/sdk';
import type { ProblemCode } from '../../domain/problem.ts';
import { EVENTS_FORBIDDEN } from '../../domain/runtimes/mcp_events.ts';
import { type OwnWords, refusalInWords } from '../refusal.ts';

/** The codes that the Events extension adds to those of JSON-RPC. */
export const EVENT_ERRORS = {
  NotFound: -32_023,
  Forbidden: EVENTS_FORBIDDEN,
  ResourceExhausted: -32_025,
  Unsupported: -32_026,
  CallbackEndpointError: -32_027,
} as const;

const CODE_OF: Partial<Record<ProblemCode, number>> = {
  api_key_missing: EVENT_ERRORS.Forbidden,
  api_key_unknown: EVENT_ERRORS.Forbidden,
  api_key_revoked: EVENT_ERRORS.Forbidden,
  api_key_expired: EVENT_ERRORS.Forbidden,
  not_permitted: EVENT_ERRORS.Forbidden,
  instance_id_taken: EVENT_ERRORS.Forbidden,
  meeting_does_not_exist: EVENT_ERRORS.NotFound,
  callback_not_verified: EVENT_ERRORS.CallbackEndpointError,
  webhook_url_not_allowed: ProtocolErrorCode.InvalidParams,
  quota_exceeded: EVENT_ERRORS.ResourceExhausted,
  overloaded: EVENT_ERRORS.ResourceExhausted,
  rate_limited: EVENT_ERRORS.ResourceExhausted,
  invalid_fields: ProtocolErrorCode.InvalidParams,
};

/** A subscription is an instance of the API, and a program knows nothing of that instance. */
const WORDS: OwnWords = {
  names: {
    agent_ids: 'arguments.agent',
    lease_s: 'ttlMs',
    webhook_secret: 'delivery.secret',
    webhook_url: 'delivery.url',
  },
  advice: {
    instance_id_taken:
      'The id of this subscription belongs to another key or to an instance. Subscribe with another delivery.url, or ask an admin to remove what has the id.',
    invalid_fields: 'Correct the fields that are named, and ask again.',
  },
};

/** A refusal of the service in the words and codes of the extension. Another error stays as it is. */
export function eventFailure(error: unknown): unknown {
  if (!(error instanceof ConvokeError)) return error;
  const code = CODE_OF[error.code as ProblemCode] ?? ProtocolErrorCode.InternalError;
  const reason = error.code === 'callback_not_verified' ? { reason: error.errors[0]?.message } : {};
  return new ProtocolError(code, refusalInWords(error, WORDS), { code: error.code, ...reason });
}

export function eventNotFound(name: string): ProtocolError {
  return new ProtocolError(EVENT_ERRORS.NotFound, `There is no event ${JSON.stringify(name)}.`, { kind: 'event' });
}
