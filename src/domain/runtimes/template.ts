import { isExactNumber, parseExactly } from '../exact_json.ts';
import { numberOption, textOption } from './options.ts';
import type { Answer, Asked, Meaning, Runtime } from './runtime.ts';
import {
  adviceForProbe,
  answersOf,
  at,
  failed,
  HISTORY_OPTION,
  isSuccess,
  jsonOf,
  missedInWords,
  NO_REPLY,
  NO_REPLY_OPTION,
  notUnderstood,
  textOfMessage,
} from './words.ts';

const DEPTH_MAX = 20;
const HEADERS_MAX = 20;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9a-z-]{1,100}$/;
/** Headers that a template may not set: HTTP needs these headers for itself, or Convoke computes them from the body. */
const REFUSED_HEADERS = new Set([
  'content-length',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'host',
  'expect',
  'upgrade',
  'te',
]);
/** A place in a template: a value of the push replaces it. */
const PLACE = /\{\{\s*([\w.-]{1,200})\s*\}\}/g;
const ONE_PLACE = /^\{\{\s*([\w.-]{1,200})\s*\}\}$/;

/** The fields of a push: a place begins with one of them. */
const FIELDS = [
  'delivery_id',
  'message_id',
  'seq',
  'meeting_id',
  'message',
  'text',
  'agent_id',
  'target_agents',
  'timestamp',
  'from_agent',
  'in_reply_to',
  'reply_url',
  'reply_token',
  'history',
  'missed',
  'missed_in_words',
] as const;

/**
 * The fields that can be long, and how many places of an option may begin with such a field. Without this limit, 16 KB
 * of options and a message of 256 KB could make a request of 500 MB.
 */
const LONG_FIELDS: readonly string[] = ['message', 'text', 'target_agents', 'history', 'missed_in_words'];
const LONG_PLACES_MAX = 8;

/** Any HTTP API that takes JSON: the request is written as a template. */
export const template: Runtime = {
  says: 'any HTTP API that takes JSON: you write the request with {{…}} for the parts of the push',
  options: {
    body: { type: 'json', check: wrongWithBody, is_required: true, says: 'the body: JSON with {{…}} in its strings' },
    method: { type: 'choice', choices: ['POST', 'PUT', 'PATCH'], default: 'POST', says: 'the method of the request' },
    path: {
      type: 'json',
      check: (value) =>
        typeof value === 'string' && value.length <= 1_000 && /^[/?][\x21\x22\x24-\x7e]*$/.test(value)
          ? (unknownPlace(value) ?? tooLong(value))
          : 'must begin with / or ?, and be at most 1000 characters of ASCII without spaces and #',
      says: 'added to the address; {{…}} in it is percent-encoded',
    },
    headers: { type: 'json', check: wrongWithHeaders, says: 'further headers; {{…}} in them is percent-encoded' },
    reply: {
      type: 'json',
      check: (value) =>
        typeof value === 'string' && /^(\/([^/~]|~[01])*)*$/.test(value) && value.length <= 500
          ? null
          : 'must be a JSON pointer, such as /choices/0/message/content',
      says: 'where in the response the reply is, as a JSON pointer; no replies when absent',
    },
    no_reply: NO_REPLY_OPTION,
    each_agent: { type: 'boolean', says: 'true: a request for each agent of the push, which is {{agent_id}}' },
    history: { ...HISTORY_OPTION, default: 0, says: 'how many messages before this one {{history}} has' },
  },
  timeout_s: 120,
  historyOf: (options) => numberOption(options, 'history', 0),
  asksEach: (options) => options['each_agent'] === true,
  requestOf(asked, options, base_url) {
    const values = valuesOf(asked);
    const path = textOption(options, 'path', '').replace(PLACE, (_, place: string) => segment(valueAt(values, place)));
    const given = (options['headers'] as Record<string, string> | undefined) ?? {};
    const headers = Object.fromEntries(
      Object.entries(given).map(([name, text]) => [
        name.toLowerCase(),
        text.replace(PLACE, (_, place: string) => encoded(valueAt(values, place))),
      ]),
    );
    return {
      method: textOption(options, 'method', 'POST'),
      url: joined(base_url, path),
      headers: { 'content-type': 'application/json', accept: 'application/json', ...headers },
      body: JSON.stringify(filled(options['body'], values)),
    };
  },
  read(response, asked, options): Meaning {
    if (!isSuccess(response)) return failed(response);
    const pointer = options['reply'] as string | undefined;
    if (pointer === undefined) return { kind: 'answered', answers: [] };
    // An empty response means that the agent says nothing.
    if (response.body.trim() === '') return { kind: 'answered', answers: [] };
    const body = jsonOf(response.body, parseExactly);
    if (body === undefined) return notUnderstood('its body is not JSON');
    const found = at(body, ...stepsOf(pointer));
    return { kind: 'answered', answers: answersIn(found, asked, textOption(options, 'no_reply', NO_REPLY)) };
  },
  probeOf: null,
  readProbe: (response) => {
    const advice = adviceForProbe(response, 'such path');
    return { is_ok: advice === null, advice: advice ?? 'It takes the request.' };
  },
};

function answersIn(found: unknown, { agents }: Asked, no_reply: string): Answer[] {
  if (typeof found === 'string') return answersOf(found, agents.length === 1 ? (agents[0] as string) : '', no_reply);
  if (typeof found === 'object' && found !== null && !Array.isArray(found) && !isExactNumber(found)) {
    return [{ message: found as Record<string, unknown> }];
  }
  return [];
}

