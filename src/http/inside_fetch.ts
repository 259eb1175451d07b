/** Requests that this process makes to its own routes, on behalf of another request. */
import type { FastifyRequest } from 'fastify';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { http } from '../node_http.ts';
import type { App } from './context.ts';
import { EXCHANGE, type Exchange, type Watched } from './intake/connection.ts';

/** The only headers that are passed on: they name the caller and the trace of the outer request. */
const PASSED_ON = [
  'authorization',
  'host',
  'origin',
  'sec-fetch-site',
  'traceparent',
  'tracestate',
  'user-agent',
  'x-forwarded-for',
  'x-forwarded-proto',
] as const;

/**
 * A `fetch` whose requests pass every check of the routes, as if the client of `outer` had made them. So the requests
 * have the key, the address, the rights and the limits of that client, and the audit log names that client. Nothing
 * opens a socket. The requests also work after the connection of `outer` has closed.
 */
export function insideFetch(app: App, outer: FastifyRequest): typeof fetch {
  const passed_on = Object.fromEntries(
    PASSED_ON.map((name) => [name, outer.headers[name]]).filter(([, value]) => typeof value === 'string'),
  ) as Record<string, string>;
  return (input, init = {}) => {
    const { pathname, search } = new URL(input instanceof Request ? input.url : input);
    const own = init.headers as Record<string, string>;
    const body = (init.body ?? null) as string | null;
    const request = new InsideRequest(outer.raw.socket);
    request.method = init.method ?? 'GET';
    request.url = pathname + search;
    request.hold({ ...passed_on, ...own }, body);
    return answerTo(app, request, init.signal ?? null);
  };
}

class InsideRequest extends http.IncomingMessage {
  /** @param body the whole body; null for none */
  hold(headers: Record<string, string>, body: string | null): void {
    const bytes = body === null ? null : Buffer.from(body);
    this.httpVersion = '1.1';
    this.httpVersionMajor = this.httpVersionMinor = 1;
    this.headers = bytes === null ? headers : { ...headers, 'content-length': String(bytes.length) };
    this.rawHeaders = Object.entries(this.headers).flat() as string[];
    this.complete = true;
    if (bytes !== null) this.push(bytes);
    this.push(null);
  }

  /** The socket belongs to the outer request: the end of this inner request does not close it. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    done(error);
  }

  override _read(): void {}
}

/** How many bytes of a stream may wait to be read. */
const STREAM_BYTES_MAX = 65_536;

/**
 * Keeps everything that a route writes to it, except a stream of events: the events are passed on as they arrive. Its
 * socket takes every byte and sends none.
 */
class InsideResponse extends http.ServerResponse {
  readonly chunks: Buffer[] = [];
  /** Called with the first bytes of a stream of events. */
  onStream: (body: ReadableStream<Uint8Array>) => void = () => {};
  #stream: ReadableStreamDefaultController<Uint8Array> | null = null;
  readonly #nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });

  constructor(request: IncomingMessage) {
    super(request);
    // `getHeader` finds the headers that a route gives to `writeHead` only if a header was set before. So one header is
    // set here, and removed.
    this.setHeader('date', '');
    this.removeHeader('date');
    this.assignSocket(this.#nowhere as Socket);
  }

  override write(chunk: string | Uint8Array, ...more: unknown[]): boolean {
    if (!this.#isStream) {
      this.chunks.push(Buffer.from(chunk as string));
      return super.write(chunk, ...(more as [BufferEncoding]));
    }
    const stream = (this.#stream ??= this.#openStream());
    stream.enqueue(Buffer.from(chunk as string));
    super.write(chunk, ...(more as [BufferEncoding]));
    return (stream.desiredSize ?? 0) > 0;
  }

  get #isStream(): boolean {
    return String(this.getHeader('content-type')).startsWith('text/event-stream');
  }

  #openStream(): ReadableStreamDefaultController<Uint8Array> {
    let controller: ReadableStreamDefaultController<Uint8Array> | null = null;
    const body = new ReadableStream<Uint8Array>(
      {
        start: (made) => void (controller = made),
        pull: () => void this.emit('drain'),
        cancel: () => {
          this.#stream = null;
          this.hangUp();
        },
      },
      new ByteLengthQueuingStrategy({ highWaterMark: STREAM_BYTES_MAX }),
    );
    this.onStream(body);
    return controller as unknown as ReadableStreamDefaultController<Uint8Array>;
  }

  /** Ends the stream. With a reason, the stream is cut off, and its reader gets the reason. */
  endStream(reason: unknown = null): void {
    const stream = this.#stream;
    this.#stream = null;
    if (reason === null) stream?.close();
    else stream?.error(reason);
  }

  override end(chunk?: unknown, ...more: unknown[]): this {
    if (typeof chunk === 'string' || chunk instanceof Uint8Array) {
      if (this.#stream === null) this.chunks.push(Buffer.from(chunk as string));
      else this.#stream.enqueue(Buffer.from(chunk as string));
    }
    return super.end(chunk, ...(more as [BufferEncoding]));
  }

  /** Emits the event `close` for the route, as when a connection closes. */
  hangUp(): void {
    this.#nowhere.destroy();
  }
}

function answerTo(app: App, request: InsideRequest, signal: AbortSignal | null): Promise<Response> {
  const response = new InsideResponse(request);
  const exchange: Exchange = {
    request,
    response,
    awaits_continue: false,
    body: null,
    connection: null,
    before: null,
  };
  (request as Watched)[EXCHANGE] = exchange;
  return new Promise((resolve, reject) => {
    const hangUp = (): void => response.hangUp();
    response.on('error', hangUp);
    response.onStream = (body) => resolve(responseOf(response, body));
    response.on('finish', () => {
      response.endStream();
      resolve(responseOf(response));
      hangUp();
    });
    response.on('close', () => {
      signal?.removeEventListener('abort', hangUp);
      exchange.body?.release();
      const reason = (signal?.reason as Error | undefined) ?? new Error('the request was given up');
      response.endStream(reason);
      reject(reason);
    });
    if (signal?.aborted) return hangUp();
    signal?.addEventListener('abort', hangUp, { once: true });
    app.routing(request, response);
  });
}

function responseOf(response: InsideResponse, stream: ReadableStream<Uint8Array> | null = null): Response {
  const { statusCode: status } = response;
  const headers = new Headers();
  for (const [name, value] of Object.entries(response.getHeaders())) headers.set(name, String(value));
  return new Response(status === 204 ? null : (stream ?? Buffer.concat(response.chunks)), { status, headers });
}
