import { type Outcome, OUTCOMES } from '../outcome.ts';
import { MEETING_MESSAGE, meetingEvent } from '../meeting_event.ts';
import type { Meaning, Probed, Runtime, RuntimeRequest } from './runtime.ts';
import { adviceForProbe, at, failed, isSuccess, jsonOf, JSON_HEADERS } from './words.ts';

const PROBE_CHALLENGE = 'webhook-test';

/** The code of the Events extension for a principal that has no right to the subscription, or no right any more. */
export const EVENTS_FORBIDDEN = -32_024;

/** The categories that the Events extension has for a callback that failed. */
export type CallbackFailure =
  'connection_refused' | 'timeout' | 'tls_error' | 'http_4xx' | 'http_5xx' | 'challenge_failed';

/**
 * The category of a failed callback. Convoke does not follow redirects, and the extension has no category for them. So
 * a redirect counts as `challenge_failed`, like a server that expects no events.
 */
export function callbackFailureOf(outcome: Outcome, status_code: number | null): CallbackFailure {
  if (outcome === 'timeout' || outcome === 'connect_timeout') return 'timeout';
  if (outcome === 'tls_failed') return 'tls_error';
  if (!OUTCOMES[outcome].reached) return 'connection_refused';
  if (status_code === null || status_code < 400) return 'challenge_failed';
  return status_code >= 500 ? 'http_5xx' : 'http_4xx';
}

/** A subscription to the messages of a meeting by MCP Events (SEP-3415): see docs/mcp.md. */
export const mcp_events: Runtime = {
  says: 'a program that subscribed to a meeting by MCP Events, which registers it by itself',
  options: {
    id: {
      type: 'text',
      chars_max: 200,
      is_required: true,
      says: 'the id of the subscription, which every request has',
    },
  },
  timeout_s: 5,
  historyOf: () => 0,
  asksEach: () => false,
  requestOf(asked, options, base_url) {
    const event = meetingEvent(asked);
    // The event has no cursor. A cursor would say that all earlier events have arrived. But an earlier delivery that is
    // aside may still follow.
    return eventRequest({ ...event, cursor: null }, event.eventId, options['id'] as string, base_url);
  },
  read(response): Meaning {
    if (isSuccess(response)) return { kind: 'answered', answers: [] };
    const { status_code } = response;
    if (status_code === 410 || status_code === 413)
      return { kind: 'failed', outcome: 'not_200', detail: `answered ${status_code}: it does not take this event` };
    return failed(response);
  },
  probeOf: (options, base_url) => verificationOf(options['id'] as string, PROBE_CHALLENGE, base_url),
  readProbe(response): Probed {
    if (isEchoOf(PROBE_CHALLENGE, response.body))
      return { is_ok: true, advice: 'The subscriber is there and accepts the signature; nothing to do.' };
    const refused = adviceForProbe(response, 'subscriber');
    return { is_ok: false, advice: refused ?? `The subscriber does not answer the challenge of ${MEETING_MESSAGE}.` };
  },
};

/** The request that asks a subscriber whether it wants events. */
export function verificationOf(id: string, challenge: string, url: string): RuntimeRequest {
  return eventRequest({ type: 'verification', challenge }, `msg_verification_${challenge}`, id, url);
}

/** The request that reports the end of a subscription whose key was revoked, or rotated without overlap. */
export function terminationOf(id: string, nonce: string, url: string): RuntimeRequest {
  const error = {
    code: EVENTS_FORBIDDEN,
    message: 'The key of this subscription was revoked, or its token was replaced.',
  };
  return eventRequest({ type: 'terminated', error }, `msg_terminated_${nonce}`, id, url);
}

/** Whether the response to a verification has the challenge. */
export function isEchoOf(challenge: string, body: string): boolean {
  return at(jsonOf(body), 'challenge') === challenge;
}

function eventRequest(body: object, signed_id: string, id: string, url: string): RuntimeRequest {
  return {
    method: 'POST',
    url,
    headers: { ...JSON_HEADERS, 'x-mcp-subscription-id': id },
    body: JSON.stringify(body),
    signed_as: 'webhook',
    signed_id,
  };
}
