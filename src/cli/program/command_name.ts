import { readFileSync, realpathSync } from 'node:fs';
import { delimiter, dirname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { quoted } from './shell_words.ts';

/** The directory of this program's package.json: a clone, or an installed package. */
const ROOT = rootOf(dirname(fileURLToPath(import.meta.url)));

let name: string | null = null;

/**
 * The name that a user must type to run this program on this machine: `convoke` only if the shell finds this
 * installation, `npx convoke` only if npx finds it, and else its path. When npx does not find it, npx could run a
 * stranger's package of that name.
 */
export function commandName(): string {
  return (name ??= isOnPath() ? 'convoke' : isFoundByNpx() ? 'npx convoke' : quoted(programPath()));
}

/** `convoke COMMAND` as the user must type it here, for texts that the program prints. */
export function typed(command: string): string {
  return `${commandName()} ${command}`;
}

/** A text from elsewhere, such as the service, with its commands in backquotes as the user must type them here. */
export function withTypedCommands(text: string): string {
  return text.replaceAll(/`convoke (?=[a-z])/g, () => `\`${commandName()} `);
}

/** Like `typed`, for a line of an example. The line may set variables before the command, or pipe something into it. */
export function typedExample(line: string): string {
  return line.replace(/(^|\s)convoke(?=\s)/, (_, before: string) => `${before}${commandName()}`);
}

/**
 * Leaves out `node_modules/.bin`: npm adds this directory only for its scripts, and a shell in a terminal does not
 * search there.
 */
function isOnPath(): boolean {
  const directories = (process.env['PATH'] ?? '').split(delimiter);
  return directories.some((directory) => {
    if (directory === '' || directory.endsWith(join('node_modules', '.bin'))) return false;
    const file = realPathOf(join(directory, 'convoke'));
    return file !== null && file === realPathOf(programPath());
  });
}

/** npx finds this program in the working directory, or in its node_modules, or in those of a directory above. */
function isFoundByNpx(): boolean {
  // A path with `_npx` means that npx fetched the program for this one run.
  if (ROOT.includes(`${sep}_npx${sep}`)) return true;
  for (let directory = process.cwd(); ; directory = dirname(directory)) {
    if (realPathOf(directory) === ROOT || realPathOf(join(directory, 'node_modules', 'convoke')) === ROOT) return true;
    if (directory === dirname(directory)) return false;
  }
}

function programPath(): string {
  const { bin } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { bin: { convoke: string } };
  return join(ROOT, bin.convoke);
}

function realPathOf(path: string): string | null {
  try {
    return realpathSync(path);
  } catch {
    return null;
  }
}

/** The nearest directory, from this one upwards, whose package.json has the name `convoke`. */
function rootOf(directory: string): string {
  for (let at = directory; ; at = dirname(at)) {
    try {
      const { name: found } = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8')) as { name?: string };
      if (found === 'convoke') return at;
    } catch {
      // There is no package.json in this directory.
    }
    if (at === dirname(at)) return directory;
  }
}
