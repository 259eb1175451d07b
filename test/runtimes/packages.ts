import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { join } from 'node:path';

const CACHE = fileURLToPath(new URL('../../node_modules/.cache/runtimes/', import.meta.url));
const INSTALL_MS_MAX = 600_000;

/**
 * Installs a package from npm into a directory of the cache, unless it is there. No install script runs.
 *
 * @param pinned `name@version`
 * @returns the directory that holds its `node_modules`
 */
export function installPackage(pinned: string): Promise<string> {
  return installPackages([pinned]);
}

/** The same for several packages that belong together; the directory is named for the first. */
export async function installPackages(pinned: readonly [string, ...string[]]): Promise<string> {
  const directory = join(CACHE, pinned[0].replaceAll('/', '+'));
  if (existsSync(directory)) return directory;
  // Renamed when it is whole: an install that was interrupted starts again.
  const partial = `${directory}.partial`;
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  await writeFile(join(partial, 'package.json'), '{"private": true}\n');
  const args = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--no-save', ...pinned];
  await promisify(execFile)('npm', args, { cwd: partial, timeout: INSTALL_MS_MAX, maxBuffer: 64 << 20 });
  await rename(partial, directory);
  return directory;
}
