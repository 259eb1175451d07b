/**
 * The two parts of undici that pushes need. The whole library would take 12 MiB of memory, for a `fetch` and caches
 * that nobody calls.
 */
declare module 'undici/lib/dispatcher/client.js' {
  import { Client } from 'undici';
  export default Client;
}

declare module 'undici/lib/core/errors.js' {
  import { errors } from 'undici';
  export default errors;
}
