import type { Socket } from 'node:net';

/** Node's parser of a connection. `onIncoming` tells the parser what to do next. */
interface Parser {
  onIncoming: () => number;
}

/** What `onIncoming` returns for CONNECT: another protocol follows the head, so the parser stops. */
const IS_NO_MORE_HTTP = 2;

/**
 * Drops all bytes that follow, and reads no request from them. After `bytes_max` bytes it closes the connection:
 * without a limit, a client on this machine could write 700 MB before the connection closes.
 *
 * Node would make a request of every 26 bytes, and an error with a stack for each request when the connection closes.
 * The work for 150,000 such requests took 3 s, in which the service served nobody else. The listener for `data` takes
 * the bytes away from Node's parser, which would not count them.
 */
export function ignoreRest(socket: Socket, bytes_max: number): void {
  const { parser } = socket as { parser?: Parser | null };
  if (parser !== null && parser !== undefined) parser.onIncoming = () => IS_NO_MORE_HTTP;
  let bytes = 0;
  socket.removeAllListeners('data').on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > bytes_max) socket.destroy();
  });
}
