/** The methods of a part of the store that return values instead of promises, for an engine within the process. */
export type Sync<T> = {
  [K in keyof T]: T[K] extends (...args: infer Args) => Promise<infer Result> ? (...args: Args) => Result : never;
};
