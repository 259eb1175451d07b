/**
 * Items in the order of their insertion. Removing an item costs nothing, wherever it is.
 *
 * A Set is as good for items that stay. Where thousands of items enter and leave in a second, a Set leaks memory for a
 * while: after enough changes, V8 moves a Set (or a Map) to a new table. The old table keeps its items and a reference
 * to the new table. When the garbage collector counts one such table as old, all following tables stay until the next
 * full collection. The items of these tables stay too: requests, responses, bodies. A list leaves nothing behind.
 */
export abstract class ListNode {
  /** The list that holds this item. */
  list: IntrusiveList<ListNode> | null = null;
  earlier: ListNode | null = null;
  later: ListNode | null = null;
}

export class IntrusiveList<T extends ListNode> {
  #first: ListNode | null = null;
  #last: ListNode | null = null;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The item that was inserted first. */
  get first(): T | null {
    return this.#first as T | null;
  }

  has(entry: T): boolean {
    return entry.list === this;
  }

  /** Moves the item to the end, or inserts it there. */
  add(entry: T): void {
    entry.list?.delete(entry);
    entry.list = this;
    entry.earlier = this.#last;
    if (this.#last === null) this.#first = entry;
    else this.#last.later = entry;
    this.#last = entry;
    this.#size++;
  }

  /** @returns whether the item was in this list */
  delete(entry: T): boolean {
    if (!this.has(entry)) return false;
    const { earlier, later } = entry;
    if (earlier === null) this.#first = later;
    else earlier.later = later;
    if (later === null) this.#last = earlier;
    else later.earlier = earlier;
    entry.list = entry.earlier = entry.later = null;
    this.#size--;
    return true;
  }

  /** A copy of all items. */
  toArray(): T[] {
    const entries: T[] = [];
    for (let entry = this.#first; entry !== null; entry = entry.later) entries.push(entry as T);
    return entries;
  }
}
