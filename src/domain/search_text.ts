/**
 * The forms that a text can have in a message, in lower case (ASCII only). A message is kept as its sender wrote it,
 * and libraries for JSON differ in the characters that they escape. The text itself is also a form: it finds parts of
 * the JSON, such as `"status":"red"`.
 */
export function formsOf(text: string): string[] {
  const json = inJson(text);
  const ascii = escaped(json, NOT_ASCII);
  const with_quotes = text.split('"').map(inJson).join('\\u0022');
  const forms = [
    text,
    // JavaScript, Jackson for Java, Rust.
    json,
    // Python.
    ascii,
    // PHP, with JSON_UNESCAPED_UNICODE and without.
    json.replaceAll('/', String.raw`\/`),
    ascii.replaceAll('/', String.raw`\/`),
    // Go and Ruby on Rails.
    escaped(json, /[<>&\u2028\u2029]/g),
    // Gson for Java.
    escaped(json, /[<>&='\u2028\u2029]/g),
    // .NET.
    escaped(escaped(with_quotes, NOT_ASCII), /[<>&+'`]/g),
  ];
  return [...new Set(forms.map(lowerCase))];
}

/**
 * Turns the ASCII letters into lower case, and no others. The searches of the store do the same to the texts in the
 * rows.
 */
export function lowerCase(text: string): string {
  return text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}

const NOT_ASCII = /[\u0080-\uffff]/g;

/** A text within quotation marks of JSON. */
function inJson(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

/** Replaces some characters by their numbers. */
function escaped(json: string, characters: RegExp): string {
  return json.replaceAll(characters, (unit) => String.raw`\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Whether a message contains a text. The searches of the store decide in the same way. */
export function holdsText(message: string, text: string): boolean {
  const lower = lowerCase(message);
  return formsOf(text).some((form) => lower.includes(form));
}
