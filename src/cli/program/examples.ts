import type { Command } from 'commander';
import { typedExample, withTypedCommands } from './command_name.ts';

/**
 * Adds examples to the help of a command.
 *
 * @param examples a description for each command line
 */
export function withExamples(command: Command, examples: Record<string, string>): Command {
  const lines = (): string[] =>
    Object.entries(examples).map(([line, what]) => `  $ ${typedExample(line)}\n      ${withTypedCommands(what)}`);
  return command.addHelpText('after', () => `\nExamples:\n${lines().join('\n')}`);
}
