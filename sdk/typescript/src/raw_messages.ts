/** Messages of responses, each with the JSON text of its sender. */
import { knownJson, type RawJson } from './raw_json.ts';
import type { FoundMessage, Message, MessageTrace } from './types.ts';

/** A message of the history with its JSON as it was written: big numbers, `1.10` and the order of the keys survive. */
export interface RawMessage extends Omit<Message, 'message'> {
  message: RawJson;
}

/** A found message with its JSON as it was written. */
export interface RawFoundMessage extends Omit<FoundMessage, 'message'> {
  message: RawJson;
}

/** A message with its trace, and with its JSON as it was written. */
export interface RawMessageTrace extends Omit<MessageTrace, 'message'> {
  message: RawJson;
}

/**
 * @param text a page of messages, as the service responded
 * @throws SyntaxError when it is no page of messages
 */
export function rawMessages<Page extends { data: { message: RawJson }[] }>(text: string): Page {
  const { texts, rest } = withoutMessages(text, PAGE_DEPTH);
  const page = JSON.parse(rest) as Page;
  const { data } = page;
  if (!Array.isArray(data) || texts.length !== data.length) throw new SyntaxError('this is no page of messages');
  return { ...page, data: data.map((about, i) => ({ ...about, message: knownJson(texts[i] as string) })) };
}

/**
 * @param text one message, as the service responded
 * @throws SyntaxError when it is no message
 */
export function rawMessage<About extends { message: RawJson }>(text: string): About {
  const { texts, rest } = withoutMessages(text, 1);
  const [message] = texts;
  if (message === undefined) throw new SyntaxError('this is no message');
  return { ...(JSON.parse(rest) as About), message: knownJson(message) };
}

/** A page is an object with the array `data`. Each item of this array is an object with the member `message`. */
const PAGE_DEPTH = 3;

/**
 * Cuts the messages at this depth out of a response that is valid JSON. A page has up to 8 MiB of messages: to read all
 * of them can take a second, and most callers need a few.
 */
function withoutMessages(page: string, message_depth: number): { texts: string[]; rest: string } {
  const texts: string[] = [];
  const rest: string[] = [];
  let kept = 0;
  let depth = 0;
  for (let at = 0; at < page.length; at++) {
    const character = page[at];
    if (character === '{' || character === '[') depth++;
    else if (character === '}' || character === ']') depth--;
    else if (character === '"') {
      const end = stringEnd(page, at);
      const is_message = depth === message_depth && page.slice(at, end) === '"message"' && page[end] === ':';
      if (is_message) {
        rest.push(page.slice(kept, end + 1), 'null');
        texts.push(page.slice(end + 1, (kept = at = valueEnd(page, end + 1))));
      } else at = end;
      at--;
    }
  }
  rest.push(page.slice(kept));
  return { texts, rest: rest.join('') };
}

/** The end of the string that begins at `start`. */
function stringEnd(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

/** The end of the object or array that begins at `start`. */
function valueEnd(text: string, start: number): number {
  let depth = 0;
  for (let at = start; at < text.length; at++) {
    const character = text[at];
    if (character === '"') at = stringEnd(text, at) - 1;
    else if (character === '{' || character === '[') depth++;
    else if ((character === '}' || character === ']') && --depth === 0) return at + 1;
  }
  return text.length;
}
