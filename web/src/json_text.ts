/** JSON for people to read, with the same content. */

const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[^\s"{}[\],:]+|[{}[\],:]/g;

/**
 * JSON text with line breaks and indentation, and every other character as it is. JSON.parse and JSON.stringify would
 * change 1.10 and 12345678901234567890. Text that has line breaks already stays as it is.
 */
export function indented(json: string): string {
  if (json.includes('\n')) return json;
  const tokens = json.match(TOKENS) ?? [];
  let text = '';
  let depth = 0;
  for (const [i, token] of tokens.entries()) {
    const is_close = token === '}' || token === ']';
    const before = tokens[i - 1];
    const is_empty = is_close && (before === '{' || before === '[');
    if (is_close) depth--;
    if (is_close ? !is_empty : before === ',' || before === '{' || before === '[') text += `\n${'  '.repeat(depth)}`;
    text += token === ':' ? ': ' : token;
    if (token === '{' || token === '[') depth++;
  }
  return text;
}
