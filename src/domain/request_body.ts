import { isUtf8 } from 'node:buffer';
import { Problem } from './problem.ts';

/**
 * JSON that is nested deeper than this is refused: no honest client sends it, and a receiver that reads by recursion
 * might crash.
 */
const DEPTH_MAX = 100;

/**
 * A body of more than COUNTED_BYTES_MIN bytes may have at most VALUES_MAX values. A list of 1,400,000 empty objects has
 * 4 MiB, and JSON.parse blocks the event loop for 150 ms to read it.
 */
const COUNTED_BYTES_MIN = 640 << 10;
const VALUES_MAX = 150_000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const COLON = 0x3a;
const COMMA = 0x2c;

const MESSAGE = 'message';
const MESSAGES = 'messages';

/**
 * The check for repeated names leaves out the values of these fields. A message belongs to the sender and is passed on
 * as it is. The items of `messages` are bodies of their own, which `items` checks one by one.
 */
const READ_APART: ReadonlySet<string> = new Set([MESSAGE, MESSAGES]);

/** The field of a later reply. Its value has a message too, and the check also leaves out this message. */
const REPLY = 'reply';

/** The place of a value in the body, in bytes. */
interface Span {
  start: number;
  end: number;
}

/** A parsed body, with the text of its own fields as the sender wrote it. */
export interface JsonBody {
  value: unknown;
  /** The exact text of a field's value; null when there is no such field. */
  textOf(field: string): string | null;
  /**
   * The items of a list, each as a body of its own; empty when the field is no list. A Problem takes the place of an
   * item that has a field twice, or more than `bytes_max` bytes.
   */
  items(field: string, bytes_max: number): (JsonBody | Problem)[];
}

/**
 * Parses a request body.
 *
 * @param checks_items whether the caller takes the items of `messages` from `items`. Then an item that is too deep is
 *   refused there, and not the whole body
 * @throws Problem `malformed_json` for a body that is not UTF-8, not JSON, or too deep. Also for a body with a field
 *   twice: JSON.parse would drop one of the two values without an error
 * @throws Problem `body_too_large` for a large body with too many values
 */
export function parseJsonBody(bytes: Buffer, checks_items = false): JsonBody {
  if (!isUtf8(bytes)) throw new Problem('malformed_json', 'The body is not valid UTF-8.');
  if (bytes.length > COUNTED_BYTES_MIN && valuesIn(bytes) > VALUES_MAX)
    throw new Problem('body_too_large', `The body has more than ${VALUES_MAX} values; send it in several requests.`);
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString());
  } catch (error) {
    throw new Problem('malformed_json', `The body is not valid JSON${placeOf(error as SyntaxError)}.`);
  }
  return bodyOf(bytes, value, checks_items ? MESSAGES : null);
}

/**
 * @param deep_field the field whose value may have any depth
 * @throws Problem `malformed_json` for a body that is too deep, or has a field twice
 */
function bodyOf(bytes: Buffer, value: unknown, deep_field: string | null = null): JsonBody {
  const fields = spansOf(bytes, { deep_field });
  return {
    value,
    textOf: (field) => sliceOf(bytes, fields.get(field)),
    items: (field, bytes_max) => {
      const list = (value as Record<string, unknown> | null)?.[field];
      const span = fields.get(field);
      if (!Array.isArray(list) || span === undefined) return [];
      const spans = itemSpans(bytes.subarray(span.start, span.end), list.length);
      return spans.map(({ start, end }, i) => {
        if (end - start > bytes_max) return new Problem('body_too_large', `It has more than ${bytes_max} bytes.`);
        try {
          return bodyOf(bytes.subarray(span.start + start, span.start + end), list[i]);
        } catch (error) {
          if (error instanceof Problem) return error;
          throw error;
        }
      });
    },
  };
}

/**
 * About how many values a JSON text has: one for each comma and each opening bracket. The number may be too high,
 * because it includes commas and brackets within strings.
 */
function valuesIn(bytes: Buffer): number {
  let values = 0;
  for (const byte of bytes) if (byte === COMMA || byte === OPEN_BRACE || byte === OPEN_BRACKET) values++;
  return values;
}

/**
 * The place at which the parser stopped, if its error names the place. The text of the error is not repeated: it quotes
 * the body, and the body may contain secrets.
 */
function placeOf({ message }: SyntaxError): string {
  return / at position \d+/.exec(message)?.[0] ?? '';
}

/**
 * The exact text of the value of a field; null when there is no such field. JSON.parse could change the value: for
 * example, a long number loses digits.
 *
 * @param object the text of an object that is known to be valid JSON
 */
