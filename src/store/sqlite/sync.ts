/** The methods of a part of the store without their promises: what an engine inside the process is made of. */
export type Sync<T> = {
  [K in keyof T]: T[K] extends (...args: infer Args) => Promise<infer Result> ? (...args: Args) => Result : never;
};
