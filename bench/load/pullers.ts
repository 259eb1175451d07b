/**
 * Machines that pull, all in one process. Each machine has one connection: it pulls, counts the pushes, and pulls again
 * with the results. Raw sockets and a prepared head save processor time.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Arrivals, type Received, sentUs } from './arrivals.ts';
import { serveCommands } from './channel.ts';
import { type Fleet, membersOf } from './fleet.ts';

export interface Pulling {
  /** The ports of the nodes. The first machine pulls from the first node, the next machine from the next node. */
  ports: number[];
  fleet: Fleet;
  /** How long a pull waits, in seconds. */
  wait_s: number;
}

interface PulledPush {
  delivery_id: string;
  attempt: number;
  headers: Record<string, string>;
  body: string;
}

/** The most pushes that a pull may ask for. */
const PUSHES_MAX = 256;
const CONNECTING_MAX = 64;
const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
/** Finds the meeting's id in the body of a push. */
const MEETING = /"meeting_id":"([^"]*)"/;

/**
 * A node responds 503 while it cannot reach the node that delivers to the instance. Then the machine waits this long.
 */
const RETRY_AFTER_MS = 1_000;

const arrivals = new Arrivals();
/** Pulls whose response was not 200. */
let refused = 0;
let machines: Machine[] = [];

class Machine {
  readonly #instance_id: string;
  readonly #head: string;
  readonly #wait_s: number;
  readonly socket: Socket;
  readonly #connected = Promise.withResolvers<void>();
  #rest: Buffer | null = null;
  /** The results of the pushes in the last response. */
  #results = '';
  #is_known = false;

  constructor(instance_id: string, port: number, wait_s: number) {
    this.#instance_id = instance_id;
    this.#wait_s = wait_s;
    this.#head =
      `POST /api/v1/instances/${instance_id}/pull/ HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n` +
      'content-type: application/json\r\nuser-agent: bench\r\ncontent-length: ';
    this.socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.socket.on('data', (chunk) => this.#read(chunk));
    this.socket.on('error', (error) => this.#connected.reject(error));
    this.socket.on('close', () => this.#connected.reject(new Error(`${instance_id} lost its connection`)));
  }

  /** Resolves after the first pull, which does not wait: from then on the service knows the machine. */
  async begin(): Promise<void> {
    await once(this.socket, 'connect');
    this.#ask();
    await this.#connected.promise;
  }

  #ask(): void {
    const body = `{"results":[${this.#results}],"max":${PUSHES_MAX},"wait_s":${this.#is_known ? this.#wait_s : 0}}`;
    this.socket.write(`${this.#head}${body.length}\r\n\r\n${body}`, 'latin1');
  }

  #read(data: Buffer): void {
    const chunk = this.#rest === null ? data : Buffer.concat([this.#rest, data]);
    this.#rest = null;
    const response = responseIn(chunk);
    if (response === null) {
      this.#rest = chunk;
      return;
    }
    if (response.status !== '200') {
      refused++;
      setTimeout(() => this.#ask(), RETRY_AFTER_MS);
      return;
    }
    const { pushes } = JSON.parse(response.body.toString()) as { pushes: PulledPush[] };
    for (const push of pushes) this.#note(push);
    this.#results = pushes
      .map(({ delivery_id, attempt }) => `{"delivery_id":"${delivery_id}","attempt":${attempt},"status_code":200}`)
      .join();
    this.#is_known = true;
    this.#ask();
    this.#connected.resolve();
  }

  #note({ attempt, headers, body }: PulledPush): void {
    arrivals.note({
      sent_us: sentUs(Buffer.from(body), 0),
      lane: `${this.#instance_id} ${MEETING.exec(body)?.[1]}`,
      seq: Number(headers['convoke-seq']),
      is_first_attempt: attempt === 1,
    });
  }
}

/** @returns null until the whole response has arrived */
function responseIn(chunk: Buffer): { status: string; body: Buffer } | null {
  const head_end = chunk.indexOf(HEAD_END);
  if (head_end === -1) return null;
  const head = chunk.toString('latin1', 0, head_end).toLowerCase();
  const status = head.slice(9, 12);
  let at = head_end + HEAD_END.length;
  const length = /content-length: (\d+)/.exec(head);
  if (length !== null) {
    const end = at + Number(length[1]);
    return end > chunk.length ? null : { status, body: chunk.subarray(at, end) };
  }
  const parts: Buffer[] = [];
  for (;;) {
    const line_end = chunk.indexOf(LINE_END, at);
    if (line_end === -1) return null;
    const size = Number.parseInt(chunk.toString('latin1', at, line_end), 16);
    const begin = line_end + LINE_END.length;
    at = begin + size + LINE_END.length;
    if (at > chunk.length) return null;
    if (size === 0) return { status, body: Buffer.concat(parts) };
    parts.push(chunk.subarray(begin, begin + size));
  }
}

export type Pullers = typeof commands;

const commands = serveCommands({
  /** Resolves when each machine has got its first response and pulls again. */
  async start({ ports, fleet, wait_s }: Pulling): Promise<void> {
    refused = 0;
    const instance_ids = [...new Set([...membersOf(fleet)].map(({ instance_id }) => instance_id))];
    const left = instance_ids.entries();
    const work = async (): Promise<void> => {
      for (const [index, instance_id] of left) {
        const machine = new Machine(instance_id, ports[index % ports.length]!, wait_s);
        machines.push(machine);
        await machine.begin();
      }
    };
    await Promise.all(Array.from({ length: CONNECTING_MAX }, work));
  },
  /** Closes the connections of all machines. */
  stop(): void {
    for (const { socket } of machines) socket.destroy();
    machines = [];
  },
  refused: (): number => refused,
  reset: ({ lanes }: { lanes: boolean }): void => arrivals.reset({ lanes }),
  count: (): number => arrivals.count,
  received: (): Received => arrivals.received(),
});
