import { hash } from 'node:crypto';
import { eventsOf, STREAM_BYTES_MAX } from './event_stream.ts';
import { numberOption, type Options, textOption } from './options.ts';
import type { Meaning, Probed, Runtime, RuntimeResponse } from './runtime.ts';
import {
  adviceForProbe,
  agentOf,
  answersOf,
  at,
  below,
  conversationOf,
  failed,
  HISTORY_DEFAULT,
  HISTORY_OPTION,
  isSuccess,
  jsonOf,
  JSON_HEADERS,
  NO_REPLY,
  NO_REPLY_OPTION,
  notUnderstood,
  whyOf,
} from './words.ts';

/** The most characters that Dify stores of the name of a user. */
const USER_CHARS_MAX = 255;
const HEX_CHARS = 64;

/** An app of Dify that chats: a chatbot, a chatflow, or an agent. */
export const dify: Runtime = {
  says: 'an app of Dify that chats: a chatbot, a chatflow, or an agent',
  options: {
    response_mode: {
      type: 'choice',
      choices: ['blocking', 'streaming'],
      default: 'blocking',
      says: 'how it answers: an agent of Dify needs streaming',
    },
    inputs: {
      type: 'json',
      check: (value) =>
        typeof value === 'object' && value !== null && !Array.isArray(value) ? null : 'must be a JSON object',
      says: 'the variables of the app, as a JSON object',
    },
    history: HISTORY_OPTION,
    no_reply: NO_REPLY_OPTION,
  },
  timeout_s: 120,
  historyOf: (options) => numberOption(options, 'history', HISTORY_DEFAULT),
  asksEach: () => true,
  responseBytesOf: (options) => (modeOf(options) === 'streaming' ? STREAM_BYTES_MAX : undefined),
  /** Gives no conversation_id, because only Dify can make one. So each message is a conversation of its own. */
  requestOf(asked, options, base_url) {
    const body = {
      inputs: options['inputs'] ?? {},
      query: conversationOf(asked),
      response_mode: modeOf(options),
      user: userOf(asked.meeting_id, agentOf(asked)),
      // Switched off: Dify would run the model once more to name the conversation.
      auto_generate_name: false,
    };
    const url = below(base_url, '/chat-messages');
    return { method: 'POST', url, headers: { ...JSON_HEADERS, accept: '*/*' }, body: JSON.stringify(body) };
  },
  read(response, asked, options): Meaning {
    if (!isSuccess(response)) return failed(response);
    const events = modeOf(options) === 'streaming' ? eventsOf(response.body).map(({ data }) => data) : null;
    const error = events?.find((event) => at(event, 'event') === 'error');
    if (error !== undefined) {
      return { kind: 'failed', outcome: 'bad_status', detail: `the app failed: ${whyOf(at(error, 'message'))}` };
    }
    const whole = events ?? [jsonOf(response.body)];
    const is_paused = whole.some((event) => at(event, 'event') === 'workflow_paused');
    const answer = events === null ? at(whole[0], 'answer') : answerOf(events);
    if (typeof answer !== 'string') return notUnderstood('its body has no answer: this is no chat message of Dify');
    const answers = answersOf(answer, agentOf(asked), textOption(options, 'no_reply', NO_REPLY));
    if (!is_paused) return { kind: 'answered', answers };
    return {
      kind: 'answered',
      answers,
      note: 'the chatflow waits for a person in Dify; Convoke does not get the rest',
    };
  },
  probeOf: (_options, base_url) => ({
    method: 'GET',
    url: below(base_url, '/info'),
    headers: { accept: 'application/json' },
    body: '',
  }),
  readProbe,
};

/** The same user for the same agent in the same meeting. A long name ends with its hash. */
function userOf(meeting_id: string, agent: string): string {
  const user = `${meeting_id}:${agent}`;
  if (user.length <= USER_CHARS_MAX) return user;
  return user.slice(0, USER_CHARS_MAX - HEX_CHARS).toWellFormed() + hash('sha256', user);
}

function modeOf(options: Options): string {
  return textOption(options, 'response_mode', 'blocking');
}

/** The answer in the events of a stream; undefined when the stream is incomplete. */
function answerOf(events: readonly unknown[]): string | undefined {
  let answer = '';
  for (const event of events) {
    const kind = at(event, 'event');
    // A chatflow that waits for a person ends the stream here. The answer until now counts.
    if (kind === 'message_end' || kind === 'workflow_paused') return answer;
    const piece = at(event, 'answer');
    if (typeof piece !== 'string') continue;
    if (kind === 'message' || kind === 'agent_message') answer += piece;
    else if (kind === 'message_replace') answer = piece;
  }
  return undefined;
}

const CHATS = ['chat', 'advanced-chat', 'agent-chat', 'agent'];

function readProbe(response: RuntimeResponse, options: Options): Probed {
  const refused = adviceForProbe(response, '/info');
  if (refused !== null) return { is_ok: false, advice: refused };
  const info = jsonOf(response.body);
  const name = at(info, 'name');
  if (typeof name !== 'string') {
    return { is_ok: false, advice: 'It is no app of Dify: webhook_url ends with /v1, as in https://api.dify.ai/v1.' };
  }
  const mode = at(info, 'mode');
  // Older versions do not return the mode.
  if (typeof mode !== 'string') return { is_ok: true, advice: `The app ${name} is there.` };
  if (!CHATS.includes(mode)) {
    return {
      is_ok: false,
      advice: `The app ${name} does not chat, its mode is ${mode}: take the key of one that does.`,
    };
  }
  if (mode.startsWith('agent') && modeOf(options) === 'blocking') {
    return { is_ok: false, advice: `${name} is an agent: set runtime_options.response_mode to streaming.` };
  }
  return { is_ok: true, advice: `The app ${name} is there, and chats.` };
}
