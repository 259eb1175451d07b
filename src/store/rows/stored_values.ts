/**
 * Reads the values of a row. A value that this service would not write is damaged. It is reported once, with its place,
 * and the reader continues with an empty value of its type. So one damaged value does not hide other values and rows.
 */
import { firstSuccessOf } from '../../domain/attempts_text.ts';
import { type Wake, WAKES } from '../../domain/agents_to_notify.ts';
import { type CatchUp, CATCH_UPS } from '../../domain/catch_up.ts';
import type { LastFailure, TransportName } from '../../domain/instance.ts';
import { type Attempt, OUTCOMES, type SuccessStatuses } from '../../domain/outcome.ts';
import { isShapedName, type RuntimeSettings } from '../../domain/runtimes/runtimes.ts';
import { isTrace, type TraceContext } from '../../domain/trace_context.ts';
import type { AcceptedMessage } from '../contract/messages.ts';

export interface DamagedValue {
  table: string;
  column: string;
  /** The key of the row. */
  row: string;
  /** The value, when it is whole and only a later version knows it. */
  unknown?: string;
}

/** What the log says about a damaged value. */
export function describeDamaged({ table, unknown }: DamagedValue): string {
  const what =
    unknown === undefined
      ? `a row of ${table} is damaged`
      : `a later version of Convoke wrote a row of ${table}, so update this node`;
  return `${what}: its value is taken for an empty one`;
}

/** How far from 1970 a Date can be, in either direction, in milliseconds (ECMA-262, section 21.4.1.1). */
const TIME_MAX = 8_640_000_000_000_000;
/** The most places that are remembered as reported. */
const REPORTED_MAX = 10_000;

const reported = new Set<string>();
let listener: (damaged: DamagedValue) => void = () => {};

/** Sets the listener of this thread. Each store does this when it opens. */
export function onDamagedValue(listen: (damaged: DamagedValue) => void): void {
  listener = listen;
  reported.clear();
}

/** Reports a damaged or unknown value to the listener of this thread, once for each place. */
export function reportDamaged(table: string, column: string, row: string, unknown?: string): void {
  const key = JSON.stringify([table, column, row]);
  if (reported.has(key)) return;
  if (reported.size >= REPORTED_MAX) reported.clear();
  reported.add(key);
  listener({ table, column, row, ...(unknown !== undefined && { unknown }) });
}

/** A list of texts; an empty one when the value is damaged. */
export function storedTexts(json: string, table: string, column: string, row: string): string[] {
  const value = valueOf(json);
  if (Array.isArray(value) && value.every((each) => typeof each === 'string')) return value;
  reportDamaged(table, column, row);
  return [];
}

export function storedTextsOrNull(json: string | null, table: string, column: string, row: string): string[] | null {
  return json === null ? null : storedTexts(json, table, column, row);
}

/** The JSON text of a list of texts, as it is stored; `[]` when it is damaged. */
export function storedTextsJson(json: string, table: string, column: string, row: string): string {
  const texts = storedTexts(json, table, column, row);
  return texts.length === 0 ? '[]' : json;
}

/** Header names with their values. */
export function storedHeaders(json: string, table: string, column: string, row: string): Record<string, string> {
  const value = valueOf(json);
  if (isObject(value) && Object.values(value).every((each) => typeof each === 'string'))
    return value as Record<string, string>;
  reportDamaged(table, column, row);
  return {};
}

export function storedFailure(json: string | null, row: string): LastFailure | null {
  if (json === null) return null;
  const value = valueOf(json);
  const is_failure = isObject(value) && isTimeText(value['at']) && isEnd(value) && isExcerpt(value['response_excerpt']);
  if (is_failure) return value as unknown as LastFailure;
  reportDamaged('instances', 'last_failure', row);
  return null;
}

export function storedAttempts(json: string, row: () => string): Attempt[] {
  if (json === '[]') return [];
  const value = valueOf(json);
  if (Array.isArray(value) && value.every(isAttempt)) return value;
  const short = firstSuccessOf(value);
  if (short !== null) return [short];
  reportDamaged('deliveries', 'attempts', row());
  return [];
}

export function storedStatuses(text: string, row: string): SuccessStatuses {
  if (text === '200' || text === '2xx') return text;
  reportDamaged('instances', 'success_statuses', row);
  return '200';
}

export function storedTransport(text: string, row: string): TransportName {
  if (text === 'webhook' || text === 'pull') return text;
  reportDamaged('instances', 'transport', row);
  return 'webhook';
}

