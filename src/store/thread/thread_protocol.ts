/** The messages between the thread that calls the store and the thread of its engine. */
import { type FieldError, Problem, type ProblemCode } from '../../domain/problem.ts';
import type { RefusedField, MessageOrigin } from '../../domain/message_origin.ts';
import type { Accepted, AcceptedDelivery, AcceptedMessage } from '../contract/messages.ts';
import type { Audited } from '../contract/audit.ts';
import type { AuditedStore } from '../store.ts';
import { StoreError } from '../store_error.ts';

/** The part of the store that a call is for. */
export type StoreName = keyof AuditedStore | 'messages' | 'audit' | 'cluster' | 'file' | 'storage';

/** One call of a store method, as it travels to the engine's thread. */
export interface Call {
  id: number;
  store: StoreName;
  method: string;
  args: unknown[];
  /** The author for the entry in the audit log, if the call changes something. */
  audited?: Audited;
}

/** The reply to a call. Errors are plain data, because the copy between threads loses the class of an object. */
export interface Reply {
  id: number;
  value?: unknown;
  problem?: { code: ProblemCode; detail: string; errors: FieldError[] | undefined };
  store_error?: { code: string; message: string };
  defect?: string;
}

/** Rows of one shape, as they travel: the names of their fields once, and all values one after the other. */
interface Packed {
  fields: string[];
  values: unknown[];
}

/**
 * Packs calls whose list is long under load. To copy a settlement between threads as an object takes both sides 3.5 µs
 * together. Packed, with its attempts as text, it takes 1.4 µs (300 settlements, Node 24.21).
 */
export function packCall(call: Call): Call {
  const [rows, ...others] = call.args as [object[], ...unknown[]];
  return isLong(call.method) ? { ...call, args: [packed(rows), ...others] } : call;
}

/** Restores a call that `packCall` packed. */
export function unpackCall(call: Call): Call {
  const [rows, ...others] = call.args as [Packed, ...unknown[]];
  return isLong(call.method) ? { ...call, args: [unpacked(rows), ...others] } : call;
}

/** Whether the first argument is a list that is long under load. */
function isLong(method: string): boolean {
  return method === 'accept' || method === 'settle';
}

/**
 * The fields of a stored message that travel. Without this list, `packed` would take the fields of the first message.
 * But that message may be a result that was stored with an idempotency key, and such a result may have other fields.
 */
const MESSAGE_FIELDS: (keyof AcceptedMessage)[] = [
  'message_id',
  'meeting_id',
  'seq',
  'accepted_at',
  'deliveries_queued',
];

/** The results of an accept, packed: the stored messages, and the deliveries of the new messages among them. */
interface PackedAccepted {
  kinds: Accepted['kind'][];
  /** For each message that has an origin: the place of its result, and the origin. Most messages have none. */
  origins: [place: number, MessageOrigin][];
  refused: [place: number, RefusedField][];
  messages: Packed;
  /** For each result, the number of its deliveries. */
  delivery_counts: number[];
  deliveries: Packed;
}

/**
 * Packs the replies that are long: the deliveries of messages, and pages of lanes. The result for a message with one
 * delivery takes 8.6 µs as objects and 1.5 µs packed (100 messages, Node 24.21).
 */
export function packReply({ method }: Call, reply: Reply): Reply {
  if (reply.value === undefined) return reply;
  switch (method) {
    case 'accept':
      return { ...reply, value: packedAccepted(reply.value as Accepted[]) };
    case 'loadLanes':
      return { ...reply, value: (reply.value as object[][]).map((rows) => packed(rows)) };
    default:
      return reply;
  }
}

/**
 * Restores a reply that `packReply` packed.
 * @param method the method of the call
 */
export function unpackReply(method: string, reply: Reply): Reply {
  if (reply.value === undefined) return reply;
  switch (method) {
    case 'accept':
      return { ...reply, value: unpackedAccepted(reply.value as PackedAccepted) };
    case 'loadLanes':
      return { ...reply, value: (reply.value as Packed[]).map(unpacked) };
    default:
      return reply;
  }
}

