/**
 * Finds, starts and ends the programs of other projects that the bench runs. An environment variable says where a
 * program is; without the variable it must be on the PATH. These programs get PATH from the environment of the bench,
 * and no other variable.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdir, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort } from '../../test/support/free_port.ts';
import { scratchDirectory } from '../contenders/contenders.ts';
import { startPostgres } from '../contenders/postgres.ts';
import type { Request } from '../load/request.ts';
import { isOnPath } from '../peers/peers.ts';
import type { RunningServer } from './server.ts';

/** The environment variables that say where a program is, and the name of each program on the PATH. */
const PROGRAMS = {
  BENCH_SVIX: 'svix-server',
  BENCH_OUTPOST: 'outpost',
  BENCH_CONVOY: 'convoy',
  BENCH_REDIS: 'redis-server',
  BENCH_RABBITMQ: 'rabbitmq-server',
} as const;
type Variable = keyof typeof PROGRAMS;

const READY_MS_MAX = 120_000;
const LOOK_MS = 50;

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) killGroup(child);
});

/** Ends a program and the processes that it started: RabbitMQ is a script that starts a server. */
function killGroup({ pid }: ChildProcess): void {
  if (pid !== undefined) process.kill(-pid, 'SIGKILL');
}

export function pathOf(variable: Variable): string {
  return process.env[variable] ?? PROGRAMS[variable];
}

/** A sentence that names the first program that this machine does not have; null when it has all. */
export function missingOf(...variables: Variable[]): string | null {
  for (const variable of variables) {
    const path = pathOf(variable);
    if (path.includes('/') ? existsSync(path) : isOnPath(path)) continue;
    return `not run here: there is no ${path}; ${variable} says where it is`;
  }
  return null;
}

const PATH = process.env['PATH'] ?? '';

/** Runs a program to its end, and returns what it wrote to stdout. */
export async function outputOf(file: string, args: string[], env: Record<string, string>, cwd: string) {
  const { stdout } = await promisify(execFile)(file, args, { env: { PATH, ...env }, cwd, timeout: READY_MS_MAX });
  return stdout;
}

interface ProgramOptions {
  file: string;
  args?: string[];
  env: Record<string, string>;
  /** The working directory of the program, where it also writes its log. */
  cwd: string;
  /** Asks whether the program is ready. */
  isReady: () => Promise<boolean>;
}

/** A program that the bench can start again after it has ended. */
class Program {
  readonly #options: ProgramOptions;
  #child: ChildProcess | null = null;

  constructor(options: ProgramOptions) {
    this.#options = options;
  }

  get pid(): number {
    return this.#child!.pid!;
  }

  /** Starts the program. Resolves when it is ready. */
  async start(): Promise<void> {
    const { file, args = [], env, cwd, isReady } = this.#options;
    const child = spawn(file, args, { env: { PATH, ...env }, cwd, stdio: 'ignore', detached: true });
    const failed = Promise.withResolvers<never>();
    child.once('error', failed.reject);
    child.once('exit', (code) => failed.reject(new Error(`${file} ended (${code}) before it was ready`)));
    failed.promise.catch(() => {});
    running.add(child);
    child.once('exit', () => running.delete(child));
    this.#child = child;
    for (
      const started_ms = performance.now();
      !(await Promise.race([isReady(), failed.promise]));
      await sleep(LOOK_MS)
    ) {
      if (performance.now() - started_ms > READY_MS_MAX) throw new Error(`${file} was not ready in time`);
    }
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    killGroup(child);
    await exit;
  }
}

/** Whether a GET of this URL gets a response with a success status. */
export async function responds(url: string): Promise<boolean> {
  return fetch(url).then(
    ({ ok }) => ok,
    () => false,
  );
}

/** Whether a server on this port responds to `question` with `hello`. Redis and RabbitMQ do so when they are ready. */
function greets(port: number, question: string, hello: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = connect({ port, host: '127.0.0.1' }, () => socket.write(question, 'latin1'));
  socket.setTimeout(1_000, () => socket.destroy());
  socket.on('error', () => socket.destroy());
  socket.on('close', () => resolve(false));
  socket.on('data', (data) => {
    resolve(data.includes(hello));
    socket.destroy();
  });
  return promise;
}

/** The processes of one webhook server: new databases, and the service. */
export class Processes {
  readonly data: string;
  readonly #service: Program[] = [];
  readonly #stops: (() => Promise<void>)[] = [];
  readonly #pids: number[] = [];

