/**
 * Node's HTTP, without an `import`. An `import` of `node:http` reads all its exports, and the getters among them load
 * Node's own `fetch`. That takes 27 ms of a start and 12 MiB of memory, although nothing here calls `fetch`.
 */
export const http = process.getBuiltinModule('node:http');
