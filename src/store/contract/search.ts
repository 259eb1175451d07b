/**
 * A search reads row after row, because no index has the values that it looks for. So one call reads at most
 * `SEARCH_READS`.
 */
import type { DeliveryState } from '../../domain/delivery.ts';
import type { Outcome } from '../../domain/outcome.ts';
import type { Page, PageRequest } from './page.ts';

/** The most that one call of a search reads. With more, other calls would wait too long for it. */
export interface Reads {
  rows: number;
  bytes: number;
}

export const SEARCH_READS: Reads = { rows: 5_000, bytes: 4 << 20 };

/**
 * A page of the results of a search. When the search ended at its limit, `searched_to` is a time: all rows since that
 * time were read, and `next_cursor` continues there. Then the page may be short, or empty. Otherwise `searched_to` is
 * null. In a list in the order of ids, `searched_to` is an id: all rows up to that id were read.
 */
export interface SearchPage<T, Place extends number | string = number> extends Page<T> {
  searched_to: Place | null;
}

/** When a row was made: at or after `since_ms`, and before `until_ms`. */
export interface MadeWithin {
  since_ms?: number | undefined;
  until_ms?: number | undefined;
}

/** The keys in the row of a delivery. A search by these keys reads no other rows. */
export interface DeliveryKeys {
  instance_id?: string | undefined;
  meeting_id?: string | undefined;
  message_id?: string | undefined;
  /** Only with meeting_id: deliveries of messages after this one. */
  after_seq?: number | undefined;
  /** Only with meeting_id: deliveries of messages before this one. */
  before_seq?: number | undefined;
}

/** A search for deliveries: the keys in their rows, and these conditions. */
export interface DeliverySearch extends DeliveryKeys, PageRequest, MadeWithin {
  state?: DeliveryState | undefined;
  /** The status of the response to an attempt. */
  status_code?: number | undefined;
  /** The outcome of an attempt; of the same attempt as `status_code`, when both are given. */
  outcome?: Outcome | undefined;
  /** An agent that the delivery is for. */
  agent_id?: string | undefined;
  /** A text that the message of the delivery contains: see `formsOf`. */
  text?: string | undefined;
}

export interface MessageSearch extends PageRequest, MadeWithin {
  meeting_id?: string | undefined;
  /** Only messages of these meetings; absent: of all. */
  meeting_ids?: string[] | undefined;
  /** The number of the message in its meeting. With `meeting_id` an index finds the message. */
  seq?: number | undefined;
  text?: string | undefined;
}
