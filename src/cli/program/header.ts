import { CommandFailure, EXIT } from './exit.ts';

const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/**
 * The name and the value in a `--header` option.
 *
 * @throws CommandFailure for a header with which no request could be made
 */
export function headerOf(text: string): [string, string] {
  const colon = text.indexOf(':');
  // Does not repeat the text, because it may be a credential.
  if (colon < 1) throw new CommandFailure(EXIT.usage, "--header must look like 'authorization: Bearer …'");
  const [name, value] = [text.slice(0, colon).trim(), text.slice(colon + 1).trim()];
  if (!NAME.test(name))
    throw new CommandFailure(EXIT.usage, 'before the colon, --header must have the name of a header');
  if (!VALUE.test(value))
    throw new CommandFailure(EXIT.usage, `the value of --header ${name} has a character that no header can have`);
  return [name, value];
}
