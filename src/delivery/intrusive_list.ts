/**
 * Things in the order in which they came, each of which is taken out at once, by itself.
 *
 * A Set would do it for things that stay. Where thousands come and go in a second it must not be one: when enough has come and
 * gone, V8 moves a Set (or a Map) to a new table and leaves in the former one what it held, and a reference to the new one. As
 * soon as one such table is old for the collector, each that follows is kept until the next full collection, with everything
 * that was in it: requests, answers, bodies. A list leaves nothing behind.
 */
export abstract class ListNode {
  /** The list that it is on. */
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

  /** The one that came before all others. */
  get first(): T | null {
    return this.#first as T | null;
  }

  has(entry: T): boolean {
    return entry.list === this;
  }

  /** Puts it last, and takes it from where it was. */
  add(entry: T): void {
    entry.list?.delete(entry);
    entry.list = this;
    entry.earlier = this.#last;
    if (this.#last === null) this.#first = entry;
    else this.#last.later = entry;
    this.#last = entry;
    this.#size++;
  }

  /** @returns whether it was here */
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

  /** All of them as they are now. */
  toArray(): T[] {
    const entries: T[] = [];
    for (let entry = this.#first; entry !== null; entry = entry.later) entries.push(entry as T);
    return entries;
  }
}
