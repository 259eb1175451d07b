/**
 * A receiver of pushes: a real HTTP server that remembers every request, byte for byte, and responds as a test wants.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { inTime } from './wait.ts';

export interface Received {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  /** The headers as they arrived: a name, its value, the next name, and so on. */
  raw_headers: string[];
  body: Buffer;
  /** The body as text. */
  text: string;
}

/** The five fields of a push. */
export interface PushBody {
  event: string;
  meeting_id: string;
  message: Record<string, unknown>;
  target_agents: string[];
  timestamp: string;
}

export interface Answer {
  status?: number;
  headers?: Record<string, string>;
  body?: string;
  /** The receiver responds when this resolves. */
  after?: Promise<unknown>;
}

/** `hang`: takes the request and never responds; `reset`: cuts the connection. */
export type Behaviour = Answer | 'hang' | 'reset' | ((request: Received, number: number) => Answer | 'hang' | 'reset');

let receivers = 0;

export class Receiver {
  readonly requests: Received[] = [];
  /** How the receiver responds. A test may change it at any time; 200 by default. */
  behaviour: Behaviour;
  readonly #server = createServer((request, response) => void this.#take(request, response));
  readonly #host: string;
  #port = 0;
  #taken = 0;
  #waiting: { number: number; resolve: () => void }[] = [];

  constructor(behaviour: Behaviour = {}) {
    this.behaviour = behaviour;
    // On Linux each receiver has its own loopback address, so that no other program takes its port while it is down.
    receivers++;
    this.#host =
      process.platform === 'linux'
        ? `127.${64 + (process.pid & 63)}.${receivers >> 8}.${receivers & 255}`
        : '127.0.0.1';
  }

  get origin(): string {
    return `http://${this.#host}:${this.#port}`;
  }

  get url(): string {
    return `${this.origin}/webhook`;
  }

  /** Listens; after `down` at the same address as before. */
  async up(): Promise<void> {
    this.#server.listen(this.#port, this.#host);
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  /** Refuses new connections, and cuts open connections. */
  async down(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  /** The next request that no test has taken yet, in the order of arrival. */
  async next(): Promise<Received> {
    const number = ++this.#taken;
    await this.count(number);
    return this.requests[number - 1] as Received;
  }

  /** Resolves with all requests when there are at least `number` of them. */
  async count(number: number): Promise<Received[]> {
    if (this.requests.length < number) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.push({ number, resolve });
      await inTime(`request ${number} at a receiver that got ${this.requests.length}`, promise);
    }
    return this.requests;
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer);
    } catch {
      // The sender stopped, or was killed, before the end of its request.
      return;
    }
    const body = Buffer.concat(chunks);
    const received: Received = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      raw_headers: request.rawHeaders,
      body,
      text: body.toString(),
    };
    const number = this.requests.push(received);
    for (const waiting of this.#waiting.filter((each) => each.number <= number)) waiting.resolve();
    this.#waiting = this.#waiting.filter((each) => each.number > number);

    const { behaviour } = this;
    const answer = typeof behaviour === 'function' ? behaviour(received, number) : behaviour;
    if (answer === 'hang') return;
    if (answer === 'reset') return void request.socket.resetAndDestroy();
    await answer.after;
    response.writeHead(answer.status ?? 200, answer.headers).end(answer.body ?? '');
  }
}

/** A receiver that is up until the test ends. */
export async function startReceiver(t: TestContext, behaviour?: Behaviour): Promise<Receiver> {
  const receiver = new Receiver(behaviour);
  await receiver.up();
  t.after(() => receiver.down());
  return receiver;
}

/** Reads the body of a push. Numbers that JavaScript cannot hold lose digits. */
export function pushOf(received: Received): PushBody {
  return JSON.parse(received.text) as PushBody;
}

/** The value of a header that must occur exactly once. */
export function headerOf(received: Received, name: string): string {
  const value = received.headers[name];
  assert.ok(typeof value === 'string', `header ${name} is ${String(value)}`);
  return value;
}
