/** Checks the needs of the service on this machine, and the service itself when it runs. Changes nothing. */
import { lookup } from 'node:dns/promises';
import { access, constants, stat, statfs } from 'node:fs/promises';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { resolve } from 'node:path';
import { all, ConvokeClient, ConvokeError } from '@convoke/sdk';
import type { Command } from 'commander';
import type { Config } from '../../../config/config.ts';
import { isMostlyEmpty } from '../../../delivery/maintenance.ts';
import { parseAddress } from '../../../domain/address.ts';
import { BELIEVED_SHARE } from '../../../domain/delivery.ts';
import { isRefusal, parseWebhookUrl } from '../../../domain/webhook_url.ts';
import { wallNow } from '../../../wall_clock.ts';
import { dataFile, keyFile, nearestThatExists } from '../data_directory.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { settingsOf } from '../settings.ts';
import { isSystemError } from '../system_error.ts';
import { printJson, printTable } from '../terminal.ts';
import { bytesInWords, counted, durationInWords } from '../format.ts';
import { typed } from '../command_name.ts';

type Finding = 'ok' | 'warn' | 'fail';

interface Check {
  check: string;
  finding: Finding;
  /** The result of the check, in words. */
  detail: string;
  /** What to do about it; empty when all is well. */
  advice: string;
}

const STYLES = { ok: 'green', warn: 'yellow', fail: 'red' } as const;

const SQLITE_NEEDED = '3.51.3';
const FREE_BYTES_WARN = 1 << 30;
const FREE_BYTES_FAIL = 100 << 20;
const ANSWER_MS_MAX = 3000;
const HOSTS_MAX = 20;
const INSTANCES_MAX = 10_000;
/**
 * Receivers refuse a push whose timestamp is 5 minutes off. Half of that leaves room for an error of their own clocks.
 */
const CLOCK_OFF_MS_MAX = 150_000;
const RELEASED_AT = Date.UTC(2026, 0, 1);

/** A service that responded, and the time on its clock. */
interface RunningService {
  url: string;
  date_ms: number;
  ready: boolean;
  detail: string;
}

/** Prints a line for each check. */
export async function doctor(options: { url?: string; apiKey?: string; json?: true }, command: Command): Promise<void> {
  const checks: Check[] = [checkNode(), checkSqlite()];
  const config = readSettings(command, checks);
  if (config !== null) {
    const url = options.url ?? `http://${config.host.includes(':') ? `[${config.host}]` : config.host}:${config.port}`;
    const answering = await askService(url);
    checks.push(await checkDirectory(config, answering), await checkKey(config), await checkDisk(config));
    checks.push(await checkPort(config, url, answering), checkReady(url, answering));
    checks.push(await checkNames(answering, options.apiKey), await checkEgress(config, answering, options.apiKey));
    checks.push(checkClock(answering), ...(await checkLastRun(config)));
  }
  if (options.json) printJson(checks);
  else {
    printTable(checks, [
      { title: '', text: ({ finding }) => finding, style: ({ finding }) => STYLES[finding] },
      { title: 'CHECK', text: ({ check }) => check },
      { title: 'FOUND', text: ({ detail, advice }) => (advice === '' ? detail : `${detail}: ${advice}`) },
    ]);
  }
  if (checks.some(({ finding }) => finding === 'fail')) process.exitCode = EXIT.failed;
}

function ok(check: string, detail: string): Check {
  return { check, finding: 'ok', detail, advice: '' };
}

/** Never fails, because src/cli/main.ts refuses a Node that is too old. */
function checkNode(): Check {
  return ok('node', `Node ${process.versions.node} on ${process.platform}-${process.arch}`);
}

function checkSqlite(): Check {
  const version = process.versions['sqlite'] ?? 'none';
  const [have, need] = [version, SQLITE_NEEDED].map((text) => text.split('.').map(Number));
  const differs_at = need!.findIndex((part, i) => have![i] !== part);
  if (differs_at === -1 || (have![differs_at] ?? 0) > need![differs_at]!) return ok('sqlite', `SQLite ${version}`);
  const advice = `${SQLITE_NEEDED} is needed; use a newer Node, which brings one`;
  return { check: 'sqlite', finding: 'fail', detail: `SQLite ${version}`, advice };
}

