/**
 * The receivers, all in one process on one port; the path names the receiver. To save processor time, this is no HTTP
 * server: it reads a few headers from the head of a request, and writes a fixed response. `/push/N` responds 200 at
 * once. `/else/N` also responds 200 at once, and is not counted. `/hang/N` never responds, except after the command
 * `hang` with `on: false`.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { serveCommands } from './channel.ts';
import { Arrivals, type Received, sentUs } from './arrivals.ts';
import { type Account, Arrived, type Slow } from './account.ts';
import { ID_DIGITS } from './fleet.ts';
import type { SentMessage } from './load.ts';
import { nowUs } from '../measure/figures.ts';

const ANSWER = Buffer.from(
  'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}',
);
const HEAD_END = Buffer.from('\r\n\r\n');
/** Where the meeting's id begins in the body of a push. */
const MEETING_AT = '{"event":"new_message","meeting_id":"'.length;
const MEETING_CHARS = ID_DIGITS + 1;

const arrivals = new Arrivals();
/** Where and when each message arrived; null unless the last `reset` had `each`. */
let arrived: Arrived | null = null;
let hangs = true;
const sockets = new Set<Socket>();

function take(path: string, head: string, chunk: Buffer, body_at: number): void {
  const seq_at = head.indexOf('convoke-seq: ');
  const meeting_at = body_at + MEETING_AT;
  arrived?.note(path, chunk, body_at, nowUs());
  arrivals.note({
    sent_us: sentUs(chunk, body_at),
    lane: path + chunk.toString('latin1', meeting_at, meeting_at + MEETING_CHARS),
    seq: seq_at === -1 ? null : Number.parseInt(head.slice(seq_at + 13, seq_at + 29), 10),
    is_first_attempt: head.includes('convoke-attempt: 1\r\n'),
  });
}

const server = createServer({ noDelay: true }, (socket) => {
  let rest: Buffer | null = null;
  sockets.add(socket);
  socket.on('error', () => socket.destroy());
  socket.on('close', () => sockets.delete(socket));
  socket.on('data', (data) => {
    let chunk = rest === null ? data : Buffer.concat([rest, data]);
    rest = null;
    while (chunk.length > 0) {
      const head_end = chunk.indexOf(HEAD_END);
      if (head_end === -1) break;
      const head = chunk.toString('latin1', 0, head_end + 2);
      const body_at = head_end + 4;
      // Programs in Go write `Content-Length`.
      const length_at = Math.max(head.indexOf('content-length: '), head.indexOf('Content-Length: '));
      const end = body_at + (length_at === -1 ? 0 : Number.parseInt(head.slice(length_at + 16, length_at + 28), 10));
      if (chunk.length < end) break;
      const path = head.slice(5, head.indexOf(' ', 5));
      if (hangs && path.startsWith('/hang')) arrivals.hung++;
      else {
        if (path.startsWith('/push')) take(path, head, chunk, body_at);
        socket.write(ANSWER);
      }
      chunk = chunk.subarray(end);
    }
    if (chunk.length > 0) rest = chunk;
  });
});

const name_server = createSocket('udp4');

export type Receivers = typeof commands;

const commands = serveCommands({
  /** Starts to listen. After `down`, the caller gives the same port again. */
  async up({ port }: { port: number }) {
    server.listen(port, '127.0.0.1', 4096);
    await once(server, 'listening');
    return { port: (server.address() as AddressInfo).port };
  },
  /** Stops listening, and destroys all connections. */
  async down() {
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  },
  /** Starts a name server that never responds. */
  async nameServer() {
    name_server.on('message', () => {});
    name_server.bind(0, '127.0.0.1');
    await once(name_server, 'listening');
    return { address: `127.0.0.1:${name_server.address().port}` };
  },
  /** Sets whether `/hang/N` hangs; until the first call it hangs. */
  hang({ on }: { on: boolean }): void {
    hangs = on;
  },
  reset({ lanes, each }: { lanes: boolean; each?: boolean }): void {
    arrivals.reset({ lanes });
    arrived = each === true ? new Arrived() : null;
  },
  /** Where these messages have arrived since a `reset` with `each`. */
  account({ messages, per_message }: { messages: SentMessage[]; per_message: number }): Account {
    if (arrived === null) throw new Error('reset did not ask for each message');
    return arrived.account(messages, per_message, nowUs());
  },
  /** Which of these messages took longest, since a `reset` with `each`. */
  slowest({ messages, most }: { messages: SentMessage[]; most: number }): Slow[] {
    if (arrived === null) throw new Error('reset did not ask for each message');
    return arrived.slowest(messages, most);
  },
  count: (): number => arrivals.count,
  received: (): Received => arrivals.received(),
});
