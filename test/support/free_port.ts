import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * The ports from which this chooses. They are below the ports that a system chooses by itself: from 32768 on Linux,
 * from 49152 elsewhere. The system gives one of those to every outgoing connection and every server on port 0, so it
 * could give the chosen port to another program before the test uses it.
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

/** Whether nobody listens on a port of 127.0.0.1 now. */
export async function isFree(port: number): Promise<boolean> {
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
