/**
 * The table of settings. Each is an environment variable and a flag of `convoke serve`: `port` is CONVOKE_PORT and
 * `--port`. From this table come the parsing, its errors, the flags, `convoke config` and docs/settings.md.
 */
import { type Cidr, type EgressMode, type EgressPolicy, parseAddress, parseCidr } from './domain/address.ts';
import type { KeyObject } from 'node:crypto';
import { DATABASE_SERVERS_MAX, parseDatabaseUrl } from './domain/database_url.ts';
import { parseDataKey } from './domain/data_key.ts';
import { nearestName } from './domain/nearest.ts';
import type { Rate } from './domain/token_bucket.ts';
import { isLocalhostName } from './domain/webhook_url.ts';

export type LogLevel = (typeof LOG_LEVELS)[number];
export type LogFormat = (typeof LOG_FORMATS)[number];

/** Everything that `createConvoke` has to know, parsed and within its bounds. */
export interface Config {
  host: string;
  port: number;
  /** Null: where the node listens, by the name of its machine if that is everywhere. */
  advertised_url: string | null;
  /** The directory; DATABASE_FILE is in it. */
  data: string;
  egress_policy: EgressPolicy;
  /** Null: the data is in the file. */
  database_url: string | null;
  /** Null: the key is in a file beside the data. */
  encryption_key: KeyObject | null;
  encryption_key_previous: KeyObject | null;
  retry_schedule_ms: number[];
  expire_after_ms: number;
  trust_clock: boolean;
  retention_deliveries_ms: number;
  retention_messages_ms: number;
  retention_audit_ms: number;
  max_in_flight: number;
  instance_concurrency: number;
  max_message_bytes: number;
  max_request_bytes_in_flight: number;
  max_connections: number;
  max_feed_listeners: number;
  /** Proxies whose X-Forwarded-For is believed. */
  trust_proxy: Cidr[];
  /** Null: no limit. */
  send_rate: Rate | null;
  send_rate_per_address: Rate | null;
  register_rate: Rate | null;
  register_rate_per_address: Rate | null;
  change_rate: Rate | null;
  auth_failure_rate: Rate | null;
  /** 0: no limit; so are the three that follow. */
  max_instances: number;
  max_instances_per_key: number;
  max_instances_per_meeting: number;
  max_meetings_per_instance: number;
  /** Names of the settings that differ from their defaults. */
  changed_settings: SettingName[];
  log_level: LogLevel;
  /** `auto`: pretty when the log goes to a terminal, JSON otherwise. */
  log_format: LogFormat;
}

export const DATABASE_FILE = 'convoke.db';
export const KEY_FILE = 'encryption.key';

/** Stands for the value of a secret wherever settings are shown. */
const HIDDEN = '(hidden)';

/** How values of one type are read from text. */
interface ValueType<T> {
  /** Completes "must be …", as Markdown. */
  expects: string;
  /** Undefined when the text is not of this type, or out of bounds. */
  parse: (text: string) => T | undefined;
  /** Never shown, and not taken as a flag: every user of the machine can read a command line. */
  is_secret?: boolean;
}

interface Setting<T> extends ValueType<T> {
  /** As one would write it; what it depends on is said in the sentence. */
  default: string;
  sentence: string;
}

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const DURATION_UNITS_MS = { ms: 1, s: 1000, m: MINUTE_MS, h: 60 * MINUTE_MS, d: DAY_MS };
const RETRIES_MAX = 20;
const URL_CHARS_MAX = 200;

const EGRESS_MODES = ['local', 'lan', 'public'] as const satisfies readonly EgressMode[];
const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
const LOG_FORMATS = ['auto', 'pretty', 'json'] as const;

