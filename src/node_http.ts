/**
 * Node's HTTP. An `import` of `node:http` reads all its exports, and the getters among them load Node's own `fetch`: 27
 * ms of a start and 12 MiB of memory, although nothing here calls it.
 */
export const http = process.getBuiltinModule('node:http');
