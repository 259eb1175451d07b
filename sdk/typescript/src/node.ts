import type { IncomingMessage, ServerResponse } from 'node:http';
import { BODY_WAS_READ } from './receiver.ts';

/**
 * Lets node:http serve a handler from Request to Response, such as the one that `createReceiver` makes.
 *
 *     createServer(toNodeListener(createReceiver({ secret, onPush }))).listen(9000);
 *
 * The response is held in memory before it is sent. The response is 400 when a request cannot be understood, and 500
 * when the handler throws, or when a body parser has read the request before.
 */
export function toNodeListener(
  handler: (request: Request) => Promise<Response> | Response,
): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  return (incoming, outgoing) => {
    serve(handler, incoming, outgoing).catch((error: unknown) => {
      console.error(error);
      outgoing.destroy();
    });
  };
}

async function serve(
  handler: (request: Request) => Promise<Response> | Response,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const request = toRequest(incoming);
  const response =
    request === null ? new Response('bad request\n', { status: 400 }) : await runHandler(handler, request, incoming);
  await writeResponse(response, incoming, outgoing);
}

async function runHandler(
  handler: (request: Request) => Promise<Response> | Response,
  request: Request,
  incoming: IncomingMessage,
): Promise<Response> {
  try {
    // Otherwise the handler would get an empty body.
    if (request.body !== null && incoming.readableDidRead) throw new TypeError(BODY_WAS_READ);
    return await handler(request);
  } catch (error) {
    console.error(error);
    return new Response('internal error\n', { status: 500 });
  }
}

/** Null for a request that Node accepts and that a Request cannot represent: an invalid URL, or a method like TRACE. */
function toRequest(incoming: IncomingMessage): Request | null {
  const headers = new Headers();
  const method = incoming.method ?? 'GET';
  const scheme = 'encrypted' in incoming.socket ? 'https' : 'http';
  try {
    for (let i = 0; i + 1 < incoming.rawHeaders.length; i += 2) {
      headers.append(incoming.rawHeaders[i]!, incoming.rawHeaders[i + 1]!);
    }
    const url = new URL(`${scheme}://${incoming.headers.host ?? 'localhost'}${incoming.url}`);
    if (method === 'GET' || method === 'HEAD') return new Request(url, { method, headers });
    // `init` is a variable, because a stream as body needs `duplex`, which the DOM's type RequestInit does not know.
    const init = { method, headers, body: toStream(incoming), duplex: 'half' as const };
    return new Request(url, init);
  } catch {
    return null;
  }
}

/** Pulls from the socket only as fast as the handler reads. */
function toStream(incoming: IncomingMessage): ReadableStream<Uint8Array> {
  // The stream never calls `return` of this iterator: that would destroy the socket, and the response with it.
  const chunks = incoming[Symbol.asyncIterator]() as AsyncIterator<Uint8Array>;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
    },
    { highWaterMark: 0 },
  );
}

async function writeResponse(response: Response, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const body = new Uint8Array(await response.arrayBuffer());
  outgoing.statusCode = response.status;
  outgoing.setHeaders(response.headers);
  // The rest of the body is not read. Otherwise the sender could send it for ever.
  if (!incoming.complete) outgoing.setHeader('connection', 'close');
  outgoing.end(body);
}
