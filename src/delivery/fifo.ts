/** Shared by all empty queues: there are tens of thousands of them. */
const NOTHING: undefined[] = [];

/** A queue. An array would move all its other items each time an item is taken from the front. */
export class Fifo<T> {
  #items: (T | undefined)[] = NOTHING;
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  peek(): T | undefined {
    return this.#items[this.#head];
  }

  push(item: T): void {
    if (this.#items === NOTHING) this.#items = [item];
    else this.#items.push(item);
  }

  shift(): T | undefined {
    if (this.#head === this.#items.length) return undefined;
    const item = this.#items[this.#head];
    this.#items[this.#head++] = undefined;
    if (this.#head === this.#items.length) {
      this.#items = NOTHING;
      this.#head = 0;
    } else if (this.#head > 1024 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  some(is_wanted: (item: T) => boolean): boolean {
    for (let i = this.#head; i < this.#items.length; i++) if (is_wanted(this.#items[i] as T)) return true;
    return false;
  }

  /** Keeps the first `length` items, and returns the dropped items in order. */
  truncate(length: number): T[] {
    if (this.length <= length) return [];
    return this.#items.splice(this.#head + length) as T[];
  }
}
