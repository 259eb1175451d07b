/**
 * Machines that get pushes, all in one process. It runs until the end of a test, while processes of Convoke start and
 * end, and notes every POST. The path of the webhook is the id of the instance.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Arrival } from './checker.ts';

/** How long a slow machine takes for a response: so long that a push to it is always in flight. */
const SLOW_MS = 5;
/** Turns of the event loop: to accept a connection, to read from it, and to see the end of a request. */
const TURNS = 3;

let received: Arrival[] = [];

const server = createServer({ keepAliveTimeout: 600_000 }, (request, response) => {
  const at_ms = Date.now();
  const { headers, url = '' } = request;
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  // A request whose sender was killed before its end does not count.
  request.on('error', () => {});
  const sender = String(request.socket.remoteAddress);
  const end = (): void => {
    const push = JSON.parse(Buffer.concat(chunks).toString()) as { meeting_id: string; message: { number: number } };
    received.push({
      at_ms,
      answered_ms: Date.now(),
      sender,
      instance_id: url.slice(1),
      meeting_id: push.meeting_id,
      webhook_id: String(headers['webhook-id']),
      message_id: String(headers['convoke-message-id']),
      seq: Number(headers['convoke-seq']),
      attempt: Number(headers['convoke-attempt']),
      number: push.message.number,
    });
    response.end();
  };
  request.on('end', () => {
    if (url.endsWith('slow')) setTimeout(end, SLOW_MS);
    else end();
  });
});

/**
 * Reports all pushes that arrived. Before that, the process reads requests that have arrived but are not read yet: that
 * takes these turns of the event loop.
 */
process.on('message', async () => {
  for (let turn = 0; turn < TURNS; turn++) await nextTurn();
  process.send?.(received);
  received = [];
});
process.once('disconnect', () => process.exit());
server.listen(0, '127.0.0.1', () => process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
