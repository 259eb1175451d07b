/**
 * The forms that a text can have in a message, in lower case (ASCII only). A message is kept as its sender wrote it, so
 * one text can have several forms: JSON; JSON in ASCII only, as Python writes it; and JSON in ASCII only with `\/`, as
 * PHP writes it. The text itself is also a form: it finds parts of the JSON, such as `"status":"red"`.
 */
export function formsOf(text: string): string[] {
  const json = JSON.stringify(text).slice(1, -1);
  const ascii = json.replaceAll(
    /[\u0080-\uffff]/g,
    (unit) => String.raw`\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  const forms = [text, json, ascii, ascii.replaceAll('/', String.raw`\/`)];
  return [...new Set(forms.map((form) => form.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase())))];
}

/** Whether a message contains a text. The searches of the store decide in the same way. */
export function holdsText(message: string, text: string): boolean {
  const lower = message.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
  return formsOf(text).some((form) => lower.includes(form));
}
