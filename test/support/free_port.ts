import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * Below the ports that a system chooses by itself: from 32768 on Linux, from 49152 elsewhere. One of those may be given to
 * somebody else before it is used: every outgoing connection and every server on port 0 gets one.
 */
const FIRST = 16_384;
const COUNT = 16_384;

/** A port on which nobody listens now, for a server that cannot choose one itself. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + randomInt(COUNT);
    if (await isFree(port)) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    await once(server.listen(port, '127.0.0.1'), 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}
