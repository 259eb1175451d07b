import type { Command } from 'commander';

/** Ends the help of a command with examples: command line to what it does. */
export function withExamples(command: Command, examples: Record<string, string>): Command {
  const lines = Object.entries(examples).map(([line, what]) => `  $ ${line}\n      ${what}`);
  return command.addHelpText('after', `\nExamples:\n${lines.join('\n')}`);
}
