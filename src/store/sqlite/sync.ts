/** The methods of a part of the store, as a synchronous engine has them: they return values instead of promises. */
export type Sync<T> = {
  [K in keyof T]: T[K] extends (...args: infer Args) => Promise<infer Result> ? (...args: Args) => Result : never;
};
