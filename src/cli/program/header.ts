import { CommandFailure, EXIT } from './exit.ts';

/** The name and the value in a `--header` option. */
export function headerOf(text: string): [string, string] {
  const colon = text.indexOf(':');
  // Does not repeat the text, because it may be a credential.
  if (colon < 1) throw new CommandFailure(EXIT.usage, "--header must look like 'authorization: Bearer …'");
  return [text.slice(0, colon).trim(), text.slice(colon + 1).trim()];
}
