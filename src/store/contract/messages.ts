import type { OwnerScope } from '../../domain/access.ts';
import type { RefusedField, MessageOrigin } from '../../domain/message_origin.ts';
import type { TraceContext } from '../../domain/trace_context.ts';
import type { MessageSearch, Reads, SearchPage } from './search.ts';

/** How long an Idempotency-Key returns the first result. */
export const IDEMPOTENCY_MS = 86_400_000;

/** A message that is about to be stored. */
export interface NewMessage {
  meeting_id: string;
  /**
   * The sender's own JSON text. A string, because a string is copied between threads several times as fast as a buffer.
   */
  message: string;
  /** See `pushTimestamp`. */
  timestamp: string;
  /** Null or empty: the message is for all agents of the meeting. */
  target_agents: string[] | null;
  /** Null when the sender gave neither from_agent nor in_reply_to. */
  origin: NewOrigin | null;
  /** The trace that the message belongs to; null: none. */
  trace: TraceContext | null;
  /** Idempotency keys belong to a sender: `sender` is the key_id, or empty for a request without an API key. */
  idempotency: { key: string; sender: string; fingerprint: string } | null;
  wall_ms: number;
  expires_at: number;
}

/** The fields of `MessageOrigin` that the sender gave. The store computes the hops. */
export interface NewOrigin extends Omit<MessageOrigin, 'hops'> {
  /**
   * The instances for whose agents the sender may speak, in the meetings of these instances; null: any agent.
   * `{ key_id: null, instance_id }` is that one instance, no matter which key owns it.
   */
  speaks_for: OwnerScope | { key_id: null; instance_id: string } | null;
}

export interface AcceptedMessage {
  message_id: string;
  meeting_id: string;
  seq: number;
  accepted_at: number;
  deliveries_queued: number;
}

export interface AcceptedDelivery {
  delivery_id: string;
  instance_id: string;
  /** The JSON text of a list. */
  target_agents: string;
}

export type Accepted =
  | {
      kind: 'accepted';
      message: AcceptedMessage;
      origin: MessageOrigin | null;
      deliveries: AcceptedDelivery[];
    }
  /** A message with the same idempotency key and the same body was accepted before. `message` is that message. */
  | { kind: 'repeated'; message: AcceptedMessage }
  /** The sender used the same idempotency key with another body. */
  | { kind: 'key_reused' }
  /** The sender may not speak for this agent, or the meeting has no such message. Nothing was stored. */
  | { kind: 'refused'; field: RefusedField }
  /** A damaged row keeps this message from being stored; the others of the batch are stored. */
  | { kind: 'damaged' }
  /** Another session of the database has locked the row of the meeting. The messages of other meetings are stored. */
  | { kind: 'locked' };

export interface MessageRow {
  message_id: string;
  seq: number;
  accepted_at: number;
  deliveries_queued: number;
  target_agents: string[] | null;
  origin: MessageOrigin | null;
  /** The sender's own JSON text. */
  message: string;
}

/** A message without its text. */
export interface MessageHead extends AcceptedMessage {
  target_agents: string[] | null;
  origin: MessageOrigin | null;
}

/** A message with its meeting. */
export interface FoundMessage extends MessageRow {
  meeting_id: string;
  /** The trace that the message belongs to; null: none. */
  trace: TraceContext | null;
}

/** A message in a chain of answers, with the beginning of its text. */
export interface MessageBrief {
  message_id: string;
  seq: number;
  accepted_at: number;
  origin: MessageOrigin | null;
  /** The first EXCERPT_CHARS of its JSON text. */
  excerpt: string;
}

/** The most characters of an excerpt. */
export const EXCERPT_CHARS = 200;

export interface MessageStore {
  /** Stores a batch of messages with their deliveries and idempotency records; results in the order of the batch. */
  accept(batch: NewMessage[]): Promise<Accepted[]>;
  /**
   * A page of messages in the order of seq. With `after_seq`, it begins after that message. Otherwise it has the last
   * messages before `before_seq`, or the last of the meeting. The page ends early when the JSON texts of its messages
   * would have more than `chars_max` characters together. One message always fits, however long it is. Null when there
   * is no such meeting.
   */
  list(
    meeting_id: string,
    filter: { after_seq?: number | undefined; before_seq?: number | undefined; limit: number; chars_max: number },
  ): Promise<{ data: MessageRow[]; has_more: boolean } | null>;
  /** Null when there is no such message. */
  get(message_id: string): Promise<FoundMessage | null>;
  /** The message of a delivery, even if the delivery itself is removed already; null when there is no such message. */
  ofDelivery(delivery_id: string): Promise<FoundMessage | null>;
  /** Messages by their text and time, newest first. Reads at most `reads`. */
  search(search: MessageSearch, reads: Reads): Promise<SearchPage<FoundMessage>>;
  /**
   * The message that this message answers, then the message that the answered one answers, and so on: at most `limit`.
   * The chain ends before a message that is not kept any more.
   */
  answeredBy(message_id: string, limit: number): Promise<MessageBrief[]>;
  /**
   * The answers to a message, in order. Answers have no index, so a call looks only through the `scan` messages of the
   * meeting that follow `after_seq`. `next_seq` is the `after_seq` of the next call; null when the call reached the end
   * of the meeting.
   */
  answersTo(
    message_id: string,
    meeting_id: string,
    after_seq: number,
    scan: number,
  ): Promise<{ data: MessageBrief[]; next_seq: number | null }>;
  /** The message_id of the latest message, of all meetings; null when there is none. */
  last(): Promise<string | null>;
  /**
   * The messages that were accepted after a message (null: from the first that is kept), in the order of acceptance.
   * Returns messages of all meetings or of some; with an instance, only messages for it. With several nodes the order
   * holds only within a meeting. So the result may lack a message of another meeting that was stored at the same time
   * as `after`: that message may count as earlier. The result ends early when the lists `target_agents` of its messages
   * would have more than `chars_max` characters together. One message always fits, however long its list is. No index
   * has both the order and the filters, so a call looks only through the `scan` messages that follow `after`: when more
   * of them follow, `has_more` is true.
   */
  since(
    after: string | null,
    filter: {
      meeting_ids?: string[] | undefined;
      instance_id?: string | undefined;
      scan: number;
      limit: number;
      chars_max: number;
    },
  ): Promise<{ data: MessageHead[]; has_more: boolean }>;
}
