/** MCP Events on two nodes of one PostgreSQL: a subscription ends with its key, whichever node revokes it. */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { rpc, RPC_HEADERS } from '../support/mcp.ts';
import { type Received, Receiver } from '../support/receiver.ts';
import type { Service } from '../support/service.ts';
import { startTwoNodes, untilKnown } from '../support/two_nodes.ts';
import { until } from '../support/wait.ts';

const SECRET = `whsec_${Buffer.from('A'.repeat(32)).toString('base64')}`;
/** How many subscriptions there are: enough for each node to deliver to some of them. */
const SUBSCRIPTIONS = 8;

const typeOf = ({ text }: Received) => (JSON.parse(text) as { type?: string }).type;

/** The signature of Standard Webhooks by SECRET. */
function signatureOf({ headers, body }: Received): string {
  const hmac = createHmac('sha256', Buffer.alloc(32, 'A'));
  hmac.update(`${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.`).update(body);
  return `v1,${hmac.digest('base64')}`;
}

async function subscribe(node: Service, token: string, url: string, agent: string): Promise<string> {
  const params = {
    name: 'meeting.message',
    arguments: { meeting_id: 'm', agent },
    delivery: { mode: 'webhook', url, secret: SECRET },
  };
  const headers = { ...RPC_HEADERS, authorization: `Bearer ${token}` };
  const { text } = await node.post('/mcp', rpc('events/subscribe', params), headers);
  const { result } = JSON.parse(text.slice(text.indexOf('{'))) as { result?: { id: string } };
  assert.ok(result !== undefined, text);
  return result.id;
}

test('every subscription of a key that another node revokes ends, and its program is told once', async (t) => {
  const [first, second] = await startTwoNodes(t);
  second.token = (await first.endOpenMode()).token;
  const { key_id, token } = await first.createKey({ scopes: ['read', 'instance'] });
  await untilKnown(second, token);
  await first.send('m', { content: 'before' });
  const receiver = new Receiver((request) => {
    const { type, challenge } = JSON.parse(request.text) as { type?: string; challenge?: string };
    return type === 'verification' ? { body: JSON.stringify({ challenge }) } : { status: 204 };
  });
  await receiver.up();
  t.after(() => receiver.down());
  const ids: string[] = [];
  for (let i = 0; i < SUBSCRIPTIONS; i++) {
    ids.push(await subscribe(i % 2 === 0 ? first : second, token, receiver.url, `agent-${i}`));
  }
  await first.send('m', { content: 'one' });
  const ofType = (type?: string) => receiver.requests.filter((request) => typeOf(request) === type);
  await until(
    'the message at each of them',
    () => ofType(),
    (pushes) => pushes.length === SUBSCRIPTIONS,
  );
  assert.equal((await second.request('DELETE', `/api/v1/keys/${key_id}/`)).status, 204);
  await until(
    'the end of each of them',
    () => ofType('terminated'),
    (ends) => ends.length >= SUBSCRIPTIONS,
  );
  for (const request of ofType('terminated')) assert.equal(request.headers['webhook-signature'], signatureOf(request));
  for (const node of [first, second]) {
    const { body } = await node.get<{ data: unknown[] }>('/api/v1/instances/');
    assert.deepEqual(body.data, []);
  }
  assert.equal((await second.send('m', { content: 'late' })).deliveries_queued, 0);
  // A stop waits until the node has sent everything.
  await first.close();
  await second.close();
  const ended = ofType('terminated').map(({ headers }) => String(headers['x-mcp-subscription-id']));
  assert.deepEqual(ended.toSorted(), ids.toSorted(), 'once');
});
