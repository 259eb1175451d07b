/** A test imports this into a service: it keeps the requests in flight in a Set, as most programmers would write it. */
import { subscribe } from 'node:diagnostics_channel';
import type { IncomingMessage, ServerResponse } from 'node:http';

const in_flight = new Set<IncomingMessage>();

subscribe('http.server.request.start', (message) => {
  const { request, response } = message as { request: IncomingMessage; response: ServerResponse };
  in_flight.add(request);
  response.on('close', () => in_flight.delete(request));
});
