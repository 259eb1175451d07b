/**
 * Subscribes to a meeting with the MCP client of the AI SDK, and takes the events with its handler, which verifies them.
 * Reads from its input what to do next: the address of the service after a restart, `unsubscribe`, or `end`.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const [directory, url, token, meeting_id] = process.argv.slice(2);
const module = createRequire(`${directory}/`).resolve('@ai-sdk/mcp');
const { createMCPClient, experimental_createMCPEventWebhook } = await import(pathToFileURL(module).href);

const kept = new Map();
const store = {
  get: async (key) => kept.get(key),
  getById: async (id) => [...kept.values()].find((each) => each.id === id),
  set: async (subscription) => void kept.set(subscription.key, subscription),
  update: async (key, patch) => void kept.set(key, { ...kept.get(key), ...patch }),
  delete: async (key) => void kept.delete(key),
};
const handle = experimental_createMCPEventWebhook({
  store,
  onEvent: async ({ event }) => console.log(`event ${event.data.message.content}`),
  onTerminated: async ({ termination }) => console.log(`terminated ${termination.error.code}`),
  onError: (error) => console.error(error),
});
const server = createServer(async (request, response) => {
  const chunks = await request.toArray();
  const { status, headers, body } = await handle(
    new Request(`http://127.0.0.1${request.url}`, {
      method: request.method,
      headers: request.headers,
      body: Buffer.concat(chunks),
    }),
  );
  response.writeHead(status, Object.fromEntries(headers));
  response.end(body === null ? undefined : Buffer.from(await new Response(body).arrayBuffer()));
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');

const connect = (to) =>
  createMCPClient({
    transport: { type: 'http', url: to, headers: { authorization: `Bearer ${token}` } },
    experimental_events: { store },
  });
let client = await connect(url);
const { events } = await client.experimental_events.list();
console.log(`listed ${events.map(({ name }) => name).join(' ')}`);
const { id } = await client.experimental_events.subscribe({
  name: 'meeting.message',
  arguments: { meeting_id },
  delivery: { mode: 'webhook', url: `http://127.0.0.1:${server.address().port}/events`, allowInsecureLocalhost: true },
});
console.log(`subscribed ${id}`);
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'end') process.exit(0);
  if (line === 'unsubscribe') break;
  client = await connect(line);
  const [subscription] = kept.values();
  const secret = `whsec_${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64')}`;
  await store.update(subscription.key, { delivery: { ...subscription.delivery, secret } });
  await client.experimental_events.refresh({ id });
  console.log('refreshed');
}
await client.experimental_events.unsubscribe({ id });
await client.close();
server.close();
server.closeAllConnections();
console.log('unsubscribed');
process.exit(0);
