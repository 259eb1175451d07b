/** Runs commands as people and scripts do: as real processes. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text as readAll } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { freePort } from './free_port.ts';

const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));

/** The environment of this process without settings of Convoke, which would change the tests. */
const CLEAN_ENV = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_')));

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface RunOptions {
  env?: Record<string, string>;
  input?: string | Buffer;
}

export function start(
  args: readonly string[],
  {
    env = {},
    node = process.execPath,
    stdout = 'pipe',
    stderr = 'pipe',
  }: { env?: Record<string, string>; node?: string; stdout?: 'pipe' | number; stderr?: 'pipe' | number } = {},
): ChildProcess {
  return spawn(node, [MAIN, ...args], { env: { ...CLEAN_ENV, ...env }, stdio: ['pipe', stdout, stderr] });
}

/** Runs a command to its end. */
export async function convoke(args: readonly string[], { env, input = '' }: RunOptions = {}): Promise<Ended> {
  const child = start(args, env === undefined ? {} : { env });
  child.stdin!.end(input);
  const [stdout, stderr] = await Promise.all([readAll(child.stdout!), readAll(child.stderr!), once(child, 'close')]);
  return { code: child.exitCode, stdout, stderr };
}

export function temporaryDirectory(t: { after: (clean: () => void) => void }): string {
  const directory = mkdtempSync(join(tmpdir(), 'convoke-cli-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export interface Service {
  url: string;
  child: ChildProcess;
  stderr: Promise<string>;
  /** Every line on stdout. */
  lines: string[];
}

/** Starts `convoke serve` and waits for its ready line. */
export async function serve(
  data: string,
  { node, flags = [], env = {} }: { node?: string; flags?: string[]; env?: Record<string, string> } = {},
): Promise<Service> {
  const child = start(['serve', '--port', '0', '--data', data, ...flags], node === undefined ? { env } : { env, node });
  const stderr = readAll(child.stderr!);
  const lines: string[] = [];
  const stdout = createInterface({ input: child.stdout! });
  stdout.on('line', (line) => lines.push(line));
  await Promise.race([once(stdout, 'line'), once(child, 'close')]);
  const url = /^convoke ready (http:\/\/\S+)$/.exec(lines[0] ?? '')?.[1];
  if (url === undefined) throw new Error(`not ready: ${await stderr}`);
  return { url, child, stderr, lines };
}

/**
 * Starts `convoke serve` on a new terminal, and waits for its ready line. The terminal closes at the end of the test.
 *
 * @returns the text on the terminal; null on a system without `script` of util-linux
 */
export async function serveOnTerminal(
  t: { after: (clean: () => void) => void },
  data: string,
): Promise<{ url: string; terminal: string } | null> {
  const quoted = [process.execPath, MAIN, 'serve', '--port', '0', '--data', data].map((word) => `'${word}'`);
  const child = spawn('script', ['-qfec', quoted.join(' '), '/dev/null'], { env: CLEAN_ENV, stdio: 'pipe' });
  // When the terminal closes, the system tells the service to stop (SIGHUP).
  t.after(() => void child.kill('SIGKILL'));
  const errors: Error[] = [];
  child.on('error', (error) => errors.push(error));
  let terminal = '';
  for await (const line of createInterface({ input: child.stdout })) {
    terminal += `${stripVTControlCharacters(line)}\n`;
    const url = /convoke ready (http:\/\/\S+)/.exec(terminal)?.[1];
    if (url !== undefined) return { url, terminal };
  }
  if (errors.length > 0 || /script: (unrecognized|illegal|invalid)/.test(terminal)) return null;
  throw new Error(`not ready: ${terminal}`);
}

/** Stops a service. Resolves when its process has ended, and every process that has its output open. */
export async function stop({ child }: Service, signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) {
    const closed = once(child, 'close');
    child.kill(signal);
    await closed;
  }
  return child.exitCode;
}

/** A URL of this machine at which no server listens. */
export async function deadUrl(): Promise<string> {
  return `http://127.0.0.1:${await freePort()}`;
}
