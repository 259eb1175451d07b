/** Values of the API in words. */
import type { Attempt, Delivery, DeliveryReason, Health, Outcome, WaitingFor } from '@convoke/sdk';

export const HEALTH_WORDS: Record<Health, string> = {
  unknown: 'not tried yet',
  up: 'up',
  failing: 'failing',
  down: 'down',
};

const OUTCOMES: Record<Outcome, string> = {
  blocked: 'address not allowed',
  dns_failed: 'host not found',
  connect_refused: 'connection refused',
  connect_timeout: 'no connection in time',
  unreachable: 'not reachable',
  tls_failed: 'TLS failed',
  timeout: 'no response in time',
  broken_response: 'the response was cut off or was not HTTP',
  bad_status: 'answered with a status that is no success',
  gone: 'answered 410 Gone: pushing was turned off',
  not_200: 'answered with a 2xx status that is not 200',
  ok: 'answered with a success status',
};

const REASONS: Record<Exclude<DeliveryReason, 'exhausted'>, string> = {
  not_200: 'the receiver responded with a 2xx status that is not 200',
  gone: 'the receiver responded 410 and wants no more pushes',
  expired: 'not delivered before it expired',
  instance_deleted: 'the instance was removed',
  dropped: 'somebody dropped the waiting deliveries',
  hop_limit: 'the loop guard stopped agents that answer each other: too many answers in a row',
  pair_limit: 'the loop guard stopped agents that answer each other: too many messages in a short time',
  superseded: 'it waited while its machine was away, and a newer message came',
  max_age: 'it waited for longer than its membership allows',
};

const WAITS: Record<WaitingFor, string | ((instance_id: string) => string)> = {
  turn: 'its attempt is in progress, or it waits behind earlier messages',
  retry: 'waiting for its next attempt',
  back_off: (instance_id) => `waiting until ${instance_id} is tried again`,
  paused: 'waiting: its meeting is paused',
  switched_off: (instance_id) => `waiting: ${instance_id} is paused`,
  connection: 'waiting for its machine to connect',
};

/** How an attempt ended: `answered 500`, `connection refused`. */
export function outcomeInWords({ outcome, status_code }: Pick<Attempt, 'outcome' | 'status_code'>): string {
  const is_status = outcome === 'ok' || outcome === 'bad_status' || outcome === 'not_200';
  return is_status && status_code !== null ? `answered ${status_code}` : OUTCOMES[outcome];
}

/** The response of a machine, on one line. */
export function onOneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').trim();
}

/** Why an attempt failed: its detail, unless its outcome says more. */
export function failureInWords(attempt: Pick<Attempt, 'outcome' | 'status_code' | 'detail'>): string {
  const outcome = outcomeInWords(attempt);
  const { detail } = attempt;
  return detail === '' || outcome.startsWith(detail) ? outcome : detail;
}

/** After these outcomes the whole instance waits, because its receiver was not reached. */
const NOT_REACHED: ReadonlySet<Outcome> = new Set([
  'blocked',
  'dns_failed',
  'connect_refused',
  'connect_timeout',
  'unreachable',
  'tls_failed',
]);

/** Why a delivery waited after an attempt that failed. */
export function pauseInWords({ outcome }: Pick<Attempt, 'outcome'>): string {
  return NOT_REACHED.has(outcome)
    ? 'pauses grow while its machine cannot be reached'
    : 'pauses grow after each bad response';
}

/**
 * The explanation of a delivery's state; empty when none is needed. It may contain the id of the instance, which
 * somebody else wrote.
 */
export function whyInWords({ instance_id, reason, waiting_for, attempt_count }: Explained): string {
  if (reason === 'exhausted') return `gave up after ${counted(attempt_count, 'attempt')}`;
  if (reason !== null) return REASONS[reason];
  if (waiting_for === null) return '';
  const waits = WAITS[waiting_for];
  return typeof waits === 'string' ? waits : waits(instance_id);
}

type Explained = Pick<Delivery, 'instance_id' | 'reason' | 'waiting_for' | 'attempt_count'>;

export function durationInWords(ms: number): string {
  if (ms < 1) return '<1 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

/** `now`, `3 min ago`, `in 2 h`. */
export function distanceInWords(at_ms: number, now_ms: number): string {
  const distance_ms = now_ms - at_ms;
  if (Math.abs(distance_ms) < 1000) return 'now';
  // Only whole seconds: tenths would change all the time.
  const text = durationInWords(Math.max(Math.floor(Math.abs(distance_ms) / 1000) * 1000, 1000)).replace('.0', '');
  return distance_ms > 0 ? `${text} ago` : `in ${text}`;
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

/** `a, b and 3 more`. */
export function some(names: readonly string[], most = 3): string {
  if (names.length <= most) return names.join(', ');
  return `${names.slice(0, most).join(', ')} and ${names.length - most} more`;
}

/** Text for a shell, between single quotes. */
export function quoted(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Letters and signs of scripts that join. Between two of them, U+200C and U+200D change what is seen. */
const JOINING = String.raw`[[\p{L}\p{M}]&&[\p{scx=Arab}\p{scx=Syrc}\p{scx=Nkoo}\p{scx=Mong}\p{scx=Deva}\p{scx=Beng}\p{scx=Guru}\p{scx=Gujr}\p{scx=Orya}\p{scx=Taml}\p{scx=Telu}\p{scx=Knda}\p{scx=Mlym}\p{scx=Sinh}\p{scx=Mymr}\p{scx=Khmr}]]`;

/** The letters of the flags of England, Scotland and Wales: the only tags that every system draws. */
const FLAGS = String.raw`\u{e0067}\u{e0062}(?:\u{e0065}\u{e006e}\u{e0067}|\u{e0073}\u{e0063}\u{e0074}|\u{e0077}\u{e006c}\u{e0073})\u{e007f}`;

/** Characters that are invisible alone, but change what is seen before or after them. */
const SEEN = [
  String.raw`(?<=${JOINING})[\u200c\u200d](?=${JOINING})`,
  String.raw`(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])[\u200d\ufe0f]`,
  String.raw`(?<=\p{Extended_Pictographic})\ufe0e`,
  String.raw`(?<=[0-9#*])\ufe0f(?=\u20e3)`,
  String.raw`(?<=\u{1f3f4}(?=${FLAGS})[\u{e0062}-\u{e0077}]{0,5})[\u{e0062}-\u{e007f}]`,
].join('|');

/** Characters that nobody sees. src/cli/program/terminal.ts has the same rule; test/cli/unseen.test.ts tests both. */
const INVISIBLE = new RegExp(String.raw`(?!${SEEN})[\p{Default_Ignorable_Code_Point}\p{Cc}\u2028\u2029]`, 'gv');

/** Text that somebody else wrote, with invisible characters replaced by their codes. */
export function shown(text: string): string {
  return text.replaceAll(
    INVISIBLE,
    (character) => `[U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}]`,
  );
}
