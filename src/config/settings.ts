/**
 * The table of settings. Each is an environment variable and a flag of `convoke serve`: `port` is CONVOKE_PORT and
 * `--port`. The parsing, its errors, the flags, `convoke config` and docs/settings.md follow from this table.
 */
import type { EgressMode } from '../domain/address.ts';
import { HOP_LIMIT_MAX, PAIR_LIMIT_MAX, PAIR_WINDOW_S_MAX } from '../domain/guard_rule.ts';
import { DATABASE_FILE, KEY_FILE } from '../domain/data_directory.ts';
import {
  setting,
  host,
  line,
  label,
  wholeNumber,
  rate,
  boolean,
  oneOf,
  dataKey,
  httpUrl,
  databaseUrl,
  cidrs,
  origins,
  meetingId,
  duration,
  durations,
} from './value_types.ts';

export type LogLevel = (typeof LOG_LEVELS)[number];

export type LogFormat = (typeof LOG_FORMATS)[number];

const RETRIES_MAX = 20;

const EGRESS_MODES = ['local', 'lan', 'public'] as const satisfies readonly EgressMode[];

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

const LOG_FORMATS = ['auto', 'pretty', 'json'] as const;

export const SETTINGS = {
  host: setting(
    host(),
    '127.0.0.1',
    'Address to listen on. If other hosts can reach it, make an admin key first (docs/keys.md).',
  ),
  port: setting(wholeNumber(0, 65_535), '8080', 'Port to listen on; 0 takes any free one.'),
  advertised_url: setting(
    httpUrl(),
    '',
    'URL of this node: `convoke nodes` shows it, and other nodes forward pulls to it. When empty: the address on which the node listens, or its host name if it listens on all addresses.',
  ),
  public_url: setting(
    httpUrl(),
    '',
    'URL at which receivers and people reach the service, through its proxy if there is one. Receivers send later replies to it, and invites and portal links begin with it. When empty: replies use advertised_url, and a link uses the address at which its maker reached the service.',
  ),
  environment: setting(
    label(),
    '',
    'Name of this environment, such as production or staging. The pages show it in their head and in the title of each tab, even before sign-in. When empty: the pages show nothing.',
  ),
  data: setting(
    line('the path of a directory'),
    './data',
    `Directory that holds ${DATABASE_FILE}; created when it is missing.`,
  ),
  database_url: setting(
    databaseUrl(),
    '',
    `PostgreSQL database that holds everything instead of ${DATABASE_FILE}. Any number of nodes may share it. If the URL names several hosts, each connection uses the one that accepts writes.`,
  ),
  egress: setting(
    oneOf(EGRESS_MODES),
    'local',
    'How far pushes may go. local: everywhere except link-local, cloud metadata and reserved ranges. lan: as local, but not to this host. public: only to global addresses, by https. The default is public when host is not loopback, and behind a proxy (trust_proxy).',
  ),
  egress_allow: setting(
    cidrs(),
    '',
    'Address ranges that pushes may reach under every egress mode, separated by commas. Under public these also need https, unless egress_allow_http is true.',
  ),
  egress_allow_http: setting(boolean(), 'false', 'Whether egress public permits http:// webhook addresses too.'),
  encryption_key: setting(
    dataKey(),
    '',
    `Key that encrypts webhook secrets and headers. When empty: the key in ${KEY_FILE} in the data directory, which the first start makes.`,
  ),
  encryption_key_previous: setting(
    dataKey(),
    '',
    'The previous encryption_key, needed until `convoke keys reencrypt` has encrypted every secret under the new key.',
  ),
  retry_schedule: setting(
    durations(RETRIES_MAX),
    '10s,30s,2m,10m,30m',
    'Pauses before the retries of a push with a bad response. When the last retry fails too, the delivery fails.',
  ),
  expire_after: setting(
    duration('1s', '30d'),
    '72h',
    'How long a delivery may wait, for example for a receiver that cannot be reached. After that time the delivery fails.',
  ),
  trust_clock: setting(
    boolean(),
    'false',
    'Whether to believe a clock that, at the start, is far ahead of the last run of the service. If true, deliveries that have expired by that clock fail immediately.',
  ),
  retention_deliveries: setting(duration('1s', '3650d'), '7d', 'How long settled deliveries are kept.'),
  retention_messages: setting(
    duration('1s', '3650d'),
    '30d',
    'How long messages are kept. A message stays as long as a delivery of it, also a settled one: to remove messages sooner, shorten retention-deliveries too.',
  ),
  retention_audit: setting(
    duration('1d', '36500d'),
    '400d',
    'How long entries of the audit log are kept. Each removal leaves an entry, and the chain stays whole (docs/audit.md).',
  ),
  hop_limit: setting(
    wholeNumber(0, HOP_LIMIT_MAX),
    '16',
    'How many messages of agents in a row the loop guard lets through; 0 switches this limit off. A meeting may have a limit of its own (docs/loop-guard.md).',
  ),
  pair_limit: setting(
    wholeNumber(0, PAIR_LIMIT_MAX),
    '20',
    'How many messages from one agent to another the loop guard lets through in a meeting within pair_window_s; 0 switches this limit off.',
  ),
  pair_window_s: setting(
    wholeNumber(0, PAIR_WINDOW_S_MAX),
    '60',
    'The window of pair_limit in seconds. A pair over its limit stays silent until this time has passed since its last delivered message; 0 switches pair_limit off.',
  ),
  max_in_flight: setting(
    wholeNumber(1, 100_000),
    '4000',
    'Pushes in flight at a time, over all instances. With 4 for each instance, a thousand receivers may hang before other instances wait.',
  ),
  instance_concurrency: setting(wholeNumber(1, 64), '4', 'Pushes in flight at a time to one instance.'),
  max_message_bytes: setting(wholeNumber(1024, 16_777_216), '262144', 'Largest message that is accepted, in bytes.'),
  max_request_bytes_in_flight: setting(
    // Bodies over 64 KiB may together take three quarters of these bytes. Even with the lowest value, the largest body
    // still fits into that part.
    wholeNumber(33_554_432, 1_099_511_627_776),
    '67108864',
    'Bytes of request bodies in memory at a time, over all connections. Requests beyond them get a 503.',
  ),
  max_connections: setting(
    wholeNumber(16, 1_000_000),
    '10000',
    'Connections of clients at a time. Beyond that number the service closes the connection that has been idle for longest, or that of the slowest client.',
  ),
  max_feed_listeners: setting(wholeNumber(0, 10_000), '100', 'Connections that listen to the live feed at a time.'),
  cors_origins: setting(
    origins(),
    '',
    "Origins whose pages may call the API from a browser, separated by commas. Their requests need a key: the service never takes cookies and sessions from them. When empty: only the service's own pages (docs/browser.md).",
  ),
  portal_origins: setting(
    origins(),
    '',
    'Origins whose pages may show portal links in a frame, separated by commas (docs/portal.md). Nothing else of the service can be framed.',
  ),
  trust_proxy: setting(
    cidrs(),
    '',
    'Address ranges of reverse proxies, separated by commas. Their X-Forwarded-For and X-Forwarded-Proto give the address of the client and whether it used https.',
  ),
  send_rate: setting(rate(), '0', 'How often one key may send.'),
  send_rate_per_address: setting(rate(), '0', 'How often one client address (of IPv6: one /64) may send.'),
  register_rate: setting(rate(), '100/s:10000', 'How often one key may register instances.'),
  change_rate: setting(
    rate(),
    '20/s:10000',
    'How often one key that is not an admin key may make changes that leave an entry in the audit log: register, join, leave, change, retry, sign in.',
  ),
  register_rate_per_address: setting(
    rate(),
    '100/s:10000',
    'How often one client address (of IPv6: one /64) may register instances.',
  ),
  auth_failure_rate: setting(
    rate(),
    '10/s:100',
    'How often one client address (of IPv6: one /64) may use a wrong API key, and how often clients may use a wrong secret with one key.',
  ),
  max_instances: setting(wholeNumber(0, 1_000_000_000), '100000', 'Instances of the whole service; 0 is no limit.'),
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
  notices_meeting: setting(
    meetingId(),
    '',
    'Meeting in which the service reports when an instance goes down or comes back, deliveries fail, the loop guard stops deliveries, or the store fails (docs/notices.md). When empty: only the log has these reports.',
  ),
  log_level: setting(oneOf(LOG_LEVELS), 'info', 'The lowest level of the lines in the log.'),
  log_format: setting(
    oneOf(LOG_FORMATS),
    'auto',
    'Format of log lines; auto is pretty on a terminal and json otherwise.',
  ),
} as const;

export type SettingName = keyof typeof SETTINGS;

export type SettingValues = { [Name in SettingName]: Exclude<ReturnType<(typeof SETTINGS)[Name]['parse']>, undefined> };

/** `CONVOKE_MAX_IN_FLIGHT` for max_in_flight. */
export function variableOf(name: SettingName): string {
  return `CONVOKE_${name.toUpperCase()}`;
}

/**
 * `CONVOKE_ENCRYPTION_KEY_FILE` for encryption_key: names the file that holds the secret. Only a secret has such a
 * variable.
 */
export function fileVariableOf(name: SettingName): string {
  return `${variableOf(name)}_FILE`;
}

/** `--max-in-flight` for max_in_flight. */
export function flagOf(name: SettingName): string {
  return `--${name.replaceAll('_', '-')}`;
}

/** Whether a setting is a secret: it is never shown, and has no flag. */
export function isSecret(name: SettingName): boolean {
  return SETTINGS[name].is_secret === true;
}

/** The names of all settings, in the order of the table. */
export function settingNames(): SettingName[] {
  return Object.keys(SETTINGS) as SettingName[];
}