export const SETTINGS = {
  host: setting(
    line('an address or a host name'),
    '127.0.0.1',
    'Address to listen on; one that other machines can reach takes an admin key first (docs/keys.md).',
  ),
  port: setting(wholeNumber(0, 65_535), '8080', 'Port to listen on; 0 takes any free one.'),
  advertised_url: setting(
    httpUrl(),
    '',
    'Where this node is reached, as `convoke nodes` shows it; when empty the address that it listens on, with the name of its machine in place of one that stands for all.',
  ),
  data: setting(
    line('the path of a directory'),
    './data',
    `Directory that holds ${DATABASE_FILE}; created when it is missing.`,
  ),
  database_url: setting(
    databaseUrl(),
    '',
    `The PostgreSQL database to keep everything in instead of ${DATABASE_FILE}, which any number of nodes may share. Of several hosts the one that writes is taken, at each connection.`,
  ),
  egress: setting(
    oneOf(EGRESS_MODES),
    'local',
    'How far pushes may go: local is everywhere but link-local, cloud metadata and reserved ranges, lan is everywhere but this machine too, public is global addresses by https; public is the default when the host is not loopback, and behind a proxy (trust_proxy).',
  ),
  egress_allow: setting(
    cidrs(),
    '',
    'Address ranges that pushes may reach whatever egress says, separated by commas. Under public they too are reached by https only, unless egress_allow_http is true.',
  ),
  egress_allow_http: setting(boolean(), 'false', 'Whether egress public permits http:// webhook addresses too.'),
  encryption_key: setting(
    dataKey(),
    '',
    `The key that webhook secrets and headers are encrypted under; when empty it is in ${KEY_FILE} in the data directory, made at the first start.`,
  ),
  encryption_key_previous: setting(
    dataKey(),
    '',
    'The former encryption_key, while `convoke keys reencrypt` changes it.',
  ),
  retry_schedule: setting(
    durations(RETRIES_MAX),
    '10s,30s,2m,10m,30m',
    'Pauses before a push that was answered badly is tried again; after the last it has failed.',
  ),
  expire_after: setting(
    duration('1s', '30d'),
    '72h',
    'How long a delivery to a machine that cannot be reached is kept before it has failed.',
  ),
  trust_clock: setting(
    boolean(),
    'false',
    'At the start, believe a clock that is far ahead of when the service ran last: what has expired by it fails at once.',
  ),
  retention_deliveries: setting(duration('1s', '3650d'), '7d', 'How long settled deliveries are kept.'),
  retention_messages: setting(
    duration('1s', '3650d'),
    '30d',
    'How long messages are kept; one with a pending delivery always stays.',
  ),
  retention_audit: setting(
    duration('1d', '36500d'),
    '400d',
    'How long entries of the audit log are kept; removing them leaves an entry, and the chain stays whole (docs/audit.md).',
  ),
  max_in_flight: setting(
    wholeNumber(1, 100_000),
    '4000',
    'Pushes under way at a time, over all instances: with 4 for each, a thousand machines may hang before the others wait.',
  ),
  instance_concurrency: setting(wholeNumber(1, 64), '4', 'Pushes under way at a time to one instance.'),
  max_message_bytes: setting(
    wholeNumber(1024, 16_777_216),
    '262144',
    'Largest body of a message that is accepted, in bytes.',
  ),
  max_request_bytes_in_flight: setting(
    // The least that has room for the largest body, within the share that is left to large ones.
    wholeNumber(33_554_432, 1_099_511_627_776),
    '67108864',
    'Bytes of request bodies in memory at a time, over all connections; what comes beyond them is answered 503.',
  ),
  max_connections: setting(
    wholeNumber(16, 1_000_000),
    '10000',
    'Connections of clients at a time; beyond them the one that has been idle for longest is closed, or the slowest client.',
  ),
  max_feed_listeners: setting(wholeNumber(0, 10_000), '100', 'Connections that listen to the live feed at a time.'),
  trust_proxy: setting(
    cidrs(),
    '',
    'Address ranges of reverse proxies whose X-Forwarded-For and X-Forwarded-Proto say where a request comes from and whether by https, separated by commas.',
  ),
  send_rate: setting(rate(), '0', 'How often one key may send.'),
  send_rate_per_address: setting(rate(), '0', 'How often one client address (of IPv6: one /64) may send.'),
  register_rate: setting(rate(), '100/s:10000', 'How often one key may register instances.'),
  change_rate: setting(
    rate(),
    '20/s:10000',
    'How often one key that is no admin key may do what leaves an entry in the audit log: register, join, leave, change, retry, sign in. The log is never cut.',
  ),
  register_rate_per_address: setting(
    rate(),
    '100/s:10000',
    'How often one client address (of IPv6: one /64) may register instances.',
  ),
  auth_failure_rate: setting(
    rate(),
    '10/s:100',
    'How often one client address (of IPv6: one /64) may come with an API key that is wrong, and how often a wrong secret may be given for one key.',
  ),
  max_instances: setting(wholeNumber(0, 1_000_000_000), '100000', 'Instances in all; 0 is no limit.'),
  max_instances_per_key: setting(
    wholeNumber(0, 1_000_000_000),
    '10000',
    'Instances that one key may own; 0 is no limit.',
  ),
  max_instances_per_meeting: setting(
    wholeNumber(0, 1_000_000_000),
    '10000',
    'Instances in one meeting at a time; 0 is no limit.',
  ),
  max_meetings_per_instance: setting(
    wholeNumber(0, 1_000_000_000),
    '10000',
    'Meetings that one instance is in at a time; 0 is no limit.',
  ),
  log_level: setting(oneOf(LOG_LEVELS), 'info', 'The least important lines that are logged.'),
  log_format: setting(
    oneOf(LOG_FORMATS),
    'auto',
    'How log lines look; auto is pretty on a terminal and json otherwise.',
  ),
} as const;

