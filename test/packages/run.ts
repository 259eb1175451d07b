/** Runs programs as for a new user: PATH has nothing of this clone, and the environment has nothing of npm. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { delimiter } from 'node:path';

export const SYSTEM_PATH = (process.env['PATH'] ?? '')
  .split(delimiter)
  .filter((directory) => !directory.includes('node_modules'))
  .join(delimiter);

const SYSTEM_ENV = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !/^(npm_|CONVOKE_|NODE_|INIT_CWD$)/i.test(name)),
);

export interface Where {
  cwd: string;
  path?: string;
  env?: Record<string, string>;
}

export function environment({ path = SYSTEM_PATH, env = {} }: Pick<Where, 'path' | 'env'>): NodeJS.ProcessEnv {
  return { ...SYSTEM_ENV, NO_COLOR: '1', npm_config_update_notifier: 'false', ...env, PATH: path };
}

/** Runs a program to its end; when it fails, rejects with its output. */
export async function run([command = '', ...args]: string[], where: Where): Promise<string> {
  const child = spawn(command, args, { cwd: where.cwd, env: environment(where), stdio: ['ignore', 'pipe', 'pipe'] });
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  if (child.exitCode === 0) return stdout;
  const words = [command, ...args].join(' ');
  throw new Error(`${words} in ${where.cwd} ended with ${child.exitCode ?? child.signalCode}:\n${stdout}${stderr}`);
}
