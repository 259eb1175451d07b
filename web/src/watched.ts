import { useEffect, useState } from 'preact/hooks';

/** A value that is looked at: whoever uses it is drawn again when it changes. */
export class Watched<T> {
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

  /** Calls back after each change until the function that it answers is called. */
  watch(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

export function useWatched<T>(watched: Watched<T>): T {
  const [, draw] = useState({});
  const drawn = watched.value;
  useEffect(() => {
    const stop = watched.watch(() => draw({}));
    // It may have changed between the drawing and this.
    if (!Object.is(drawn, watched.value)) draw({});
    return stop;
  }, [watched]);
  return drawn;
}
