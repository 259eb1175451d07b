/** The contenders: the programs that the bench measures. Each measurement starts a contender in new processes. */
import { once } from 'node:events';
import { createWriteStream, rmSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { Tool } from '../load/channel.ts';
import type { Composition } from './composed.ts';
import type { Fleet } from '../load/fleet.ts';
import type { Probe } from './probe.ts';
import type { Seed, Seeder } from '../load/seed.ts';

export interface StartOptions {
  fleet: Fleet;
  /** Further environment variables of the service, for example a library to preload. */
  env?: Record<string, string>;
  /** Arguments to the Node that runs the service. */
  node_args?: string[];
  name_servers?: string[];
  /** The port of the service; when absent, any free port. */
  port?: number;
}

/** A contender that runs and is ready for requests. */
export interface Running {
  url: string;
  /** The URLs of further nodes, which also accept messages. */
  more_urls?: string[];
  /** How many transactions the database of the contender has committed so far. */
  commits?: () => Promise<number>;
  /** The process of the service. */
  probe: Tool<Probe>;
  /** The measured processor time is that of these processes and their descendants. */
  pids: number[];
  ready_ms: number;
  stop(): Promise<void>;
}

export interface Contender {
  name: string;
  /** Why this machine cannot measure the contender; null when it can. */
  missing?: () => string | null;
  start(options: StartOptions): Promise<Running>;
}

const READY = /ready (http:\/\/\S+)/;
const READY_MS_MAX = 120_000;
/** The directory for the data of measurements. It must be on a disk: in memory a commit would cost nothing. */
const SCRATCH = process.env['BENCH_TMP'] ?? '/var/tmp';

const scratch = new Set<string>();
/** What the contenders write to stderr during this run. */
const LOG = join(SCRATCH, 'convoke-bench.log');
rmSync(LOG, { force: true });

/** Makes a new directory. It is removed when the bench ends, if it still exists then. */
export async function scratchDirectory(): Promise<string> {
  await mkdir(SCRATCH, { recursive: true });
  const directory = await mkdtemp(join(SCRATCH, 'convoke-bench-'));
  if (scratch.size === 0) {
    process.once('exit', () => {
      for (const left of scratch) rmSync(left, { recursive: true, force: true });
    });
  }
  scratch.add(directory);
  return directory;
}

/** Starts a module and waits for its ready line. */
export async function startProcess(file: string, args: string[], options: Partial<StartOptions> = {}) {
  const started_ms = performance.now();
  const probe = new Tool<Probe>(file, args, {
    execArgv: ['--import', new URL('./probe.ts', import.meta.url).href, ...(options.node_args ?? [])],
    env: { ...process.env, NODE_ENV: 'production', ...options.env },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  probe.process.stderr!.pipe(createWriteStream(LOG, { flags: 'a' }));
  const { promise: ready, resolve, reject } = Promise.withResolvers<string>();
  let said = '';
  probe.process.stdout!.setEncoding('utf8').on('data', (text: string) => {
    said += text;
    const url = READY.exec(said)?.[1];
    if (url !== undefined) resolve(url);
  });
  probe.process.once('exit', (code, signal) =>
    reject(new Error(`${file} ended (${String(code ?? signal)}); see ${LOG}`)),
  );
  const timer = setTimeout(() => reject(new Error(`${file} was not ready in time`)), READY_MS_MAX);
  const url = await ready.finally(() => clearTimeout(timer));
  const pid = probe.process.pid!;
  return { url, probe, pids: [pid], ready_ms: performance.now() - started_ms };
}

/** Ends a process that `startProcess` started, and waits until it has ended. */
export async function endProcess({ process: child }: Tool<Probe>, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, 'exit');
  child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), 20_000);
  await exit;
  clearTimeout(timer);
}

function composed(name: string, kind: Composition['kind']): Contender {
  return {
    name,
    async start(options) {
      const { fleet, name_servers } = options;
      const data = kind === 'stored' ? await dataOf(fleet) : await scratchDirectory();
      const composition: Composition = { kind, fleet, data, ...(name_servers && { name_servers }) };
      const started = await startProcess('./contenders/composed.ts', [JSON.stringify(composition)], options);
      return {
        ...started,
        async stop() {
          await endProcess(started.probe);
          await rm(data, { recursive: true });
        },
      };
    },
  };
}

/** The directories with data that this run has made, by the fleets in them. */
const seeded = new Map<string, Promise<string>>();

/** A fleet, and how many messages wait in each of its meetings. */
export type Pending = Pick<Seed, 'fleet' | 'pending_messages'>;

/** Makes a new directory with the data of a fleet. */
export function dataOf(fleet: Fleet, pending_messages = 0): Promise<string> {
  return dataOfAll([{ fleet, pending_messages }]);
}

/** Makes a new directory with the data of several fleets. The data is made once, and then copied. */
export async function dataOfAll(fleets: Pending[]): Promise<string> {
  const key = JSON.stringify(fleets);
  let original = seeded.get(key);
  if (original === undefined) seeded.set(key, (original = seed(fleets)));
  const data = await scratchDirectory();
  await cp(await original, data, { recursive: true });
  return data;
}

async function seed(fleets: Pending[]): Promise<string> {
  const data = await scratchDirectory();
  const seeder = new Tool<Seeder>('./load/seed.ts');
  for (const pending of fleets) await seeder.call('seed', { file: join(data, DATABASE_FILE), ...pending });
  await seeder.stop();
  return data;
}

/** Removes the directories from which `dataOf` copies. */
export async function forgetData(): Promise<void> {
  for (const original of seeded.values()) await rm(await original, { recursive: true });
  seeded.clear();
}

/** Starts the service from src/ with its command `serve`, on data that exists. */
export function startService(data: string, options: Partial<StartOptions> = {}) {
  const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
  const args = ['serve', '--port', String(options.port ?? 0), '--data', data, '--log-format', 'json'];
  return startProcess(`file://${main}`, args, options);
}

export const relay = composed('relay', 'relay');
/** Convoke with name servers that the bench chooses: see composed.ts. */
export const convokeWithNameServers = composed('convoke', 'stored');

export const convoke: Contender = {
  name: 'convoke',
  async start(options) {
    const data = await dataOf(options.fleet);
    const started = await startService(data, options);
    return {
      ...started,
      async stop() {
        await endProcess(started.probe);
        await rm(data, { recursive: true });
      },
    };
  },
};

/** The same contender with other options, under another name. */
export function under(conditions: Partial<StartOptions>, contender: Contender, name: string): Contender {
  return { ...contender, name, start: (options) => contender.start({ ...options, ...conditions }) };
}