export type SettingName = keyof typeof SETTINGS;
type SettingValues = { [Name in SettingName]: Exclude<ReturnType<(typeof SETTINGS)[Name]['parse']>, undefined> };

/** Variables with our prefix that are not the server's: the commands that call the API read them. */
const CLIENT_VARIABLES = ['CONVOKE_URL', 'CONVOKE_API_KEY'];

/** Where the value of a setting comes from, and the value as text. */
export interface Source {
  from: 'default' | 'environment' | 'flag';
  value: string;
}

export interface ReadConfig {
  config: Config;
  sources: Record<SettingName, Source>;
}

/** All that is wrong with the settings, one sentence each. */
export class ConfigError extends Error {
  readonly faults: readonly string[];

  constructor(faults: readonly string[]) {
    super(faults.join('\n'));
    this.name = 'ConfigError';
    this.faults = faults;
  }
}

/** `CONVOKE_MAX_IN_FLIGHT` for max_in_flight. */
export function variableOf(name: SettingName): string {
  return `CONVOKE_${name.toUpperCase()}`;
}

/** `--max-in-flight` for max_in_flight. */
export function flagOf(name: SettingName): string {
  return `--${name.replaceAll('_', '-')}`;
}

/**
 * Decides every setting: the flag if there is one, else the environment variable, else the default. An environment
 * variable that is empty counts as not set. Reads nothing but its arguments.
 *
 * @param flags by the name of the setting; what is absent was not given
 * @throws ConfigError that lists everything wrong at once
 */
export function readConfig({
  flags = {},
  env = {},
}: {
  flags?: Partial<Record<SettingName, string>>;
  env?: Record<string, string | undefined>;
}): ReadConfig {
  const faults = unknownVariables(env);
  const sources = {} as Record<SettingName, Source>;
  const values: Partial<Record<SettingName, unknown>> = {};
  for (const name of settingNames()) {
    const source = sourceOf(name, flags, env);
    const value = SETTINGS[name].parse(source.value);
    if (value === undefined) faults.push(describeMismatch(name, source));
    sources[name] = isSecret(name) && source.from !== 'default' ? { ...source, value: HIDDEN } : source;
    values[name] = value;
  }
  const { host, trust_proxy } = values as Partial<SettingValues>;
  // Behind a proxy the callers are elsewhere, whatever address the service has.
  const is_local = (host === undefined || isLoopbackHost(host)) && trust_proxy?.length === 0;
  faults.push(...faultsOfKeys(values as Partial<SettingValues>));
  if (faults.length > 0) throw new ConfigError(faults);

  if (sources.egress.from === 'default' && !is_local) sources.egress.value = values.egress = 'public';
  const changed_settings = settingNames().filter(
    (name) => sources[name].from !== 'default' && sources[name].value !== SETTINGS[name].default,
  );
  return { config: { ...configOf(values as SettingValues), changed_settings }, sources };
}

/** Whether a setting may not be shown, and has no flag. */
export function isSecret(name: SettingName): boolean {
  return SETTINGS[name].is_secret === true;
}

/** The names of all settings, in the order of the table. */
export function settingNames(): SettingName[] {
  return Object.keys(SETTINGS) as SettingName[];
}