function packedAccepted(results: Accepted[]): PackedAccepted {
  const deliveriesOf = (result: Accepted) => (result.kind === 'accepted' ? result.deliveries : []);
  return {
    kinds: results.map(({ kind }) => kind),
    origins: originsIn(results),
    refused: refusedIn(results),
    messages: packed(
      results.flatMap((result) => ('message' in result ? [result.message] : [])),
      MESSAGE_FIELDS,
    ),
    delivery_counts: results.map((result) => deliveriesOf(result).length),
    deliveries: packed(results.flatMap(deliveriesOf)),
  };
}

function originsIn(results: Accepted[]): PackedAccepted['origins'] {
  const origins: PackedAccepted['origins'] = [];
  for (const [i, result] of results.entries()) {
    if (result.kind === 'accepted' && result.origin !== null) origins.push([i, result.origin]);
  }
  return origins;
}

function refusedIn(results: Accepted[]): PackedAccepted['refused'] {
  const refused: PackedAccepted['refused'] = [];
  for (const [i, result] of results.entries()) if (result.kind === 'refused') refused.push([i, result.field]);
  return refused;
}

function unpackedAccepted({ kinds, delivery_counts, ...lists }: PackedAccepted): Accepted[] {
  const origins = new Map(lists.origins);
  const refused = new Map(lists.refused);
  const messages = unpacked(lists.messages) as AcceptedMessage[];
  const deliveries = unpacked(lists.deliveries) as AcceptedDelivery[];
  let messages_at = 0;
  let deliveries_at = 0;
  return kinds.map((kind, i) => {
    if (kind === 'key_reused' || kind === 'damaged' || kind === 'locked') return { kind };
    if (kind === 'refused') return { kind, field: refused.get(i)! };
    const message = messages[messages_at++]!;
    if (kind === 'repeated') return { kind, message };
    const own = deliveries.slice(deliveries_at, (deliveries_at += delivery_counts[i]!));
    return { kind, message, origin: origins.get(i) ?? null, deliveries: own };
  });
}

function packed(rows: object[], fields = Object.keys(rows[0] ?? {})): Packed {
  const values: unknown[] = [];
  for (const row of rows) {
    for (const field of fields) values.push((row as Record<string, unknown>)[field]);
  }
  return { fields, values };
}

function unpacked({ fields, values }: Packed): object[] {
  const rows: object[] = [];
  for (let i = 0; i < values.length;) {
    const row: Record<string, unknown> = {};
    for (const field of fields) row[field] = values[i++];
    rows.push(row);
  }
  return rows;
}

/** How many items a call has. */
export function itemsIn({ method, args }: Call): number {
  return isLong(method) ? (args[0] as unknown[]).length : 1;
}

/** The replies to the calls of one transaction. */
export interface Answer {
  replies: Reply[];
  /** How many messages, settlements and other requests the transaction has. */
  items: number;
  duration_ms: number;
}

/** The error in a failed reply; null when the call succeeded. */
export function errorOf(reply: Omit<Reply, 'id'>): Error | null {
  if (reply.problem !== undefined) {
    const { code, detail, errors } = reply.problem;
    return new Problem(code, detail, errors === undefined ? {} : { errors });
  }
  if (reply.store_error !== undefined) return new StoreError(reply.store_error.code, reply.store_error.message);
  if (reply.defect !== undefined) return new Error(`the store failed: ${reply.defect}`);
  return null;
}

/** An error as the fields of a reply: the code and the message of a StoreError, the stack of a defect. */
export function failureOf(error: unknown): Omit<Reply, 'id'> {
  if (error instanceof Problem) {
    return { problem: { code: error.code, detail: error.message, errors: error.errors } };
  }
  if (error instanceof StoreError) return { store_error: { code: error.code, message: error.message } };
  return { defect: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}

/**
 * Whether an audited call changed something. A call returns null when the row does not exist or the caller may not
 * change it; `remove` returns `existed` instead.
 */
export function hasChanged(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !('existed' in value && value.existed === false);
}
