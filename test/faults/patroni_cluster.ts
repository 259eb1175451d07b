/**
 * Three PostgreSQL servers under Patroni, with etcd, on loopback, from the packages of the system. One server is the
 * primary; when it fails, another takes over.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { freePort } from '../support/free_port.ts';
import { ownerOf } from '../support/postgres_server.ts';
import { run } from './run.ts';

const SERVERS = 3;
const SETTLED_MS_MAX = 180_000;
const LOOK_EVERY_MS = 100;
const LOG_LINES_MAX = 40;

/** Patroni replaces a primary that does not respond for this long. */
export const TTL_S = 20;

/** The directories in which Debian installs PostgreSQL servers; the newest version is the last. */
function binariesFound(): string[] {
  return globSync('/usr/lib/postgresql/*/bin/postgres')
    .map((file) => file.replace(/\/postgres$/, ''))
    .toSorted((a, b) => versionIn(a) - versionIn(b));
}

function versionIn(path: string): number {
  return Number(/\/(\d+)\//.exec(path)?.[1]);
}

/** Names the programs that are not installed; null when all are installed. */
export function missingForPatroni(): string | null {
  const missing = [
    ...(run('etcd', '--version').status === 0 ? [] : ['etcd-server']),
    ...(run('patroni', '--version').status === 0 ? [] : ['patroni']),
    ...(binariesFound().length > 0 ? [] : ['postgresql']),
  ];
  return missing.length === 0 ? null : `needs the Debian packages ${missing.join(', ')} (apt install)`;
}

interface Member {
  name: string;
  port: number;
  api_port: number;
  data: string;
  config_file: string;
  process: ChildProcess | null;
  log: string[];
}

/** A member, as Patroni's own API lists it. */
interface Listed {
  name: string;
  role: string;
  state: string;
  lag?: number | string;
}

export class PatroniCluster {
  readonly #directory: string;
  readonly #owner = ownerOf();
  readonly #binaries = binariesFound().at(-1)!;
  readonly #members: Member[] = [];
  #etcd: ChildProcess | null = null;
  #etcd_port = 0;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async start(t: TestContext): Promise<PatroniCluster> {
    const cluster = new PatroniCluster(mkdtempSync(join(tmpdir(), 'convoke-patroni-')));
    t.after(() => cluster.#stop());
    await cluster.#start();
    return cluster;
  }

  /** The versions of the programs, which the test prints. */
  get versions(): string {
    const said = (command: string): string => String(run(command, '--version').stdout).split('\n')[0]!.trim();
    return [said('patroni'), said('etcd'), said(join(this.#binaries, 'postgres'))].join(', ');
  }

  /** A connection string with all servers. */
  urlOf(user: string, database: string): string {
    const hosts = this.#members.map(({ port }) => `127.0.0.1:${port}`).join();
    return `postgres://${user}:${passwordOf(user)}@${hosts}/${database}?target_session_attrs=read-write`;
  }

  /**
   * Resolves with the name of the primary, when all servers run and one of the standbys is synchronous: it has a commit
   * before the client gets the result.
   */
  async settled(): Promise<string> {
    const from_ms = performance.now();
    for (;;) {
      const listed = await this.#list();
      const leader = listed.find(({ role }) => role === 'leader');
      const is_settled =
        listed.length === SERVERS &&
        listed.every(({ state, role, lag }) => isUp(state) && (role === 'leader' || lag === 0)) &&
        listed.some(({ role }) => role === 'sync_standby');
      if (leader !== undefined && is_settled) return leader.name;
      const said = this.#members.map(({ name, log }) => `${name}:\n${log.join('\n')}`).join('\n');
      assert.ok(performance.now() - from_ms < SETTLED_MS_MAX, `still ${JSON.stringify(listed)}\n${said}`);
      await pause(LOOK_EVERY_MS);
    }
  }

  /** Resolves when Patroni names a running member as the primary. */
  async hasPrimary(): Promise<void> {
    const from_ms = performance.now();
    const running = this.#members.filter((member) => member.process !== null);
    const isPrimary = async ({ api_port }: Member): Promise<boolean> => {
      const answer = await fetch(`http://127.0.0.1:${api_port}/primary`, { method: 'HEAD' }).catch(() => null);
      return answer?.status === 200;
    };
    while (!(await Promise.all(running.map(isPrimary))).includes(true)) {
      assert.ok(performance.now() - from_ms < SETTLED_MS_MAX, 'no primary');
      await pause(LOOK_EVERY_MS);
    }
  }

  /** Kills Patroni, the server and all processes of the server at once, as a power failure does. */
  async kill(name: string): Promise<void> {
    const member = this.#memberOf(name);
    const ending = member.process;
    member.process = null;
    assert(ending !== null, `${name} does not run`);
    const ended = once(ending, 'exit');
    ending.kill('SIGKILL');
    killServer(member.data);
    await ended;
  }

  /** Starts a member on its data, after `kill`. */
  startAgain(name: string): void {
    this.#run(this.#memberOf(name));
  }

  async #start(): Promise<void> {
    chmodSync(this.#directory, 0o755);
    await this.#startEtcd();
    for (let k = 1; k <= SERVERS; k++) {
      const directory = this.#makeDirectory(`db-${k}`);
      this.#members.push({
        name: `db-${k}`,
        port: await freePort(),
        api_port: await freePort(),
        data: join(directory, 'data'),
        config_file: join(directory, 'patroni.json'),
        process: null,
        log: [],
      });
    }
    for (const member of this.#members) this.#run(member);
    const primary = this.#memberOf(await this.settled());
    const client = new pg.Client(`postgres://postgres:${passwordOf('postgres')}@127.0.0.1:${primary.port}/postgres`);
    await client.connect();
    await client.query(`CREATE ROLE convoke LOGIN PASSWORD '${passwordOf('convoke')}'`);
    await client.query("CREATE DATABASE convoke OWNER convoke ENCODING 'UTF8' TEMPLATE template0");
    await client.end();
  }

  async #startEtcd(): Promise<void> {
    const directory = this.#makeDirectory('etcd');
    this.#etcd_port = await freePort();
    const [clients, peers] = [`http://127.0.0.1:${this.#etcd_port}`, `http://127.0.0.1:${await freePort()}`];
    const args = ['--name=etcd', `--data-dir=${join(directory, 'data')}`, `--initial-cluster=etcd=${peers}`];
    const urls = [`--listen-client-urls=${clients}`, `--advertise-client-urls=${clients}`];
    const of_peers = [`--listen-peer-urls=${peers}`, `--initial-advertise-peer-urls=${peers}`];
    this.#etcd = spawn('etcd', [...args, ...urls, ...of_peers], { ...this.#owner, cwd: directory, stdio: 'ignore' });
  }

  #makeDirectory(name: string): string {
    const directory = join(this.#directory, name);
    mkdirSync(directory, { mode: 0o700 });
    const { uid, gid } = this.#owner;
    if (uid !== undefined) chownSync(directory, uid, gid ?? uid);
    return directory;
  }

  #run(member: Member): void {
    // JSON is YAML as well.
    writeFileSync(member.config_file, JSON.stringify(this.#configOf(member)));
    const home = join(member.data, '..');
    const started = spawn('patroni', [member.config_file], {
      ...this.#owner,
      cwd: home,
      env: { PATH: process.env['PATH'], HOME: home, LC_ALL: 'C' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    member.process = started;
    for (const stream of [started.stdout, started.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        member.log = [...member.log, ...text.trimEnd().split('\n')].slice(-LOG_LINES_MAX);
      });
    }
  }

  #configOf({ name, port, api_port, data }: Member): object {
    const authentication = Object.fromEntries(
      [
        ['superuser', 'postgres'],
        ['replication', 'replicator'],
        ['rewind', 'rewinder'],
      ].map(([role, username]) => [role, { username, password: passwordOf(username!) }]),
    );
    return {
      scope: 'convoke',
      name,
      restapi: { listen: `127.0.0.1:${api_port}`, connect_address: `127.0.0.1:${api_port}` },
      etcd3: { host: `127.0.0.1:${this.#etcd_port}` },
      bootstrap: {
        dcs: {
          ttl: TTL_S,
          loop_wait: 2,
          retry_timeout: 5,
          synchronous_mode: true,
          postgresql: { use_pg_rewind: true, use_slots: true, parameters: { max_connections: 100 } },
        },
        initdb: [{ encoding: 'UTF8' }, { locale: 'C' }, 'data-checksums'],
      },
      postgresql: {
        listen: `127.0.0.1:${port}`,
        connect_address: `127.0.0.1:${port}`,
        data_dir: data,
        bin_dir: this.#binaries,
        pgpass: join(data, '..', 'pgpass'),
        authentication,
        parameters: { unix_socket_directories: '', shared_buffers: '128MB', max_wal_size: '2GB' },
        pg_hba: ['host all all 127.0.0.1/32 scram-sha-256', 'host replication all 127.0.0.1/32 scram-sha-256'],
      },
    };
  }

  /** The list of members, from any member that runs. */
  async #list(): Promise<Listed[]> {
    for (const { process: running, api_port } of this.#members) {
      if (running === null) continue;
      try {
        const answer = await fetch(`http://127.0.0.1:${api_port}/cluster`, { signal: AbortSignal.timeout(2_000) });
        return ((await answer.json()) as { members: Listed[] }).members;
      } catch {
        // The member is starting.
      }
    }
    return [];
  }

  #memberOf(name: string): Member {
    const member = this.#members.find((each) => each.name === name);
    assert(member !== undefined, `there is no server ${name}`);
    return member;
  }

  async #stop(): Promise<void> {
    for (const { name, process: running } of this.#members) if (running !== null) await this.kill(name);
    const etcd = this.#etcd;
    if (etcd !== null && etcd.exitCode === null) {
      const ended = once(etcd, 'exit');
      etcd.kill('SIGKILL');
      await ended;
    }
    // This comes last, because files in this directory say which processes run.
    rmSync(this.#directory, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

function isUp(state: string): boolean {
  return state === 'running' || state === 'streaming';
}

function passwordOf(user: string): string {
  return `of-${user}`;
}

/**
 * Kills the server and its child processes. A child would run on for a moment, and could report a commit that is lost.
 */
function killServer(data: string): void {
  const pid_file = join(data, 'postmaster.pid');
  if (!existsSync(pid_file)) return;
  const pid = Number(readFileSync(pid_file, 'utf8').split('\n')[0]);
  const listed = run('ps', '-o', 'pid=', '--ppid', String(pid)).stdout.toString();
  for (const each of [pid, ...listed.trim().split(/\s+/).filter(Boolean).map(Number)]) {
    try {
      process.kill(each, 'SIGKILL');
    } catch {
      // The process has already ended.
    }
  }
}
