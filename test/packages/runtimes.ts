/** Programs of other projects with which the packages are tested. Each is installed when a test needs it. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { installPackage } from '../runtimes/packages.ts';

export const NODES_OF_SDK = ['20.20.2', '22.23.3', '24.21.0'];
/** The oldest supported version of each line, and the newest when this was written. */
export const NODES_OF_SERVICE = ['22.22.3', '22.23.3', '24.15.0', '24.21.0', '26.10.0'];
export const NODES_ON_POSTGRES = ['22.23.3', '24.21.0'];
const DENO = '2.9.6';
const BUN = '1.4.5';
/** The last version that is written in JavaScript, and the version that checks this clone. */
export const TYPESCRIPTS = ['5.9.3', '7.0.2'];

const { platform, arch } = process;

export interface Runtime {
  name: string;
  /** The program and its arguments, before the file to run. */
  command: string[];
}

/** Installs Node from the package of this platform. The general package would need an install script. */
export async function node(version: string): Promise<Runtime> {
  return { name: `Node ${version}`, command: [await installed(`node-${platform}-${arch}`, version, 'bin/node')] };
}

export async function deno(): Promise<Runtime> {
  const name = `@deno/${platform}-${arch}${platform === 'linux' ? '-glibc' : ''}`;
  return { name: `Deno ${DENO}`, command: [await installed(name, DENO, 'deno'), 'run', '--allow-all', '--no-remote'] };
}

export async function bun(): Promise<Runtime> {
  // The build for processors without AVX2 runs on all of them.
  const name = `@oven/bun-${platform}-${arch === 'arm64' ? 'aarch64' : 'x64-baseline'}`;
  return { name: `Bun ${BUN}`, command: [await installed(name, BUN, 'bin/bun'), 'run'] };
}

export async function compiler(version: string): Promise<Runtime> {
  const path = await installed('typescript', version, 'bin/tsc');
  return { name: `TypeScript ${version}`, command: [process.execPath, path] };
}

/** @returns the path of a file in an installed package */
async function installed(name: string, version: string, file: string): Promise<string> {
  const path = join(await installPackage(`${name}@${version}`), 'node_modules', name, file);
  if (!existsSync(path)) throw new Error(`${name}@${version} has no ${file}`);
  return path;
}