function readSettings(command: Command, checks: Check[]): Config | null {
  try {
    const { config, sources } = settingsOf(command);
    const given = Object.values(sources).filter(({ from }) => from !== 'default').length;
    checks.push(ok('settings', `valid; not the default: ${given} (\`${typed('config')}\` shows them)`));
    return config;
  } catch (error) {
    if (!(error instanceof CommandFailure)) throw error;
    checks.push({
      check: 'settings',
      finding: 'fail',
      detail: error.message,
      advice: 'correct the settings; the other checks need them',
    });
    return null;
  }
}

/** @returns null when nothing responds there, or something that is not Convoke */
export async function askService(url: string): Promise<RunningService | null> {
  try {
    const answer = await fetch(new URL('/readyz', url), {
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
      redirect: 'manual',
    });
    const { status, detail, code } = (await answer.json()) as { status?: unknown; detail?: string; code?: string };
    const ready = answer.ok && status === 'ready';
    if (!ready && code === undefined) return null;
    return { url, ready, detail: detail ?? '', date_ms: Date.parse(answer.headers.get('date') ?? '') };
  } catch {
    return null;
  }
}

async function checkDirectory(config: Config, answering: RunningService | null): Promise<Check> {
  const check = 'data directory';
  const directory = resolve(config.data);
  const exists = await nearestThatExists(directory);
  try {
    if (!(await stat(exists)).isDirectory()) {
      return { check, finding: 'fail', detail: `${exists} is not a directory`, advice: 'give one with --data' };
    }
    await access(exists, constants.W_OK | constants.X_OK);
  } catch {
    return {
      check,
      finding: 'fail',
      detail: `this user may not write ${exists}`,
      advice: 'change its owner, or give another directory with --data',
    };
  }
  if (exists !== directory) return ok(check, `${directory} is missing and can be created`);
  const { state, empty_bytes } = await stateOfFile(dataFile(directory));
  if (state === 'in use' && answering === null) {
    const detail = `${dataFile(directory)} is in use, and ${config.host}:${config.port} does not respond`;
    return {
      check,
      finding: 'warn',
      detail,
      advice: 'a service on another port may use it; a second service needs its own --data',
    };
  }
  if (state === 'unreadable') {
    const detail = `${dataFile(directory)} is not a data file of Convoke`;
    return {
      check,
      finding: 'fail',
      detail,
      advice: 'restore it from a backup, or give another directory with --data',
    };
  }
  if (empty_bytes !== null) {
    const detail = `${bytesInWords(empty_bytes)} of the data file are empty, most of it`;
    return { check, finding: 'warn', detail, advice: `\`${typed('compact')}\` makes it smaller` };
  }
  return ok(check, `${directory} is writable; the data file is ${state}`);
}

/** Whether a start now would distrust the clock. Only for a data file that no service has open. */
async function checkLastRun({ data, database_url, expire_after_ms, trust_clock }: Config): Promise<Check[]> {
  const ran_until = database_url === null ? await lastRunOf(dataFile(resolve(data))) : null;
  const jump_ms = ran_until === null ? 0 : wallNow() - ran_until;
  if (trust_clock || jump_ms <= expire_after_ms * BELIEVED_SHARE) return [];
  const detail = `it is ${durationInWords(jump_ms)} ahead of the last run of the service`;
  const advice =
    'set it if it is wrong; if it is right, start once with CONVOKE_TRUST_CLOCK=true, or pending deliveries keep their remaining time';
  return [{ check: 'last run', finding: 'warn', detail, advice }];
}

/** @returns null when the time is not known, or the file is in use */
async function lastRunOf(file: string): Promise<number | null> {
  if ((await stateOfFile(file)).state !== 'not in use') return null;
  const { DatabaseSync } = await import('node:sqlite');
  const db = new DatabaseSync(file, { readOnly: true });
  try {
    return (db.prepare('SELECT ran_until FROM this_file').get() as { ran_until: number | null }).ran_until;
  } catch {
    // An older version wrote the file.
    return null;
  } finally {
    db.close();
  }
}