export function fieldText(object: string, field: string): string | null {
  const bytes = Buffer.from(object);
  return sliceOf(bytes, spansOf(bytes, { repeats_allowed: true }).get(field));
}

/**
 * The exact texts of the items of a list.
 *
 * @param list the text of a list that is known to be valid JSON
 * @param items_max the most items that are returned, from the first on
 */
export function itemTexts(list: string, items_max: number): string[] {
  const bytes = Buffer.from(list);
  return itemSpans(bytes, items_max).map(({ start, end }) => bytes.toString('utf8', start, end));
}

/** The places of the items of a list, at most `items_max`. */
function itemSpans(bytes: Buffer, items_max: number): Span[] {
  const spans: Span[] = [];
  let depth = 0;
  let start = 0;
  const endItem = (end: number): void => {
    const span = trimmed(bytes, start, end);
    if (span.end > span.start) spans.push(span);
    start = end + 1;
  };
  for (let i = 0; i < bytes.length && spans.length < items_max; i++) {
    const byte = bytes[i] as number;
    if (byte === QUOTE) i = endOfString(bytes, i);
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (depth++ === 0) start = i + 1;
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      if (--depth === 0) endItem(i);
    } else if (byte === COMMA && depth === 1) endItem(i);
  }
  return spans;
}

function sliceOf(bytes: Buffer, span: Span | undefined): string | null {
  return span === undefined ? null : bytes.toString('utf8', span.start, span.end);
}

/** All empty objects share this Set: with 200,000 of them, a Set for each would cost more than all other work. */
const NO_NAMES: ReadonlySet<string> = new Set();

/**
 * The positions of the values of an object's own fields. The text must be valid JSON. Empty for anything but an object.
 *
 * The function reads the text once, however deeply it is nested. With a pass for each object, it would read nested text
 * once for each level.
 *
 * @param repeats_allowed whether any field may be repeated; then the last one counts. When false, only fields within
 * the values of READ_APART and within the message of a REPLY may be repeated.
 * @param deep_field the field whose value may have any depth
 */
function spansOf(
  bytes: Buffer,
  { repeats_allowed = false, deep_field = null }: { repeats_allowed?: boolean; deep_field?: string | null } = {},
): Map<string, Span> {
  const spans = new Map<string, Span>();
  /** One entry for each open object or list: the names in it so far; null when repeated names do not matter there. */
  const open: (ReadonlySet<string> | null)[] = [];
  let is_object = false;
  let is_free = repeats_allowed;
  let key = '';
  let text_start = 0;
  let text_end = 0;
  let value_start = -1;
  const endValue = (end: number): void => {
    if (value_start === -1) return;
    spans.set(key, trimmed(bytes, value_start, end));
    value_start = -1;
    is_free = repeats_allowed;
  };
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i] as number;
    if (byte === QUOTE) {
      text_start = i;
      i = endOfString(bytes, i);
      text_end = i + 1;
    } else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (open.length === DEPTH_MAX && key !== deep_field)
        throw new Problem('malformed_json', `The body is nested more than ${DEPTH_MAX} levels deep.`);
      if (open.length === 0) is_object = byte === OPEN_BRACE;
      open.push(byte === OPEN_BRACE && !is_free ? NO_NAMES : null);
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      if (open.length === 1 && is_object) endValue(i);
      open.pop();
    } else if (byte === COLON) {
      const names = open.at(-1) ?? null;
      const is_own = open.length === 1;
      if (names === null && !is_own) continue;
      const name = JSON.parse(bytes.toString('utf8', text_start, text_end)) as string;
      if (names?.has(name) === true)
        throw new Problem('malformed_json', `The field ${JSON.stringify(name)} is there twice; send it once.`);
      if (names === NO_NAMES) open[open.length - 1] = new Set([name]);
      else (names as Set<string> | null)?.add(name);
      if (!is_own) {
        if (open.length === 2 && key === REPLY) is_free = name === MESSAGE;
        continue;
      }
      key = name;
      value_start = i + 1;
      is_free = repeats_allowed || READ_APART.has(key);
    } else if (byte === COMMA && open.length === 1 && is_object) {
      endValue(i);
    }
  }
  return spans;
}

/** The index of the closing quote of the string at `start`. */
function endOfString(bytes: Buffer, start: number): number {
  for (let end = bytes.indexOf(QUOTE, start + 1); ; end = bytes.indexOf(QUOTE, end + 1)) {
    let backslashes = 0;
    while (bytes[end - 1 - backslashes] === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return end;
  }
}

function trimmed(bytes: Buffer, start: number, end: number): Span {
  while (isSpace(bytes[start])) start++;
  while (isSpace(bytes[end - 1])) end--;
  return { start, end };
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}
