/** A LIKE pattern (with `ESCAPE '\'`) for rows that contain the text itself. */
export function likePattern(text: string): string {
  return `%${text.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;
}