function valuesOf(asked: Asked): Record<(typeof FIELDS)[number], unknown> {
  const { delivery_id, message_id, seq, meeting_id, message, agents, timestamp } = asked;
  const { from_agent, in_reply_to, reply_url, reply_token, history, missed } = asked;
  return {
    delivery_id,
    message_id,
    seq,
    meeting_id,
    message,
    text: textOfMessage(message),
    agent_id: agents[0] ?? null,
    target_agents: agents,
    timestamp,
    from_agent,
    in_reply_to,
    reply_url,
    reply_token,
    history: history.map(({ seq, from_agent, message }) => ({ seq, from_agent, message })),
    missed,
    missed_in_words: missedInWords(asked) ?? '',
  };
}

function valueAt(values: Record<string, unknown>, place: string): unknown {
  return at(values, ...place.split('.')) ?? null;
}

/**
 * Puts values into the strings of a template. A string that is only one place becomes the value, with the type of the
 * value. In a longer string, the value becomes text. The result is always JSON, whatever the values are.
 */
function filled(template_: unknown, values: Record<string, unknown>): unknown {
  if (typeof template_ === 'string') {
    const [, only] = ONE_PLACE.exec(template_) ?? [];
    if (only !== undefined) return valueAt(values, only);
    return template_.replace(PLACE, (_, place: string) => textOf(valueAt(values, place)));
  }
  if (Array.isArray(template_)) return template_.map((each) => filled(each, values));
  if (typeof template_ !== 'object' || template_ === null) return template_;
  return Object.fromEntries(Object.entries(template_).map(([name, each]) => [name, filled(each, values)]));
}

function textOf(value: unknown): string {
  if (value === null) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function encoded(value: unknown): string {
  return encodeURIComponent(textOf(value).toWellFormed());
}

/**
 * A value in the path. Every parser of URLs takes the segments `.` and `..`, percent-encoded or not, as steps to
 * another path. So these two values are encoded twice.
 */
function segment(value: unknown): string {
  const text = encoded(value);
  return text === '.' || text === '..' ? text.replaceAll('.', '%252E') : text;
}

/**
 * Adds a path to an address. The path begins with `/` or `?`, or is empty. The query of the address stays at the end.
 */
function joined(base_url: string, path: string): string {
  if (path === '') return base_url;
  const at = base_url.includes('?') ? base_url.indexOf('?') : base_url.length;
  const address = base_url.slice(0, at);
  const query = base_url.slice(at + 1);
  const whole = (path.startsWith('/') ? address.replace(/\/+$/, '') : address) + path;
  return query === '' ? whole : `${whole}${path.includes('?') ? '&' : '?'}${query}`;
}

function stepsOf(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function wrongWithBody(value: unknown): string | null {
  if (typeof value !== 'object' || value === null) return 'must be a JSON object or list';
  return wrongWithin(value, DEPTH_MAX) ?? tooLong(value);
}

function wrongWithin(value: unknown, depth: number): string | null {
  if (typeof value === 'string') return unknownPlace(value);
  if (typeof value !== 'object' || value === null) return null;
  if (depth === 0) return `is nested more than ${DEPTH_MAX} levels deep`;
  for (const each of Object.values(value)) {
    const why = wrongWithin(each, depth - 1);
    if (why !== null) return why;
  }
  return null;
}

/** Finds a mistyped place. In every request, such a place would become null. */
function unknownPlace(text: string): string | null {
  for (const [whole, place = ''] of text.matchAll(PLACE)) {
    const [first = ''] = place.split('.');
    if (!(FIELDS as readonly string[]).includes(first)) return `has ${whole}; a push has ${FIELDS.join(', ')}`;
  }
  return null;
}

/** Finds too many places for long values: with them, a request could be many times as long as its message. */
function tooLong(value: unknown): string | null {
  const places = longPlacesIn(value);
  if (places <= LONG_PLACES_MAX) return null;
  return `has ${places} places for ${LONG_FIELDS.join(', ')} and their parts; at most ${LONG_PLACES_MAX} are taken`;
}

function longPlacesIn(value: unknown): number {
  if (typeof value === 'string') {
    return [...value.matchAll(PLACE)].filter(([, place = '']) => LONG_FIELDS.includes(place.split('.')[0] ?? ''))
      .length;
  }
  if (typeof value !== 'object' || value === null) return 0;
  return Object.values(value).reduce((count: number, each) => count + longPlacesIn(each), 0);
}

function wrongWithHeaders(value: unknown): string | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'must be an object of header names';
  const entries = Object.entries(value);
  if (entries.length > HEADERS_MAX) return `must be at most ${HEADERS_MAX} headers`;
  for (const [name, text] of entries) {
    const lower = name.toLowerCase();
    if (!HEADER_NAME.test(lower) || REFUSED_HEADERS.has(lower))
      return `must not set the header ${JSON.stringify(name)}`;
    if (typeof text !== 'string' || text.length > 4_096 || !/^[\t\x20-\x7e]*$/.test(text)) {
      return `must give ${JSON.stringify(name)} a value of printable ASCII`;
    }
    const why = unknownPlace(text);
    if (why !== null) return why;
  }
  return tooLong(value);
}
