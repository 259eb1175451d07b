/**
 * The machines that pushes go to, all in one process on one port; the path says which one is meant. As cheap as can be:
 * no HTTP server, one look at the head, one write.
 *
 * `/push/N` answers 200 at once, `/else/N` does and is not counted, `/hang/N` takes the request and says nothing.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { serveCommands } from './channel.ts';
import { type Distribution, nowUs, Samples } from '../measure/figures.ts';
import { ID_DIGITS } from './fleet.ts';

const ANSWER = Buffer.from(
  'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}',
);
const HEAD_END = Buffer.from('\r\n\r\n');
/** In the message: the time of its sending, see load.ts. */
const SENT_AT = Buffer.from('"sent_at":"');
const SENT_AT_DIGITS = 16;
/** Where the meeting's id stands in a push's body. */
const MEETING_AT = '{"event":"new_message","meeting_id":"'.length;
const MEETING_CHARS = ID_DIGITS + 1;
const ZERO = 0x30;

export interface Received {
  pushes: number;
  /** Microseconds, see nowUs; 0 before the first. */
  first_us: number;
  last_us: number;
  /** First attempts that came after one of a later message to the same instance in the same meeting. */
  out_of_order: number;
  /** Pushes of a message that was seen before by the instance. */
  repeated: number;
  hung: number;
  /** Milliseconds from the message's sending to its arrival. */
  latency_ms: Distribution;
}

const samples = new Samples();
const sockets = new Set<Socket>();
/** The last seq by lane: the path of the instance and the meeting. */
let last_seqs = new Map<string, number>();
let received = nothingReceived();

function nothingReceived(): Omit<Received, 'latency_ms'> {
  return { pushes: 0, first_us: 0, last_us: 0, out_of_order: 0, repeated: 0, hung: 0 };
}

function take(path: string, head: string, chunk: Buffer, body_at: number): void {
  const now_us = nowUs();
  received.pushes++;
  if (received.first_us === 0) received.first_us = now_us;
  received.last_us = now_us;
  const at = chunk.indexOf(SENT_AT, body_at);
  if (at !== -1) {
    let sent_us = 0;
    for (let i = at + SENT_AT.length, end = i + SENT_AT_DIGITS; i < end; i++) sent_us = sent_us * 10 + chunk[i]! - ZERO;
    samples.add((now_us - sent_us) / 1000);
  }
  const seq_at = head.indexOf('convoke-seq: ');
  if (seq_at === -1) return;
  const seq = Number.parseInt(head.slice(seq_at + 13, seq_at + 29), 10);
  const meeting_at = body_at + MEETING_AT;
  const lane = path + chunk.toString('latin1', meeting_at, meeting_at + MEETING_CHARS);
  const last_seq = last_seqs.get(lane) ?? 0;
  if (seq > last_seq) last_seqs.set(lane, seq);
  else if (seq === last_seq) received.repeated++;
  else if (head.includes('convoke-attempt: 1\r\n')) received.out_of_order++;
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
      const length_at = head.indexOf('content-length: ');
      const end = body_at + (length_at === -1 ? 0 : Number.parseInt(head.slice(length_at + 16, length_at + 28), 10));
      if (chunk.length < end) break;
      const path = head.slice(5, head.indexOf(' ', 5));
      if (path.startsWith('/hang')) received.hung++;
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
  /** Listens, at the same port as before when it has been down. */
  async up({ port }: { port: number }) {
    server.listen(port, '127.0.0.1', 4096);
    await once(server, 'listening');
    return { port: (server.address() as AddressInfo).port };
  },
  /** From here on connections are refused. */
  async down() {
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  },
  /** A name server that says nothing. */
  async nameServer() {
    name_server.on('message', () => {});
    name_server.bind(0, '127.0.0.1');
    await once(name_server, 'listening');
    return { address: `127.0.0.1:${name_server.address().port}` };
  },
  /** Counts from nothing; the order of lanes goes on unless a new service begins. */
  reset({ lanes }: { lanes: boolean }) {
    received = nothingReceived();
    samples.clear();
    if (lanes) last_seqs = new Map();
  },
  count(): number {
    return received.pushes;
  },
  received(): Received {
    return { ...received, latency_ms: samples.distribution() };
  },
});
