/** A LIKE pattern (with `ESCAPE '\'`) for rows that contain the text itself. */
export function likePattern(text: string): string {
  return `%${text.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;
}

/** Turns only the ASCII letters into lower case, like LIKE in SQLite, and lower() with COLLATE "C" in PostgreSQL. */
export function lowerCase(text: string): string {
  return text.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());
}