/**
 * Opens the file for reading only. If a running service has locked it, this finds out without disturbing the service.
 */
async function stateOfFile(file: string): Promise<{
  state: 'not there yet' | 'not in use' | 'in use' | 'unreadable';
  /** The empty bytes of a file that is mostly empty and does not shrink by itself; otherwise null. */
  empty_bytes: number | null;
}> {
  const { size } = await stat(file).catch(() => ({ size: 0 }));
  if (size === 0) return { state: 'not there yet', empty_bytes: null };
  const { DatabaseSync } = await import('node:sqlite');
  try {
    const db = new DatabaseSync(file, { readOnly: true });
    try {
      const number = (pragma: string): number => Number(Object.values(db.prepare(`PRAGMA ${pragma}`).get()!)[0]);
      const space = {
        page_bytes: number('page_size'),
        pages: number('page_count'),
        free_pages: number('freelist_count'),
      };
      const is_empty = number('auto_vacuum') === 0 && isMostlyEmpty(space);
      return { state: 'not in use', empty_bytes: is_empty ? space.free_pages * space.page_bytes : null };
    } finally {
      db.close();
    }
  } catch (error) {
    const is_busy = (error as { errcode?: number }).errcode === SQLITE_BUSY;
    return { state: is_busy ? 'in use' : 'unreadable', empty_bytes: null };
  }
}

const SQLITE_BUSY = 5;

/**
 * Whether the key exists and only this user can read it. Only a start can find out whether it is the right key, because
 * the file may be in use.
 */
async function checkKey(config: Config): Promise<Check> {
  const check = 'data key';
  if (config.encryption_key !== null) return ok(check, 'given by CONVOKE_ENCRYPTION_KEY');
  const path = keyFile(config.data);
  const found = await stat(path).catch(() => null);
  if (found === null) {
    const has_data = await access(dataFile(config.data)).then(
      () => true,
      () => false,
    );
    if (!has_data) return ok(check, `${path} is not there yet: the first start makes it`);
    const detail = `${path} is missing, and the data file is there`;
    const advice = 'put it back from its backup; only a data file of version 0.1.0 needs none';
    return { check, finding: 'warn', detail, advice };
  }
  const others = found.mode & 0o077;
  if (others === 0 || process.platform === 'win32') return ok(check, `${path}; keep a copy of it apart from the data`);
  const advice = 'run chmod 600 on it; the start is refused until then';
  return { check, finding: 'fail', detail: `${path} may be read by others`, advice };
}

async function checkDisk(config: Config): Promise<Check> {
  const check = 'disk space';
  const { bavail, bsize } = await statfs(await nearestThatExists(resolve(config.data)));
  const free_bytes = bavail * bsize;
  const detail = `${bytesInWords(free_bytes)} are free for the data`;
  if (free_bytes >= FREE_BYTES_WARN) return ok(check, detail);
  const advice = 'free some space, or shorten CONVOKE_RETENTION_DELIVERIES and CONVOKE_RETENTION_MESSAGES';
  return { check, finding: free_bytes < FREE_BYTES_FAIL ? 'fail' : 'warn', detail, advice };
}

async function checkPort(config: Config, url: string, answering: RunningService | null): Promise<Check> {
  if (answering !== null) return ok('port', `Convoke responds at ${url}`);
  const fault = await faultOfListening(config.host, config.port);
  if (fault === null) return ok('port', `${config.host}:${config.port} is free`);
  if (fault === 'EADDRINUSE') {
    const detail = `something that is not Convoke, or does not respond, holds ${config.host}:${config.port}`;
    return { check: 'port', finding: 'fail', detail, advice: 'stop it, or choose another port with --port' };
  }
  const detail = `cannot listen on ${config.host}:${config.port} (${fault})`;
  return { check: 'port', finding: 'fail', detail, advice: 'choose another with --host and --port' };
}

async function faultOfListening(host: string, port: number): Promise<string | null> {
  const server = createServer();
  try {
    server.listen(port, host);
    await once(server, 'listening');
    server.close();
    return null;
  } catch (error) {
    return isSystemError(error) ? error.code : String(error);
  }
}

