/** Functions that all runtimes need: the text of a message, and the meaning of a status. */
import { isForEverybody } from '../agents_to_notify.ts';
import { MISSED_MAX } from '../catch_up.ts';
import { outcomeOfStatus } from '../outcome.ts';
import type { Asked, Meaning, PastMessage, RuntimeResponse } from './runtime.ts';

export const HISTORY_DEFAULT = 20;
export const HISTORY_MAX = 100;
/** Stands for the agent in an option. */
export const AGENT = '{{agent_id}}';
/** The text with which an agent declines to answer. */
export const NO_REPLY = 'NO_REPLY';

export const HISTORY_OPTION = {
  type: 'integer',
  min: 0,
  max: HISTORY_MAX,
  default: HISTORY_DEFAULT,
  says: 'how many messages of the meeting before this one it is given',
} as const;

export const NO_REPLY_OPTION = {
  type: 'text',
  chars_max: 100,
  default: NO_REPLY,
  says: 'the answer that stands for no answer',
} as const;

/** The text of a message for a model: its `content` or `text`; otherwise all of it as JSON. */
export function textOfMessage(message: Record<string, unknown>): string {
  for (const field of ['content', 'text']) if (typeof message[field] === 'string') return message[field];
  return JSON.stringify(message);
}

/** Whether a message is for everybody, for one of these agents, or from one of them. */
export function concerns({ target_agents, from_agent }: PastMessage, agents: readonly string[]): boolean {
  if (isForEverybody(target_agents)) return true;
  return (from_agent !== null && agents.includes(from_agent)) || target_agents.some((agent) => agents.includes(agent));
}

/** The name of the sender of a message. */
export function nameOf(from_agent: string | null, message: Record<string, unknown>): string {
  if (from_agent !== null) return from_agent;
  for (const field of ['name', 'author', 'from', 'user']) if (typeof message[field] === 'string') return message[field];
  return 'somebody';
}

/**
 * A sentence that says to a model how many messages its agent missed; null when it missed none. The history of a
 * request has the newest messages, so it may contain some of the missed ones.
 */
export function missedInWords({ missed, agents, history }: Asked): string | null {
  if (missed === 0) return null;
  const count = missed === 1 ? '1 message' : `${missed >= MISSED_MAX ? 'at least ' : ''}${missed} messages`;
  const shown = history.length === 0 ? '' : '; the messages before this one may contain some of them';
  return `Convoke did not send ${agents.join(' and ')} ${count} of this meeting that came before this one${shown}.`;
}

/** The messages of a request as one text, for a runtime that takes only one text. */
export function conversationOf(asked: Asked): string {
  const line = ({ from_agent, message }: Pick<Asked, 'from_agent' | 'message'>): string =>
    `${nameOf(from_agent, message)}: ${textOfMessage(message)}`;
  const missed = missedInWords(asked);
  return [...asked.history.map(line), ...(missed === null ? [] : [`(${missed})`]), line(asked)].join('\n\n');
}

/** The text in the content of a message of a model: the content is a text or a list of parts. */
export function textOfContent(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content
    .map((part) => at(part, 'text'))
    .filter((text) => typeof text === 'string')
    .join('');
}

/** The agent of a request, for a runtime that asks each agent separately. */
export function agentOf({ agents }: Asked): string {
  return agents[0] ?? '';
}

/** The words of an agent, without the name that some models put before them. */
export function answersOf(text: string, agent: string, no_reply: string): string[] {
  let reply = text.trim();
  if (reply.startsWith(`${agent}:`)) reply = reply.slice(agent.length + 1).trim();
  return reply === '' || reply === no_reply ? [] : [reply];
}

/** The meaning of a response without a 2xx status. */
export function failed(response: RuntimeResponse): Meaning {
  const outcome = outcomeOfStatus(response.status_code, '2xx');
  return { kind: 'failed', outcome, detail: `answered ${response.status_code}` };
}

/** The outcome of a 2xx whose body is not as the runtime promises. */
export function notUnderstood(what: string): Meaning {
  return { kind: 'failed', outcome: 'broken_response', detail: `answered, but ${what}` };
}

const WHY_CHARS_MAX = 200;
/** The end of a text that was cut: a part of a secret may stand before it. */
export const CUT = '…';

/** The reason that a runtime gives for its failure, for the stored attempt. */
export function whyOf(reason: unknown): string {
  return typeof reason === 'string' && reason !== '' ? shortened(reason) : 'it does not say why';
}

/** The beginning of a text of a runtime. */
export function shortened(text: string): string {
  return (text.length > WHY_CHARS_MAX ? text.slice(0, WHY_CHARS_MAX) + CUT : text).toWellFormed();
}

/** Whether the status is 2xx. */
export function isSuccess({ status_code }: RuntimeResponse): boolean {
  return status_code >= 200 && status_code < 300;
}

const plain = (text: string): unknown => JSON.parse(text);

/**
 * The JSON of a body; undefined when it is not JSON.
 *
 * @param parse how to read it: to keep every digit takes several times as long
 */
export function jsonOf(body: string, parse: (text: string) => unknown = plain): unknown {
  try {
    return parse(body);
  } catch {
    return undefined;
  }
}

/** The value at a path of fields and indexes; undefined when a part of the path is missing. */
export function at(value: unknown, ...path: (string | number)[]): unknown {
  let found = value;
  for (const step of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, step)) return undefined;
    found = (found as Record<string | number, unknown>)[step];
  }
  return found;
}

/** Adds a path to that of the base URL. The query of the base URL stays at the end. */
export function below(base_url: string, path: string): string {
  const url = new URL(base_url);
  url.pathname = `${url.pathname.replace(/\/+$/, '')}${path}`;
  return url.href;
}

export const JSON_HEADERS = { 'content-type': 'application/json', accept: 'application/json' };

/**
 * The advice for statuses that mean the same for every runtime; null for other statuses.
 *
 * @param header the header in which the runtime expects its credential
 */
export function adviceForProbe(
  { status_code }: RuntimeResponse,
  path: string,
  header = 'authorization',
): string | null {
  if (status_code === 401 || status_code === 403) {
    return `${status_code}: it wants another credential; set webhook_headers.${header}.`;
  }
  if (status_code === 404 || status_code === 405) {
    return `${status_code}: there is no ${path} below webhook_url; check the path of webhook_url.`;
  }
  return status_code >= 200 && status_code < 300 ? null : `${status_code}: its own log says why.`;
}
