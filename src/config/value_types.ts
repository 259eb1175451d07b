/** How the text of a setting is read: one function for each type of value. */
import { type Cidr, parseCidr } from '../domain/address.ts';
import type { KeyObject } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { DATABASE_SERVERS_MAX, parseDatabaseUrl } from '../domain/database_url.ts';
import { parseDataKey } from '../domain/data_key.ts';
import { ID_CHARS_MAX, isAddressableId } from '../domain/id.ts';
import type { Rate } from '../domain/token_bucket.ts';

/** Reads values of one type from text. */
interface ValueType<T> {
  /** Completes "must be …", as Markdown. */
  expects: string;
  /** Undefined when the text is not of this type, or out of bounds. */
  parse: (text: string) => T | undefined;
  /**
   * A secret is never shown. It has no flag, because every user of a host can read the command lines of all processes.
   */
  is_secret?: boolean;
}

interface Setting<T> extends ValueType<T> {
  /** The default as a user would write it. The sentence of the setting says if the default depends on something. */
  default: string;
  sentence: string;
}

const MINUTE_MS = 60_000;

const DAY_MS = 24 * 60 * MINUTE_MS;

const DURATION_UNITS_MS = { ms: 1, s: 1000, m: MINUTE_MS, h: 60 * MINUTE_MS, d: DAY_MS };

const URL_CHARS_MAX = 200;

const ORIGINS_MAX = 100;

/** A label of this length fits into the head of a page that is 360 pixels wide. */
const LABEL_CHARS_MAX = 24;

/**
 * A row of the table of settings.
 * @param sentence describes the setting, for the help and docs/settings.md
 */
export function setting<T>(type: ValueType<T>, default_text: string, sentence: string): Setting<T> {
  return { ...type, default: default_text, sentence };
}

/**
 * A text of one line that is not blank.
 * @param expects the words of the error
 */
export function line(expects: string): ValueType<string> {
  return {
    expects,
    parse: (text) => (text.trim() === '' || /\p{Cc}/u.test(text) ? undefined : text),
  };
}

/**
 * An address or a name of a machine, without a port. Refuses a URL, which would count as a machine that others can
 * reach.
 */
export function host(): ValueType<string> {
  return {
    expects: 'an address or a host name, without a port',
    parse: (text) => (isIPv6(text) || /^[\p{L}\p{N}._-]+$/u.test(text) ? text : undefined),
  };
}

/** A short name, as the pages show it; null when it is empty. */
export function label(): ValueType<string | null> {
  return {
    expects: `a name of at most ${LABEL_CHARS_MAX} characters, without control characters`,
    parse(text) {
      const name = text.trim();
      if (name === '') return null;
      return /\p{Cc}/u.test(name) || name.length > LABEL_CHARS_MAX ? undefined : name;
    },
  };
}

/** A whole number, both bounds included. */
export function wholeNumber(min: number, max: number): ValueType<number> {
  return {
    expects: `a whole number from ${min} to ${max}`,
    parse(text) {
      const value = /^[0-9]{1,15}$/.test(text) ? Number(text) : -1;
      return value >= min && value <= max ? value : undefined;
    },
  };
}

/** Null when there is no limit. */
export function rate(): ValueType<Rate | null> {
  return {
    expects: '`0` for no limit, or how many in a `s`, `m` or `h`, and how many in a burst, such as `100/s:10000`',
    parse(text) {
      if (text === '0') return null;
      const match = /^([1-9][0-9]{0,8})\/(s|m|h):([1-9][0-9]{0,8})$/.exec(text);
      if (match === null) return undefined;
      const unit_ms = DURATION_UNITS_MS[match[2] as 's' | 'm' | 'h'];
      return { per_second: (Number(match[1]) * 1000) / unit_ms, burst: Number(match[3]) };
    },
  };
}

export function boolean(): ValueType<boolean> {
  return {
    expects: '`true` or `false`',
    parse: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
  };
}

/** One of several words. */
export function oneOf<T extends string>(values: readonly T[]): ValueType<T> {
  return {
    expects: `one of ${values.map((value) => `\`${value}\``).join(', ')}`,
    parse: (text) => values.find((value) => value === text),
  };
}

/** Null when it is not given. */
export function dataKey(): ValueType<KeyObject | null> {
  return {
    expects: 'the base64 of 32 bytes, as `openssl rand -base64 32` prints it',
    parse: (text) => (text === '' ? null : (parseDataKey(text) ?? undefined)),
    is_secret: true,
  };
}

/** Null when it is not given. */
export function httpUrl(): ValueType<string | null> {
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
export function databaseUrl(): ValueType<string | null> {
  return {
    expects: `a URL such as \`postgres://user:password@host:5432/database\`, or with at most ${DATABASE_SERVERS_MAX} hosts such as \`postgres://user:password@db-1:5432,db-2:5432/database?target_session_attrs=read-write\` (or \`primary\`, or \`any\`). In the password \`/\` is \`%2F\`, and other such characters are encoded too`,
    parse(text) {
      if (text === '') return null;
      return parseDatabaseUrl(text) === null ? undefined : text;
    },
    is_secret: true,
  };
}

/** A list of ranges with commas between them; an empty text is an empty list. */
export function cidrs(): ValueType<Cidr[]> {
  return {
    expects: 'CIDR ranges such as `10.0.0.0/8,fd00::/8`, with no bits set beyond the prefix',
    parse(text) {
      const ranges = text.trim() === '' ? [] : text.split(',').map(parseCidr);
      return ranges.every((range) => range !== null) ? ranges : undefined;
    },
  };
}

/** A list of origins with commas between them; an empty text is an empty list. */
export function origins(): ValueType<string[]> {
  return {
    expects: `at most ${ORIGINS_MAX} origins such as \`https://app.example.com,http://localhost:5173\`: scheme, host and port as a browser writes them, with no path and no \`*\``,
    parse(text) {
      const given = text.trim() === '' ? [] : text.split(',').map((origin) => origin.trim());
      return given.length <= ORIGINS_MAX && given.every(isOrigin) ? given : undefined;
    },
  };
}

/** Whether a text is exactly an Origin as browsers send it. */
function isOrigin(text: string): boolean {
  return /^https?:[^*]+$/.test(text) && URL.canParse(text) && new URL(text).origin === text;
}

/** Null when it is not given. */
export function meetingId(): ValueType<string | null> {
  return {
    expects: `the id of a meeting: 1 to ${ID_CHARS_MAX} characters without control characters`,
    parse: (text) => (text === '' ? null : isAddressableId(text) ? text : undefined),
  };
}

/**
 * A duration in milliseconds.
 * @param min the bounds, included, as people write them: `100ms`, `72h`
 */
export function duration(min: string, max: string): ValueType<number> {
  const [min_ms, max_ms] = [durationMs(min)!, durationMs(max)!];
  return {
    expects: `a duration from \`${min}\` to \`${max}\` (\`ms\`, \`s\`, \`m\`, \`h\` or \`d\`)`,
    parse(text) {
      const value_ms = durationMs(text);
      return value_ms !== undefined && value_ms >= min_ms && value_ms <= max_ms ? value_ms : undefined;
    },
  };
}

/** A list of 1 to `count_max` durations in milliseconds, with commas between them. */
export function durations(count_max: number): ValueType<number[]> {
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