/**
 * The runtime of an instance. Null when the row is damaged, or names a runtime that only a later version knows. The
 * instance then gets the pushes of the specification.
 */
export function storedRuntime(json: string, row: string): RuntimeSettings | null {
  const value = valueOf(json);
  if (isObject(value) && isShapedName(value['name']) && isObject(value['options'])) {
    return value as unknown as RuntimeSettings;
  }
  const name = isObject(value) && isObject(value['options']) ? value['name'] : null;
  reportDamaged('instances', 'runtime', row, typeof name === 'string' ? name : undefined);
  return null;
}

export function storedWake(text: string, meeting_id: string, instance_id: string): Wake {
  const wake = WAKES.find((each) => each === text);
  if (wake === undefined) reportDamaged('memberships', 'wake', JSON.stringify([meeting_id, instance_id]));
  return wake ?? 'all';
}

export function storedCatchUp(text: string, meeting_id: string, instance_id: string): CatchUp {
  const catch_up = CATCH_UPS.find((each) => each === text);
  if (catch_up === undefined) reportDamaged('memberships', 'catch_up', JSON.stringify([meeting_id, instance_id]));
  return catch_up ?? 'all';
}

/** The trace of a message. A damaged trace is read as null, because the text becomes a header of the push. */
export function storedTrace(text: string | null, message_no: number): TraceContext | null {
  if (text === null || isTrace(text)) return text;
  reportDamaged('messages', 'trace', String(message_no));
  return null;
}

/** A number that counts something; 0 when the value is damaged. */
export function storedCount(number: number, table: string, column: string, row: string): number {
  if (isCount(number)) return number;
  reportDamaged(table, column, row);
  return 0;
}

/** A time limit in seconds; `otherwise` when the value is damaged, because a limit of 0 would end every attempt. */
export function storedSeconds(
  seconds: number,
  { most, otherwise }: { most: number; otherwise: number },
  column: string,
  row: string,
): number {
  if (Number.isSafeInteger(seconds) && seconds >= 1 && seconds <= most) return seconds;
  reportDamaged('instances', column, row);
  return otherwise;
}

/** A time that has a date; 0 when the value is damaged. */
export function storedTime<Time extends number | null>(ms: Time, table: string, column: string, row: string): Time {
  if (ms === null || Math.abs(ms) <= TIME_MAX) return ms;
  reportDamaged(table, column, row);
  return 0 as Time;
}

/** The JSON text of an object, as the sender wrote it. `{}` when it is damaged, because responses contain this text. */
export function storedObjectJson(json: string, table: string, column: string, row: string): string {
  if (isObject(valueOf(json))) return json;
  reportDamaged(table, column, row);
  return '{}';
}

/** The result that is kept with an idempotency key; null when any of its fields is damaged. */
export function storedResult(json: string, row: string): AcceptedMessage | null {
  const value = valueOf(json);
  if (isResult(value)) return value;
  reportDamaged('idempotency_keys', 'result', row);
  return null;
}

function isResult(value: unknown): value is AcceptedMessage {
  return (
    isObject(value) &&
    typeof value['message_id'] === 'string' &&
    typeof value['meeting_id'] === 'string' &&
    isCount(value['seq']) &&
    Number.isSafeInteger(value['accepted_at']) &&
    Math.abs(value['accepted_at'] as number) <= TIME_MAX &&
    isCount(value['deliveries_queued'])
  );
}

function isAttempt(value: unknown): value is Attempt {
  return (
    isObject(value) &&
    Number.isSafeInteger(value['attempt']) &&
    isTimeText(value['started_at']) &&
    Number.isFinite(value['duration_ms']) &&
    typeof value['response_excerpt'] === 'string' &&
    (value['answered_agents'] === undefined || isTexts(value['answered_agents'])) &&
    isEnd(value)
  );
}

/** Whether the end of an attempt has its three fields, each of its type. */
function isEnd({ outcome, status_code, detail }: Record<string, unknown>): boolean {
  const is_outcome = typeof outcome === 'string' && Object.hasOwn(OUTCOMES, outcome);
  return is_outcome && (status_code === null || Number.isSafeInteger(status_code)) && typeof detail === 'string';
}

/** Earlier versions wrote no excerpt. */
function isExcerpt(value: unknown): boolean {
  return value === undefined || typeof value === 'string';
}

function isTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((each) => typeof each === 'string');
}

function isTimeText(value: unknown): boolean {
  return typeof value === 'string' && !Number.isNaN(Date.parse(value));
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value of a JSON text; undefined when it is none. */
export function valueOf(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return undefined;
  }
}
