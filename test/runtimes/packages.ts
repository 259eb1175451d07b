import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { join } from 'node:path';

const CACHE = fileURLToPath(new URL('../../node_modules/.cache/runtimes/', import.meta.url));
/** How long an installation may take. To compile llama.cpp takes five minutes on a quiet machine. */
const INSTALL_MS_MAX = 1_500_000;

/**
 * Installs a package from npm into a directory of the cache, unless it is there. No install script runs.
 * @param pinned `name@version`
 * @returns the directory that holds its `node_modules`
 */
export function installPackage(pinned: string): Promise<string> {
  return installPackages([pinned]);
}

/**
 * Installs several packages that belong together, as `installPackage` does. The directory has the name of the first.
 */
export async function installPackages(pinned: readonly [string, ...string[]]): Promise<string> {
  const directory = join(CACHE, pinned[0].replaceAll('/', '+'));
  if (existsSync(directory)) return directory;
  // The directory gets its name when it is complete, so an interrupted installation starts again.
  const partial = `${directory}.partial`;
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  await writeFile(join(partial, 'package.json'), '{"private": true}\n');
  const args = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--no-save', ...pinned];
  await promisify(execFile)('npm', args, { cwd: partial, timeout: INSTALL_MS_MAX, maxBuffer: 64 << 20 });
  await rename(partial, directory);
  return directory;
}

/**
 * Installs packages from PyPI into an environment in the cache, unless it is there. A package without a wheel is
 * compiled, which takes minutes.
 *
 * @param pinned `name==version` each; the environment is named for the first
 * @returns the directory of the environment, whose programs are in `bin`
 */
export async function installFromPyPi(pinned: readonly [string, ...string[]]): Promise<string> {
  const directory = join(CACHE, pinned[0]);
  const whole = join(directory, 'whole');
  if (existsSync(whole)) return directory;
  // The environment is made in its final place, because its programs contain its path.
  await rm(directory, { recursive: true, force: true });
  await mkdir(CACHE, { recursive: true });
  const settings = { timeout: INSTALL_MS_MAX, maxBuffer: 64 << 20 };
  await promisify(execFile)('python3', ['-m', 'venv', directory], settings);
  const install = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...pinned];
  await promisify(execFile)(join(directory, 'bin/python'), install, settings);
  await mkdir(whole);
  return directory;
}
