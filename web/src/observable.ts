import { useEffect, useState } from 'preact/hooks';

/** A value that components use. The components are drawn again when the value changes. */
export class Observable<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set value(value: T) {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of this.#listeners) listener();
  }

  /** Calls back after each change until the returned function is called. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

export function useObservable<T>(observable: Observable<T>): T {
  const [, draw] = useState({});
  const drawn = observable.value;
  useEffect(() => {
    const stop = observable.subscribe(() => draw({}));
    // The value may have changed after the component was drawn.
    if (!Object.is(drawn, observable.value)) draw({});
    return stop;
  }, [observable]);
  return drawn;
}
