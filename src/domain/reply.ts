import { isAgentIds, uniqueIds } from './id.ts';
import { fieldText, itemTexts } from './request_body.ts';
import { timestampOf } from './push_body.ts';

/**
 * The most replies in one response to a push, and the most replies with one token. A response to a push for more agents
 * may have one reply for each of them.
 */
export const REPLIES_MAX = 20;

/** A message with which an agent replies to a pushed message, in the meeting of that message. */
export interface Reply {
  /** The JSON text of the message, as the receiver wrote it. */
  message: string;
  /** See `timestampOf`. */
  timestamp: string;
  /** The agent that replies. */
  from_agent: string;
  /** Null: a broadcast. */
  target_agents: string[] | null;
}

/** A reply, or why it cannot be sent, in words for the person who runs the receiver. */
export type ReadReply = { kind: 'reply'; reply: Reply } | { kind: 'refused'; why: string };

/** A reply in a response, and its position there: 0 is the first. An item that is no reply counts too. */
type ReplyInResponse = ReadReply & { position: number };

/** The facts by which a reply is judged. */
export interface ReplyTerms {
  /** The agents that the push was for: a reply is from one of them. */
  agents: readonly string[];
  max_message_bytes: number;
}

const REPLY_FIELDS = ['message', 'from_agent', 'target_agents'];

/**
 * Reads the replies in the body of a response to a push: `{"reply": X}` or `{"replies": [X, …]}`. X is a text, or
 * `{"message": {…}, "from_agent"?, "target_agents"?}`. Other fields of the body are ignored, because they belong to the
 * receiver. A body that is not a JSON object, or has no reply in it, is an ordinary response.
 *
 * @returns the replies in the order of the response: at most REPLIES_MAX, or one for each agent if that is more; and
 * one refusal that says how many were left out
 */
export function repliesIn(body: string, terms: ReplyTerms): ReplyInResponse[] {
  // Most responses are empty, or a single word.
  if (!/^[ \t\r\n]*\{/.test(body)) return [];
  let parsed: { reply?: unknown; replies?: unknown };
  try {
    parsed = JSON.parse(body) as typeof parsed;
  } catch {
    return [];
  }
  const has_one = isSomething(parsed.reply);
  const has_many = isSomething(parsed.replies);
  if (!has_one && !has_many) return [];
  const at = (position: number, read: ReadReply): ReplyInResponse => ({ ...read, position });
  if (has_one && has_many) return [at(0, refused('the response has both reply and replies; give one of them'))];
  try {
    if (has_one) return [at(0, readReply(parsed.reply, fieldText(body, 'reply') as string, terms))];
    const { replies } = parsed;
    if (!Array.isArray(replies)) return [at(0, refused('replies is not a list'))];
    const replies_max = Math.max(REPLIES_MAX, terms.agents.length);
    const texts = itemTexts(fieldText(body, 'replies') as string, replies_max);
    const read = texts.flatMap((text, i) =>
      isSomething(replies[i]) ? [at(i, readReply(replies[i], text, terms))] : [],
    );
    const left_out = replies.length - texts.length;
    const why = `${left_out} more were left out: a response has at most ${replies_max}`;
    return left_out > 0 ? [...read, at(texts.length, refused(why))] : read;
  } catch {
    return [at(0, refused('the response is nested too deeply'))];
  }
}

/** Whether a value is a reply. A receiver returns null or an empty text when its agent does not answer. */
function isSomething(value: unknown): boolean {
  return value !== undefined && value !== null && value !== '';
}

/**
 * Reads one reply.
 *
 * @param text the JSON text of the value
 * @throws Problem `malformed_json` when it is nested too deeply
 */
export function readReply(value: unknown, text: string, terms: ReplyTerms): ReadReply {
  if (typeof value === 'string') return judged({ content: value }, `{"content":${text}}`, undefined, null, terms);
  if (!isObject(value)) return refused('a reply is a text, or an object with a message');
  const unknown = Object.keys(value).find((field) => !REPLY_FIELDS.includes(field));
  // Refuses a field with a mistyped name. Otherwise a reply whose target_agents is mistyped would become a broadcast.
  if (unknown !== undefined)
    return refused(`a reply has message, from_agent and target_agents, and no ${quoted(unknown)}`);
  const { message, from_agent, target_agents } = value;
  if (!isObject(message)) return refused('the message of a reply is not a JSON object');
  if (from_agent !== undefined && typeof from_agent !== 'string') return refused('from_agent is not a string');
  if (target_agents !== undefined && !isAgentIds(target_agents)) {
    return refused('target_agents is not a list of agent ids, or is too long');
  }
  const targets = target_agents === undefined ? null : uniqueIds(target_agents);
  return judged(message, fieldText(text, 'message') as string, from_agent, targets, terms);
}

function judged(
  message: Record<string, unknown>,
  text: string,
  named_agent: string | undefined,
  target_agents: string[] | null,
  { agents, max_message_bytes }: ReplyTerms,
): ReadReply {
  const bytes = Buffer.byteLength(text);
  if (bytes > max_message_bytes) {
    return refused(`its message has ${bytes} bytes, and at most ${max_message_bytes} are taken`);
  }
  const [only_agent] = agents;
  const from_agent = named_agent ?? (agents.length === 1 ? only_agent : undefined);
  if (from_agent === undefined) return refused('from_agent is missing, and the push was for several agents');
  if (!agents.includes(from_agent)) {
    return refused(`from_agent ${quoted(from_agent)} is none of the agents that the push was for`);
  }
  return { kind: 'reply', reply: { message: text, timestamp: timestampOf(message, text), from_agent, target_agents } };
}

function refused(why: string): ReadReply {
  return { kind: 'refused', why };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A text that a receiver wrote, short enough for a sentence. */
function quoted(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}