  private constructor(data: string) {
    this.data = data;
  }

  /** Calls `start` with new processes. When `start` fails, the processes that it started are ended. */
  static async run(start: (processes: Processes) => Promise<RunningServer>): Promise<RunningServer> {
    const processes = new Processes(await scratchDirectory());
    try {
      return await start(processes);
    } catch (error) {
      await processes.#stop();
      throw error;
    }
  }

  /** Starts a program of the service, in the directory of the data. */
  async service(options: Omit<ProgramOptions, 'cwd'>): Promise<void> {
    const program = new Program({ ...options, cwd: this.data });
    this.#service.push(program);
    await program.start();
  }

  async postgres(): Promise<URL> {
    const postgres = await startPostgres(this.data);
    this.#stops.push(() => postgres.stop());
    this.#pids.push(postgres.pid);
    return new URL(postgres.url);
  }

  /** Starts Redis, which syncs its append-only file once a second. Returns its port. */
  async redis(): Promise<number> {
    const port = await freePort();
    const cwd = await this.#directory('redis');
    const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'yes'];
    await this.#run({
      file: pathOf('BENCH_REDIS'),
      args,
      env: {},
      cwd,
      isReady: () => greets(port, 'PING\r\n', '+PONG'),
    });
    return port;
  }

  /** Starts RabbitMQ. Returns its URL. */
  async rabbitmq(): Promise<string> {
    const [port, distribution_port, epmd_port] = await Promise.all([freePort(), freePort(), freePort()]);
    const cwd = await this.#directory('rabbitmq');
    // RabbitMQ needs the name server `epmd`. If none runs, RabbitMQ starts one, which still runs when RabbitMQ has
    // ended. So the bench starts `epmd` itself, and later ends it.
    const names = { ERL_EPMD_PORT: String(epmd_port), ERL_EPMD_ADDRESS: '127.0.0.1' };
    await this.#run({ file: 'epmd', env: names, cwd, isReady: () => greets(epmd_port, '\0\x01n', '') });
    const env = {
      ...names,
      HOME: cwd,
      RABBITMQ_NODENAME: 'bench@localhost',
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: String(port),
      RABBITMQ_DIST_PORT: String(distribution_port),
      RABBITMQ_BASE: cwd,
      RABBITMQ_MNESIA_BASE: join(cwd, 'data'),
      RABBITMQ_LOG_BASE: cwd,
      RABBITMQ_ENABLED_PLUGINS_FILE: join(cwd, 'plugins'),
      RABBITMQ_PID_FILE: join(cwd, 'pid'),
    };
    const isReady = (): Promise<boolean> => greets(port, 'AMQP\0\0\x09\x01', '');
    await this.#run({ file: pathOf('BENCH_RABBITMQ'), env, cwd, isReady });
    return `amqp://guest:guest@127.0.0.1:${port}`;
  }

  /** Describes the processes that were started, for the scenarios. */
  serve(url: string, request: Request): RunningServer {
    return {
      url,
      request,
      pids: () => [...this.#service.map(({ pid }) => pid), ...this.#pids],
      killAndRestart: async () => {
        await this.#kill();
        await Promise.all(this.#service.map((program) => program.start()));
      },
      stop: () => this.#stop(),
    };
  }

  async #kill(): Promise<void> {
    await Promise.all(this.#service.map((program) => program.kill()));
  }

  async #stop(): Promise<void> {
    await this.#kill();
    for (const stop of this.#stops.toReversed()) await stop();
    await rm(this.data, { recursive: true, force: true, maxRetries: 10 });
  }

  async #run(options: ProgramOptions): Promise<void> {
    const program = new Program(options);
    await program.start();
    this.#stops.push(() => program.kill());
    this.#pids.push(program.pid);
  }

  async #directory(name: string): Promise<string> {
    const directory = join(this.data, name);
    await mkdir(directory);
    await chmod(directory, 0o755);
    return directory;
  }
}

/** Calls an HTTP API with JSON. Throws when the status is not a success. */
export async function callJson<Answer>(
  method: string,
  url: string,
  headers: Record<string, string>,
  body: unknown,
): Promise<Answer> {
  const response = await fetch(url, {
    method,
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${url}: ${response.status} ${text.slice(0, 500)}`);
  return JSON.parse(text || 'null') as Answer;
}
