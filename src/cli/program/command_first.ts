import type { Command } from 'commander';

/**
 * Moves the command of a group before the options: `deliveries --url X drop` becomes `deliveries drop --url X`.
 * Commander gives everything behind an option to the default command, `list`.
 *
 * @param words what the user typed behind the name of the program
 */
export function commandFirst(root: Command, words: readonly string[]): readonly string[] {
  const group = root.commands.find((command) => command.name() === words[0]);
  if (group === undefined) return words;
  const options = group.commands.flatMap((command) => command.options);
  for (let i = 1; i < words.length; i++) {
    const word = words[i]!;
    if (group.commands.some((command) => command.name() === word))
      return [words[0]!, word, ...words.slice(1, i), ...words.slice(i + 1)];
    if (word === '--' || !word.startsWith('-')) return words;
    // The next word is the value of this option, even if it is the name of a command.
    if (options.some(({ short, long, required }) => required && [short, long].includes(word))) i++;
  }
  return words;
}
