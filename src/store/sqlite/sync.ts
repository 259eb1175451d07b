/**
 * The methods of a part of the store, returning values instead of promises, as an engine within the process has them.
 */
export type Sync<T> = {
  [K in keyof T]: T[K] extends (...args: infer Args) => Promise<infer Result> ? (...args: Args) => Result : never;
};
