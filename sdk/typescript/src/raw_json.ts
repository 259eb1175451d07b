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
    this.text = text;
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
