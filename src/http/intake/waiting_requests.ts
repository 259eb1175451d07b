import type { IncomingMessage } from 'node:http';
import { IntrusiveList, ListNode } from '../../delivery/intrusive_list.ts';

/** The part that ends the wait of a request. */
export interface Waiter {
  /** Ends the wait early, with a response that says when to ask again. */
  makeRoom(): void;
}

/** A request that waits until something happens, such as a pull. */
export class WaitingRequest extends ListNode {
  readonly holder: Holder;
  readonly request: IncomingMessage;
  readonly waiter: Waiter;

  constructor(holder: Holder, request: IncomingMessage, waiter: Waiter) {
    super();
    this.holder = holder;
    this.request = request;
    this.waiter = waiter;
  }
}

/** A key, with its requests that wait. */
class Holder extends ListNode {
  readonly key_id: string | null;
  /** The request that waits longest is first. */
  readonly waiting = new IntrusiveList<WaitingRequest>();

  constructor(key_id: string | null) {
    super();
    this.key_id = key_id;
  }
}

/**
 * The requests that wait until something happens. Each holds a connection, and one key may make any number of them. So
 * when all connections are in use, one of these requests makes room: the oldest request of the key that has the most of
 * them. A key that fills the service with such requests loses only its own.
 */
export class WaitingRequests {
  readonly #holders = new Map<string | null, Holder>();
  /**
   * The holders by how many of their requests wait, so that the holder with the most requests is found without a
   * search.
   */
  readonly #with_count: IntrusiveList<Holder>[] = [];
  #largest = 0;

  /** @param key_id the key of the request; null while no key is needed */
  add(key_id: string | null, request: IncomingMessage, waiter: Waiter): WaitingRequest {
    let holder = this.#holders.get(key_id);
    if (holder === undefined) this.#holders.set(key_id, (holder = new Holder(key_id)));
    const waiting = new WaitingRequest(holder, request, waiter);
    holder.waiting.add(waiting);
    this.#place(holder);
    return waiting;
  }

  delete(waiting: WaitingRequest): void {
    if (waiting.holder.waiting.delete(waiting)) this.#place(waiting.holder);
  }

  /** Takes the request that makes room; null when none waits. */
  take(): WaitingRequest | null {
    const waiting = this.#with_count[this.#largest]?.first?.waiting.first ?? null;
    if (waiting !== null) this.delete(waiting);
    return waiting;
  }

  /** Lists a holder again after it got or lost a request. */
  #place(holder: Holder): void {
    const count = holder.waiting.size;
    if (count === 0) {
      holder.list?.delete(holder);
      this.#holders.delete(holder.key_id);
    } else {
      (this.#with_count[count] ??= new IntrusiveList()).add(holder);
      this.#largest = Math.max(this.#largest, count);
    }
    // A call changes the count of one holder by one. So when no holder has `#largest` requests any more, the largest
    // count is one lower now.
    if (this.#largest > 0 && (this.#with_count[this.#largest]?.size ?? 0) === 0) this.#largest--;
  }
}
