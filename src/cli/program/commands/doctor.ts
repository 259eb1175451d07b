/** Checks whether this machine has what the service needs, and the service itself when it runs. Changes nothing. */
import { lookup } from 'node:dns/promises';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { all, ConvokeClient, ConvokeError, refusedPort } from '@convoke/sdk';
import type { Command } from 'commander';
import type { Config } from '../../../config/config.ts';
import { parseAddress } from '../../../domain/address.ts';
import { isRefusal, parseWebhookUrl } from '../../../domain/webhook_url.ts';
import { wallNow } from '../../../wall_clock.ts';
import { clientFor, describeRefusedPort, failureOf } from '../api.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { settingsOf } from '../settings.ts';
import { isSystemError } from '../system_error.ts';
import { printJson, printTable } from '../terminal.ts';
import { counted, durationInWords } from '../format.ts';
import { typed, withTypedCommands } from '../command_name.ts';
import { type Check, ok } from './doctor_check.ts';
import { checkDatabase, checkDirectory, checkDisk, checkKey, checkLastRun } from './doctor_data.ts';

const STYLES = { ok: 'green', warn: 'yellow', fail: 'red' } as const;

const SQLITE_NEEDED = '3.51.3';
const ANSWER_MS_MAX = 3000;
const HOSTS_MAX = 20;
const INSTANCES_MAX = 10_000;
/**
 * Receivers refuse a push whose timestamp is 5 minutes off. The limit is half of that, because their clocks have errors
 * too.
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
    const { host, port } = config;
    const own_url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    const url = options.url === undefined ? own_url : clientFor({ url: options.url }).base_url;
    const answering = await askService(url);
    const own = url === own_url ? answering : await askService(own_url);
    checks.push(await checkDirectory(config, own !== null), ...(await checkDatabase(config)));
    checks.push(await checkKey(config), await checkDisk(config));
    checks.push(await checkPort(config, own_url, own), checkReady(url, answering));
    checks.push(await checkNames(answering, options.apiKey), await checkEgress(config, answering, options.apiKey));
    checks.push(checkClock(answering), ...(await checkLastRun(config)));
  }
  const shown = checks.map((each) => ({
    ...each,
    detail: withTypedCommands(each.detail),
    advice: withTypedCommands(each.advice),
  }));
  if (options.json) printJson(shown);
  else {
    printTable(shown, [
      { title: '', text: ({ finding }) => finding, style: ({ finding }) => STYLES[finding] },
      { title: 'CHECK', text: ({ check }) => check },
      { title: 'FOUND', text: ({ detail, advice }) => (advice === '' ? detail : `${detail}: ${advice}`) },
    ]);
  }
  if (checks.some(({ finding }) => finding === 'fail')) process.exitCode = EXIT.failed;
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
    const answer = await fetch(`${url}/readyz`, {
      signal: AbortSignal.timeout(ANSWER_MS_MAX),
      redirect: 'manual',
    });
    const { status, detail, type } = (await answer.json()) as { status?: unknown; detail?: string; type?: string };
    const ready = answer.ok && status === 'ready';
    // Many programs respond with JSON. Only a problem of Convoke has such a type.
    if (!ready && type?.startsWith('urn:convoke:problem:') !== true) return null;
    return { url, ready, detail: detail ?? '', date_ms: Date.parse(answer.headers.get('date') ?? '') };
  } catch {
    return null;
  }
}

/** @param own the service at the address of these settings; `--url` may name another service */
async function checkPort(config: Config, own_url: string, own: RunningService | null): Promise<Check> {
  const refused = refusedPort(own_url);
  if (refused !== null) {
    return {
      check: 'port',
      finding: 'warn',
      detail: describeRefusedPort(refused),
      advice: 'choose another with --port',
    };
  }
  if (own !== null) return ok('port', `Convoke responds at ${own_url}`);
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
  try {
    const client = new ConvokeClient({ base_url: answering.url, api_key, timeout_ms: ANSWER_MS_MAX });
    for await (const { webhook_url, transport } of all((start) => client.listInstances({ limit: 500, ...start }))) {
      // Nothing is pushed to the address of a machine that pulls: it is only shown.
      if (transport === 'pull') continue;
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
  try {
    const client = new ConvokeClient({ base_url: answering.url, api_key, timeout_ms: ANSWER_MS_MAX });
    for await (const instance of all((start) => client.listInstances({ limit: 500, ...start }))) {
      const { instance_id, webhook_url, transport } = instance;
      if (transport === 'pull') continue;
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
  const { message } = error instanceof ConvokeError ? failureOf(error) : (error as Error);
  const advice = is_refused ? 'set CONVOKE_API_KEY to a key with the scope read' : message;
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
