import { numberOption } from './options.ts';
import { promptOf } from './prompt.ts';
import type { Meaning, Probed, Runtime, RuntimeRequest, RuntimeResponse } from './runtime.ts';
import {
  adviceForProbe,
  at,
  failed,
  HISTORY_OPTION,
  isSuccess,
  jsonOf,
  JSON_HEADERS,
  notUnderstood,
  whyOf,
} from './words.ts';

const EVENT_TYPE = 'new_message';
/** The event of a webhook test. A route that filters events refuses it, and runs no agent. */
const PROBE_EVENT_TYPE = 'webhook_test';

/**
 * A route of the webhook gateway of Hermes. The gateway responds before the agent runs. So the agent answers later,
 * with a request of its own.
 */
export const hermes: Runtime = {
  says: 'a route of the webhook gateway of Hermes; the agent answers with a tool that makes HTTP requests',
  options: {
    history: { ...HISTORY_OPTION, says: 'how many messages of the meeting before this one it is given' },
  },
  timeout_s: 5,
  historyOf: (options) => numberOption(options, 'history', HISTORY_OPTION.default),
  // A route runs one agent.
  asksEach: () => false,
  requestOf(asked, _options, base_url) {
    const { delivery_id, message_id, from_agent, in_reply_to, reply_url, reply_token, missed, body } = asked;
    const about = { delivery_id, message_id, from_agent, in_reply_to, reply_url, reply_token, missed };
    return eventOf(body, EVENT_TYPE, { prompt: promptOf(asked), ...about }, delivery_id, base_url);
  },
  read(response): Meaning {
    if (!isSuccess(response)) return failed(response);
    const body = jsonOf(response.body);
    switch (at(body, 'status')) {
      case 'accepted':
      case 'duplicate':
      case 'delivered':
        return { kind: 'answered', answers: [] };
      case 'ignored':
        return notUnderstood(`Hermes ignored the message (${whyIgnored(body)}): ${HOW_TO_FILTER}`);
      default:
        return notUnderstood('its body does not say that it accepted the message: this is no webhook of Hermes');
    }
  },
  probeOf(_options, base_url, agents) {
    const message = { content: 'This is a test of the webhook by Convoke. There is nothing to do.' };
    const push = { event: 'new_message', meeting_id: 'webhook-test', message, target_agents: agents, timestamp: '' };
    const prompt = message.content;
    return eventOf(JSON.stringify(push), PROBE_EVENT_TYPE, { prompt }, null, base_url);
  },
  readProbe,
};

const HOW_TO_FILTER = `let the events of its route have ${EVENT_TYPE}, and check its filters`;

/**
 * Makes an event: the body of the specification with further fields at its end.
 *
 * @param id the id by which Hermes recognizes a repeated message
 */
function eventOf(
  body: string,
  event_type: string,
  convoke: object,
  id: string | null,
  base_url: string,
): RuntimeRequest {
  const more = JSON.stringify({ event_type, convoke });
  return {
    method: 'POST',
    url: base_url,
    // Hermes takes the id of an unsigned request from this header.
    headers: { ...JSON_HEADERS, ...(id !== null && { 'x-request-id': id }) },
    body: `${body.slice(0, -1)},${more.slice(1)}`,
    signed_as: 'svix',
  };
}

function whyIgnored(body: unknown): string {
  return whyOf(at(body, 'reason') ?? at(body, 'event'));
}

function readProbe(response: RuntimeResponse): Probed {
  const { status_code } = response;
  if (status_code === 401) {
    return {
      is_ok: false,
      advice:
        '401: Hermes does not accept the signature; let the secret of its route be the webhook_secret of this instance, and check its clock.',
    };
  }
  const refused = adviceForProbe(response, 'such route');
  if (refused !== null) return { is_ok: false, advice: refused };
  switch (at(jsonOf(response.body), 'status')) {
    case 'ignored':
      return { is_ok: true, advice: 'Hermes is there, accepts the signature, and chooses by event_type.' };
    case 'accepted':
    case 'duplicate':
    case 'delivered':
      return {
        is_ok: true,
        advice: `Hermes takes messages, and its agent has run for this test; with events: ["${EVENT_TYPE}"] in its route a test costs nothing.`,
      };
    default:
      return { is_ok: false, advice: 'What responds there is no webhook of Hermes: check webhook_url.' };
  }
}
