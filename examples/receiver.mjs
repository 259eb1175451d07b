/** Receives pushes with nothing but Node 20 or later: `WEBHOOK_SECRET=whsec_… node examples/receiver.mjs`. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { createServer } from 'node:http';

const BODY_BYTES_MAX = 2 * 1024 * 1024;
const CLOCKS_APART_S = 300;
const REMEMBER_MS = 3_600_000;

const [, base64 = ''] = (process.env.WEBHOOK_SECRET ?? '').split('whsec_');
const key = Buffer.from(base64, 'base64');
if (key.length < 24) throw new Error('set WEBHOOK_SECRET to the webhook_secret of the instance');
const handled = new Set();

/** Standard Webhooks v1, over the raw bytes. */
function isGenuine({ headers }, body) {
  const timestamp = headers['webhook-timestamp'];
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= CLOCKS_APART_S)) return false;
  const hmac = createHmac('sha256', key).update(`${headers['webhook-id']}.${timestamp}.`).update(body);
  const expected = Buffer.from(`v1,${hmac.digest('base64')}`);
  const given = String(headers['webhook-signature']).split(' ');
  return given.some((text) => {
    const signature = Buffer.from(text);
    return signature.length === expected.length && timingSafeEqual(signature, expected);
  });
}

/** Handles a push. Returns the status of the response. */
async function receive(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request) {
    length += chunk.length;
    // Read a body that is too large to its end, but do not keep it: stopping early would cut off the response.
    if (length <= BODY_BYTES_MAX) chunks.push(chunk);
  }
  if (length > BODY_BYTES_MAX) return 413;
  const body = Buffer.concat(chunks);
  if (!isGenuine(request, body)) return 401;
  const id = request.headers['webhook-id'];
  // A webhook test, known by its signed id, wakes nobody. A push may arrive more than once, always with the same webhook-id.
  if (id.startsWith('dlv_test-') || handled.has(id)) return 200;

  const { meeting_id, message, target_agents } = JSON.parse(body.toString());
  const seq = request.headers['convoke-seq'];
  console.log(`${meeting_id} #${seq} for ${target_agents.join(', ')}: ${JSON.stringify(message)}`);

  handled.add(id);
  setTimeout(() => handled.delete(id), REMEMBER_MS).unref();
  return 200;
}

const server = createServer((request, response) => {
  receive(request).then(
    (status) => response.writeHead(status).end(),
    (error) => {
      console.error(error);
      response.writeHead(500).end();
    },
  );
});
server.listen(Number(process.env.PORT ?? 9000), '127.0.0.1', () => console.log('listening on', server.address()));
