import { randomId } from './random_id.ts';

/**
 * A message given as JSON text, sent as it is written: big numbers, escapes and the order of the keys survive.
 * `JSON.stringify` would turn 12345678901234567890 into 12345678901234567000.
 */
export class RawJson {
  readonly text: string;

  /** @throws SyntaxError when the text is not JSON, TypeError when it is not an object */
  constructor(text: string) {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new TypeError('a message must be a JSON object');
    }
    // In UTF-8 the half of a surrogate pair would become a replacement character. JSON.stringify escapes it too.
    this.text = text.replaceAll(/\p{Surrogate}/gu, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
  }
}

/** Takes the JSON text of a message as it is; see {@link RawJson}. */
export function rawJson(text: string): RawJson {
  return new RawJson(text);
}

/** As {@link rawJson}, for text that is known to be a JSON object: the text is not parsed. */
export function knownJson(text: string): RawJson {
  return Object.assign(Object.create(RawJson.prototype) as { text: string }, { text });
}

/**
 * As `JSON.stringify`, for a value in which a `RawJson` may take the place of an object. `JSON.rawJSON` does the same for
 * numbers and texts only.
 */
export function jsonWithRaw(value: object): string {
  const texts: string[] = [];
  const mark = randomId();
  const json = JSON.stringify(value, (_, each: unknown) =>
    each instanceof RawJson ? `${mark}${texts.push(each.text) - 1}` : each,
  );
  if (texts.length === 0) return json;
  return json.replaceAll(new RegExp(`"${mark}(\\d+)"`, 'g'), (_, i: string) => texts[Number(i)] as string);
}
