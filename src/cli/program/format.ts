/** Values of the API in words, for tables. */
import type { ApiKey, Attempt, Delivery, DeliveryWithAttempts, Health } from '@convoke/sdk';
import type { styleText } from 'node:util';
import { adviceFor } from '../../domain/advice.ts';
import { isForEverybody } from '../../domain/agents_to_notify.ts';
import { OUTCOMES } from '../../domain/outcome.ts';
import { typed } from './command_name.ts';
import { lastArgument } from './shell_words.ts';

type Style = Parameters<typeof styleText>[0];

export const HEALTH_STYLES: Record<Health, Style> = { unknown: 'dim', up: 'green', failing: 'yellow', down: 'red' };

export const STATE_STYLES: Record<Delivery['state'], Style> = {
  pending: 'yellow',
  delivered: 'green',
  failed: 'red',
  cancelled: 'dim',
};

const REASONS: Record<Exclude<NonNullable<Delivery['reason']>, 'exhausted'>, string> = {
  not_200: 'the receiver responded with a 2xx status that is not 200',
  gone: 'the receiver responded 410 and wants no more pushes',
  expired: 'its time was over before it could be delivered',
  instance_deleted: 'the instance was removed',
  dropped: 'somebody dropped the waiting deliveries',
  hop_limit: 'the loop guard stopped agents that answer each other: too many answers in a row',
  pair_limit: 'the loop guard stopped agents that answer each other: too many messages in a short time',
  superseded: 'it waited while its machine was away, and a newer message came',
  max_age: 'it waited for longer than its membership allows',
};

const WAITS: Record<NonNullable<Delivery['waiting_for']>, string> = {
  turn: 'its attempt is in progress, or it waits behind earlier messages',
  retry: 'waiting for its next attempt',
  back_off: 'waiting until its instance is tried again',
  connection: 'waiting for its machine to connect',
  paused: 'waiting: its meeting is paused',
  switched_off: 'waiting: its instance is paused',
};

/** The state of a delivery, with the reason for it. */
export function stateInWords({ state, reason, waiting_for, attempt_count }: Delivery): string {
  if (reason === 'exhausted') return `${state}: gave up after ${counted(attempt_count, 'attempt')}`;
  if (reason !== null) return `${state}: ${inWords(REASONS, reason)}`;
  return waiting_for === null ? state : `${state}: ${inWords(WAITS, waiting_for)}`;
}

/** The words for a word of the API; the word itself when this command does not know it. */
export function inWords<Word extends string>(words: Readonly<Partial<Record<Word, string>>>, word: Word): string {
  return words[word] ?? word;
}

/** The state of a delivery in a list: in one line why it did not arrive, with the failure of the last attempt. */
export function causeInWords(delivery: Delivery): string {
  const { state, last_attempt } = delivery;
  const is_open = state === 'pending' || state === 'failed';
  const failure = is_open && last_attempt && last_attempt.outcome !== 'ok' ? failureInWords(last_attempt) : '';
  return failure === '' ? stateInWords(delivery) : `${stateInWords(delivery)} (${failure})`;
}

/** How an attempt ended, and how long it took. */
export function attemptInWords(attempt: Attempt): string {
  return `${failureInWords(attempt)} after ${durationInWords(attempt.duration_ms)}`;
}

/** How an attempt ended: `answered 500`, `connection refused: port 9000`. */
export function failureInWords({ outcome, status_code, detail }: Ended): string {
  const is_status = outcome === 'ok' || outcome === 'bad_status' || outcome === 'not_200';
  const what =
    is_status && status_code !== null
      ? `answered ${status_code}`
      : ((OUTCOMES[outcome] as { says: string } | undefined)?.says ?? outcome);
  return detail === '' || what.startsWith(detail) ? what : detail;
}

type Ended = Pick<Attempt, 'outcome' | 'status_code' | 'detail'>;

/** What can be done about the state of the delivery, in a line or two. */
export function adviceInWords(delivery: DeliveryWithAttempts): string {
  const { delivery_id, instance_id, meeting_id, state, reason, waiting_for } = delivery;
  if (reason === 'hop_limit' || reason === 'pair_limit')
    return `${typed(`deliveries retry ${delivery_id}`)} lets it through; ${typed(`meetings limit ${lastArgument(meeting_id)}`)} shows the limits`;
  if (reason === 'superseded' || reason === 'max_age')
    return `${typed(`deliveries retry ${delivery_id}`)} pushes it all the same; ${typed(`meetings show ${lastArgument(meeting_id)}`)} shows the rules`;
  if (state === 'delivered' || state === 'cancelled') return '';
  if (waiting_for === 'switched_off') return `${typed(`instances enable ${lastArgument(instance_id)}`)} lets it go on`;
  if (waiting_for === 'paused') return `${typed(`meetings resume ${lastArgument(meeting_id)}`)} lets it go on`;
  if (waiting_for === 'turn') return '';
  const shown = typed(`instances show ${lastArgument(instance_id)}`);
  if (waiting_for === 'connection') return `${shown} says since when its machine is away`;
  const failed = delivery.attempts.findLast(({ outcome }) => outcome !== 'ok');
  const cause = failed === undefined || !(failed.outcome in OUTCOMES) ? '' : `${adviceFor(failed)}\n`;
  return `${cause}${shown} says how its instance is; ${typed(`deliveries retry ${delivery_id}`)} tries again`;
}

/** `3 min ago`, `in 2 h`, `never` for null. */
export function ago(time: string | null, now_ms: number): string {
  if (time === null) return 'never';
  const distance_ms = now_ms - Date.parse(time);
  const text = durationInWords(Math.abs(distance_ms) < 1000 ? 0 : Math.abs(distance_ms));
  if (text === '0 ms') return 'now';
  return distance_ms > 0 ? `${text} ago` : `in ${text}`;
}

/** Whether a key can be used, and until when. */
export function keyStateInWords({ revoked_at, expires_at }: ApiKey, now_ms: number): string {
  if (revoked_at !== null) return `revoked ${ago(revoked_at, now_ms)}`;
  if (expires_at === null) return 'active';
  return Date.parse(expires_at) <= now_ms ? `expired ${ago(expires_at, now_ms)}` : `expires ${ago(expires_at, now_ms)}`;
}

/** When a back-off ends and the next attempt is made. After that time, the attempt only waits for a delivery. */
export function nextTryInWords(time: string, now_ms: number): string {
  return Date.parse(time) > now_ms ? `${time} (${ago(time, now_ms)})` : 'as soon as a delivery waits';
}

export function durationInWords(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

export function bytesInWords(bytes: number): string {
  if (bytes >= 1 << 30) return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  if (bytes >= 1 << 20) return `${Math.round(bytes / 2 ** 20)} MiB`;
  return `${Math.ceil(bytes / 1024)} KiB`;
}

/** `1 delivery`, `2 deliveries`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** As many items as fit into a table, and the number of the other items. */
export function listInWords(items: readonly string[]): string {
  const shown = items.slice(0, 3).join(', ');
  return items.length > 3 ? `${shown} and ${items.length - 3} more` : shown;
}

/** Whom a message is for. */
export function receiversInWords(target_agents: readonly string[] | null): string {
  return isForEverybody(target_agents) ? 'everybody' : listInWords(target_agents);
}
