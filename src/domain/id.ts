import { invalidField } from './problem.ts';

/** Ids that users choose: instance_id, meeting_id, agent ids. */
export const ID_CHARS_MAX = 200;
/** No control characters (Cc) and no lone surrogates. The `u` flag makes the pattern count code points. */
export const ID_PATTERN = `^[^\\u0000-\\u001f\\u007f-\\u009f\\ud800-\\udfff]{1,${ID_CHARS_MAX}}$`;
export const AGENT_IDS_MAX = 1000;
/**
 * The most bytes of all ids of a list, as UTF-8: room for 1,000 UUIDs. Every delivery stores a list, so each byte is
 * stored again for each message of the meeting.
 */
export const AGENT_IDS_BYTES_MAX = 40_000;

/**
 * Refuses the ids `.` and `..`. Every client resolves them in a path, even when they are percent-encoded (RFC 3986,
 * section 5.2.4), so no client could request such an id.
 *
 * @throws Problem `invalid_fields`
 */
export function assertAddressable(field: string, id: string): void {
  if (isDots(id)) throw invalidField(field, 'must be another one than . and .., which no client can put into a path');
}

const ID = new RegExp(ID_PATTERN, 'u');

/** Whether a text can be an id that a user chose. */
export function isId(text: string): boolean {
  return ID.test(text);
}

/** Whether a text is an id that every client can put into a path. */
export function isAddressableId(text: string): boolean {
  return ID.test(text) && !isDots(text);
}

function isDots(id: string): boolean {
  return id === '.' || id === '..';
}

/** Whether a value that nothing has checked yet is a list of agent ids within its limits. */
export function isAgentIds(value: unknown): value is string[] {
  if (!Array.isArray(value) || value.length > AGENT_IDS_MAX) return false;
  let bytes = 0;
  for (const id of value as unknown[]) {
    if (typeof id !== 'string' || !ID.test(id)) return false;
    bytes += Buffer.byteLength(id);
  }
  return bytes <= AGENT_IDS_BYTES_MAX;
}

/** Drops repeated ids. The first of each keeps its place. */
export function uniqueIds(ids: readonly string[]): string[] {
  return ids.length < 2 ? [...ids] : [...new Set(ids)];
}

/**
 * Numbers for messages and deliveries. Each number is larger than the previous one, and at least the milliseconds since
 * EPOCH_MS times 4096. So a new data file does not repeat the numbers of an old file. The numbers stay below 2^53 until
 * the year 2093.
 */
const EPOCH_MS = Date.UTC(2024, 0, 1);
export const NUMBERS_PER_MS = 4096;

/** The lowest number that a row made at this time can have: numbers are never behind the clock. */
export function numberAt(ms: number): number {
  return Math.max(0, Math.min((Math.floor(ms) - EPOCH_MS) * NUMBERS_PER_MS, Number.MAX_SAFE_INTEGER));
}

export class NumberSource {
  readonly #now: () => number;
  #last: number;

  /**
   * @param now milliseconds since the epoch; when this time goes back, the numbers continue from the last number
   * @param last the highest number in use
   */
  constructor(now: () => number, last: number) {
    this.#now = now;
    this.#last = last;
  }

  /** Takes `count` numbers that follow one another, and returns the first of them. */
  take(count: number): number {
    const first = Math.max(this.#last + 1, (this.#now() - EPOCH_MS) * NUMBERS_PER_MS);
    this.#last = first + count - 1;
    return first;
  }
}

const TAG_CHARS = 8;
const RADIX = 32;
const DIGITS = '0123456789abcdefghijklmnopqrstuv';
/** A character holds five bits. The upper 23 bits of a number make five characters, its lower 30 bits six. */
const UPPER_CHARS = 5;
const NUMBER_CHARS = 11;
const LOWER = 2 ** 30;
/** The upper bits of the largest safe integer. */
const UPPER_MAX = 2 ** 23 - 1;

/**
 * The two characters for each value of ten bits. With this table, `encode` is four times as fast as with
 * `toString(32)`, and every delivery needs several ids.
 */
const PAIRS = Array.from({ length: RADIX * RADIX }, (_, bits) => `${DIGITS[bits >> 5]}${DIGITS[bits & 31]}`);
/** The value of each digit, by its character code; -1 for other characters. */
const VALUES = Int8Array.from({ length: 128 }, (_, code) => DIGITS.indexOf(String.fromCharCode(code)));

export type IdPrefix = 'msg' | 'dlv';

/**
 * Public ids: a prefix, the tag of the data file, the number. Receivers recognise a repeated delivery by its id, so two
 * data files must not make the same id.
 */
export class IdCodec {
  readonly tag: string;
  readonly #heads: Record<IdPrefix, string>;

  /** @param tag see `makeTag` */
  constructor(tag: string) {
    this.tag = tag;
    this.#heads = { msg: `msg_${tag}`, dlv: `dlv_${tag}` };
  }

  /** @param number a safe integer, not below 0 */
  encode(prefix: IdPrefix, number: number): string {
    const upper = Math.floor(number / LOWER);
    const lower = number - upper * LOWER;
    return `${this.#heads[prefix]}${DIGITS[upper >> 20]}${PAIRS[(upper >> 10) & 1023]}${PAIRS[upper & 1023]}${PAIRS[lower >> 20]}${PAIRS[(lower >> 10) & 1023]}${PAIRS[lower & 1023]}`;
  }

  /** Null for text that `encode` did not make. */
  decode(prefix: IdPrefix, id: string): number | null {
    const head = this.#heads[prefix];
    if (id.length !== head.length + NUMBER_CHARS || !id.startsWith(head)) return null;
    const upper = bitsIn(id, head.length, UPPER_CHARS);
    const lower = bitsIn(id, head.length + UPPER_CHARS, NUMBER_CHARS - UPPER_CHARS);
    return upper === null || lower === null || upper > UPPER_MAX ? null : upper * LOWER + lower;
  }
}

/**
 * When a message was stored, in milliseconds since the epoch, as its id says. 0 for an id that Convoke did not make.
 */
export function madeAt(message_id: string): number {
  const from = message_id.length - NUMBER_CHARS;
  const upper = bitsIn(message_id, from, UPPER_CHARS);
  const lower = bitsIn(message_id, from + UPPER_CHARS, NUMBER_CHARS - UPPER_CHARS);
  if (upper === null || lower === null || upper > UPPER_MAX) return 0;
  return EPOCH_MS + Math.floor((upper * LOWER + lower) / NUMBERS_PER_MS);
}

/** Reads the bits of some characters, at most 30 bits. Null when a character is not one of our digits. */
function bitsIn(id: string, from: number, chars: number): number | null {
  let bits = 0;
  for (let i = from; i < from + chars; i++) {
    const value = VALUES[id.charCodeAt(i)] ?? -1;
    if (value < 0) return null;
    bits = (bits << 5) | value;
  }
  return bits;
}

/** @param random a number in [0, 1) */
export function makeTag(random: () => number): string {
  return Array.from({ length: TAG_CHARS }, () => DIGITS[Math.floor(random() * RADIX)]).join('');
}