function checkReady(url: string, answering: RunningService | null): Check {
  const check = 'service';
  if (answering === null) {
    return {
      check,
      finding: 'warn',
      detail: `no service responds at ${url}`,
      advice: `\`${typed('serve')}\` starts one`,
    };
  }
  if (answering.ready) return ok(check, 'ready: it accepts messages');
  return {
    check,
    finding: 'fail',
    detail: `not ready (${answering.detail})`,
    advice: 'its log on stderr has the reason',
  };
}

/** Resolves the webhook addresses whose hosts are names. */
async function checkNames(answering: RunningService | null, api_key: string | undefined): Promise<Check> {
  const check = 'name lookup';
  if (answering === null) return ok(check, 'nothing to look up while no service runs');
  const names = new Set<string>();
  const client = new ConvokeClient({ base_url: answering.url, api_key, timeout_ms: ANSWER_MS_MAX });
  try {
    for await (const { webhook_url } of all((start) => client.listInstances({ limit: 500, ...start }))) {
      const { hostname } = new URL(webhook_url);
      if (!hostname.startsWith('[') && parseAddress(hostname) === null) names.add(hostname);
      if (names.size === HOSTS_MAX) break;
    }
  } catch (error) {
    return notListed(check, error);
  }
  const found = await Promise.all(
    [...names].map((name) =>
      lookup(name).then(
        () => null,
        () => name,
      ),
    ),
  );
  const lost = found.filter((name) => name !== null);
  if (lost.length === 0) return ok(check, `${names.size} host names of instances looked up`);
  const detail = `${lost.length} of ${names.size} host names are not found: ${lost.slice(0, 3).join(', ')}`;
  return {
    check,
    finding: 'warn',
    detail,
    advice: 'check their spelling in webhook_url, and the name server of this machine',
  };
}

/** Finds stored webhook addresses that the settings refuse: the settings may have changed since the registration. */
async function checkEgress(
  config: Config,
  answering: RunningService | null,
  api_key: string | undefined,
): Promise<Check> {
  const check = 'egress';
  if (answering === null) return ok(check, 'nothing to check while no service runs');
  const refused: { instance_id: string; message: string }[] = [];
  let instances = 0;
  const client = new ConvokeClient({ base_url: answering.url, api_key, timeout_ms: ANSWER_MS_MAX });
  try {
    for await (const { instance_id, webhook_url } of all((start) => client.listInstances({ limit: 500, ...start }))) {
      const parsed = parseWebhookUrl(webhook_url, config.egress_policy);
      if (isRefusal(parsed)) refused.push({ instance_id, message: parsed.message });
      if (++instances === INSTANCES_MAX) break;
    }
  } catch (error) {
    return notListed(check, error);
  }
  const [first] = refused;
  if (first === undefined)
    return ok(check, `${counted(instances, 'webhook address', 'webhook addresses')} allowed by these settings`);
  return {
    check,
    finding: 'warn',
    detail: `${refused.length} of ${counted(instances, 'webhook address', 'webhook addresses')} refused by these settings; that of ${first.instance_id} ${first.message}`,
    advice: 'change the setting, or register the instances with other addresses; until then their pushes are blocked',
  };
}

function notListed(check: string, error: unknown): Check {
  const is_refused = error instanceof ConvokeError && (error.status === 401 || error.status === 403);
  const advice = is_refused ? 'set CONVOKE_API_KEY to a key with the scope read' : 'see the check "service"';
  return { check, finding: 'warn', detail: 'the instances could not be listed', advice };
}

function checkClock(answering: RunningService | null): Check {
  const check = 'clock';
  const now_ms = wallNow();
  const detail = `it is ${new Date(now_ms).toISOString()} here`;
  const advice = 'set the clock (NTP): receivers refuse pushes whose timestamp is 5 minutes off';
  if (now_ms < RELEASED_AT) return { check, finding: 'fail', detail, advice };
  const off_ms = answering === null || Number.isNaN(answering.date_ms) ? 0 : Math.abs(now_ms - answering.date_ms);
  if (off_ms <= CLOCK_OFF_MS_MAX) return ok(check, detail);
  return { check, finding: 'warn', detail: `${detail}, ${durationInWords(off_ms)} off the service`, advice };
}