/** The settings as Markdown: docs/settings.md. */
export function settingsTable(): string {
  const rows = settingNames().map((name) => {
    const { default: text, expects, sentence } = SETTINGS[name];
    return `| \`${variableOf(name)}\` | ${isSecret(name) ? 'none' : `\`${flagOf(name)}\``} | ${text === '' ? 'empty' : `\`${text}\``} | ${expects} | ${sentence} |\n`;
  });
  return (
    '# Settings\n\n' +
    'Each setting is an environment variable and a flag of `convoke serve`; the flag wins. A secret has no flag, because\n' +
    'every user of a machine can read a command line. `convoke config` prints what is in effect and where it comes from,\n' +
    'but no secret. An environment variable that is empty counts as not set; one that starts with\n' +
    '`CONVOKE_` and is not listed here is an error, so that a typing mistake cannot go unnoticed.\n\n' +
    '| variable | flag | default | value | meaning |\n| --- | --- | --- | --- | --- |\n' +
    rows.join('') +
    '\nThe commands that call the API of a running service read two more: `CONVOKE_URL` (`--url`), where it answers,\n' +
    '`http://127.0.0.1:8080` when absent; and `CONVOKE_API_KEY` (`--api-key`), the key to use ([keys](keys.md)).\n'
  );
}

/** Whether only this machine can reach what listens on the host. */
export function isLoopbackHost(host: string): boolean {
  const bytes = parseAddress(host);
  if (bytes === null) return isLocalhostName(host.toLowerCase());
  return bytes.length === 4 ? bytes[0] === 127 : bytes.every((byte, i) => byte === (i === 15 ? 1 : 0));
}

/** Whether a host stands for all addresses of the machine, and for none that others could reach it at. */
export function isWildcardHost(host: string): boolean {
  return parseAddress(host)?.every((byte) => byte === 0) === true;
}

function configOf({
  egress,
  egress_allow,
  egress_allow_http,
  ...values
}: SettingValues): Omit<Config, 'changed_settings'> {
  const { retry_schedule, expire_after, retention_deliveries, retention_messages, retention_audit, ...same } = values;
  return {
    ...same,
    egress_policy: { mode: egress, allow: egress_allow, allow_http: egress_allow_http },
    retry_schedule_ms: retry_schedule,
    expire_after_ms: expire_after,
    retention_deliveries_ms: retention_deliveries,
    retention_messages_ms: retention_messages,
    retention_audit_ms: retention_audit,
  };
}

function sourceOf(
  name: SettingName,
  flags: Partial<Record<SettingName, string>>,
  env: Record<string, string | undefined>,
): Source {
  const flag = flags[name];
  if (flag !== undefined) return { from: 'flag', value: flag };
  const variable = env[variableOf(name)];
  if (variable !== undefined && variable !== '') return { from: 'environment', value: variable };
  return { from: 'default', value: SETTINGS[name].default };
}

function unknownVariables(env: Record<string, string | undefined>): string[] {
  const known = [...settingNames().map(variableOf), ...CLIENT_VARIABLES];
  const unknown = Object.keys(env).filter((name) => name.startsWith('CONVOKE_') && !known.includes(name));
  if (unknown.includes('CONVOKE_SERVICE_HOST')) {
    return [
      'Kubernetes has set CONVOKE_SERVICE_HOST and more for a Service named convoke, which would be taken for settings; ' +
        'put enableServiceLinks: false into the pod, or name the Service otherwise',
    ];
  }
  return unknown.map((name) => {
    const nearest = nearestName(name.slice('CONVOKE_'.length), [...settingNames(), 'url', 'api_key']);
    const hint =
      nearest === null ? 'docs/settings.md lists them all' : `did you mean CONVOKE_${nearest.toUpperCase()}?`;
    return `${name} is not a setting; ${hint}`;
  });
}

function describeMismatch(name: SettingName, source: Source): string {
  return `${describeGiven(name, source)} must be ${SETTINGS[name].expects.replaceAll('`', '')}`;
}

function faultsOfKeys({ encryption_key, encryption_key_previous }: Partial<SettingValues>): string[] {
  if (encryption_key_previous === undefined || encryption_key_previous === null) return [];
  const name = variableOf('encryption_key');
  if (encryption_key === null) return [`${variableOf('encryption_key_previous')} needs the key after it, as ${name}`];
  if (encryption_key?.equals(encryption_key_previous)) {
    return [`${variableOf('encryption_key_previous')} is the same key as ${name}; leave it out`];
  }
  return [];
}

function describeGiven(name: SettingName, { from, value }: Source): string {
  if (isSecret(name)) return variableOf(name);
  const shown = JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value);
  return from === 'flag' ? `${flagOf(name)} ${shown}` : `${variableOf(name)}=${shown}`;
}

function setting<T>(type: ValueType<T>, default_text: string, sentence: string): Setting<T> {
  return { ...type, default: default_text, sentence };
}

