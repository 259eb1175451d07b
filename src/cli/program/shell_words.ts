/** Words of a command line, as a shell and the commands take them. */

/** A word in quotes, if a shell needs them. */
export function quoted(word: string): string {
  return /^[\w.:@/+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** An id as the last argument of a command. Without the `--`, an id such as `-1` would be taken for an option. */
export function lastArgument(id: string): string {
  return id.startsWith('-') ? `-- ${quoted(id)}` : quoted(id);
}
