import { copyFileSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The contents of the files of a directory, by name. */
export function contentsOf(directory: string): Map<string, Buffer> {
  return new Map(readdirSync(directory).map((name) => [name, readFileSync(join(directory, name))]));
}

/** Copies the files as they are at this moment, as a killed process would leave them. */
export function copyFiles(from: string, to: string): void {
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(from)) copyFileSync(join(from, name), join(to, name));
}