function line(expects: string): ValueType<string> {
  return {
    expects,
    parse: (text) => (text.trim() === '' || /\p{Cc}/u.test(text) ? undefined : text),
  };
}

function wholeNumber(min: number, max: number): ValueType<number> {
  return {
    expects: `a whole number from ${min} to ${max}`,
    parse(text) {
      const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : -1;
      return value >= min && value <= max ? value : undefined;
    },
  };
}

/** Null when there is no limit. */
function rate(): ValueType<Rate | null> {
  return {
    expects: '`0` for no limit, or how many in a `s`, `m` or `h`, and how many at once, such as `100/s:10000`',
    parse(text) {
      if (text === '0') return null;
      const match = /^([1-9][0-9]{0,8})\/(s|m|h):([1-9][0-9]{0,8})$/.exec(text);
      if (match === null) return undefined;
      const unit_ms = DURATION_UNITS_MS[match[2] as 's' | 'm' | 'h'];
      return { per_second: (Number(match[1]) * 1000) / unit_ms, burst: Number(match[3]) };
    },
  };
}

function boolean(): ValueType<boolean> {
  return {
    expects: '`true` or `false`',
    parse: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
  };
}

function oneOf<T extends string>(values: readonly T[]): ValueType<T> {
  return {
    expects: `one of ${values.map((value) => `\`${value}\``).join(', ')}`,
    parse: (text) => values.find((value) => value === text),
  };
}

/** Null when it is not given. */
function dataKey(): ValueType<KeyObject | null> {
  return {
    expects: 'the base64 of 32 bytes, as `openssl rand -base64 32` prints it',
    parse: (text) => (text === '' ? null : (parseDataKey(text) ?? undefined)),
    is_secret: true,
  };
}

/** Null when it is not given. */
function httpUrl(): ValueType<string | null> {
  return {
    expects: `a URL such as \`http://node-1:8080\`, without a query, of at most ${URL_CHARS_MAX} characters`,
    parse(text) {
      if (text === '') return null;
      if (text.length > URL_CHARS_MAX || !URL.canParse(text)) return undefined;
      const { protocol, username, password, origin, pathname, search, hash } = new URL(text);
      if (!/^https?:$/.test(protocol) || username + password + search + hash !== '') return undefined;
      return origin + pathname.replace(/\/$/, '');
    },
  };
}

/** Null when it is not given. A secret, because it may hold a password. */
function databaseUrl(): ValueType<string | null> {
  return {
    expects: `a URL such as \`postgres://user:password@host:5432/database\`, or with at most ${DATABASE_SERVERS_MAX} hosts such as \`postgres://user:password@db-1:5432,db-2:5432/database?target_session_attrs=read-write\` (or \`primary\`, or \`any\`)`,
    parse(text) {
      if (text === '') return null;
      return parseDatabaseUrl(text) === null ? undefined : text;
    },
    is_secret: true,
  };
}

function cidrs(): ValueType<Cidr[]> {
  return {
    expects: 'CIDR ranges such as `10.0.0.0/8,fd00::/8`, with no bits set beyond the prefix',
    parse(text) {
      const ranges = text.trim() === '' ? [] : text.split(',').map(parseCidr);
      return ranges.every((range) => range !== null) ? ranges : undefined;
    },
  };
}

function duration(min: string, max: string): ValueType<number> {
  const [min_ms, max_ms] = [durationMs(min)!, durationMs(max)!];
  return {
    expects: `a duration from \`${min}\` to \`${max}\` (\`ms\`, \`s\`, \`m\`, \`h\` or \`d\`)`,
    parse(text) {
      const value_ms = durationMs(text);
      return value_ms !== undefined && value_ms >= min_ms && value_ms <= max_ms ? value_ms : undefined;
    },
  };
}

function durations(count_max: number): ValueType<number[]> {
  return {
    expects: `1 to ${count_max} durations of at most \`24h\` each, such as \`10s,30s,2m\``,
    parse(text) {
      const list_ms = text.split(',').map(durationMs);
      const fits = list_ms.length <= count_max && list_ms.every((ms) => ms !== undefined && ms <= DAY_MS);
      return fits ? (list_ms as number[]) : undefined;
    },
  };
}

function durationMs(text: string): number | undefined {
  const match = /^([0-9]{1,12})(ms|s|m|h|d)$/.exec(text.trim());
  return match === null ? undefined : Number(match[1]) * DURATION_UNITS_MS[match[2] as keyof typeof DURATION_UNITS_MS];
}
