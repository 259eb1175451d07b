/** A LIKE pattern (with `ESCAPE '\'`) for rows that contain the text itself. */
export function likePattern(text: string): string {
  return `%${text.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;
}

/** Turns only the ASCII letters into lower case, as LIKE of SQLite and lower() of a byte-wise PostgreSQL text do. */
export function lowerCase(text: string): string {
  return text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}
