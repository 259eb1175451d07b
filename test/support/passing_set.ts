/** Imported into a service: keeps the requests in flight in a Set, as most people would write it. */
import { subscribe } from 'node:diagnostics_channel';
import type { IncomingMessage, ServerResponse } from 'node:http';

const under_way = new Set<IncomingMessage>();

subscribe('http.server.request.start', (message) => {
  const { request, response } = message as { request: IncomingMessage; response: ServerResponse };
  under_way.add(request);
  response.on('close', () => under_way.delete(request));
});
