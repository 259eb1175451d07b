/** What a user of the SDK does, in plain JavaScript, on Node, Deno and Bun: CONVOKE is the address of a running service. */
import { all, ConvokeClient, ConvokeError, createReceiver, rawJson, serveAgent } from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import { createServer } from 'node:http';
import process from 'node:process';

const secret = `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))))}`;
const { promise: pushed, resolve } = Promise.withResolvers?.() ?? later();
const receive = createReceiver({ secret, onPush: resolve });
const { port, close } = await serve(receive);

const convoke = new ConvokeClient({ base_url: process.env.CONVOKE });
const instance_id = `sdk-${crypto.randomUUID()}`;
const webhook_url = `http://127.0.0.1:${port}/convoke`;
const agent_ids = ['anna-planner'];
await convoke.register({ instance_id, instance_name: 'SDK', agent_ids, webhook_url, webhook_secret: secret });
await convoke.joinMeeting({ instance_id, meeting_id: instance_id, agent_ids });
await convoke.sendMessage(instance_id, rawJson('{"content":"Good morning","number":12345678901234567890}'));

const push = await pushed;
check(push.body.includes('12345678901234567890'), `the push carries the digits: ${push.body}`);
check((await convoke.testWebhook(instance_id)).success, 'the webhook test succeeds');
const ids = [];
for await (const instance of all((page) => convoke.listInstances({ q: instance_id, ...page })))
  ids.push(instance.instance_id);
check(ids.includes(instance_id), `the list has it: ${ids}`);
const refused = await convoke.heartbeat('nobody').catch((error) => error);
check(
  refused instanceof ConvokeError && refused.code === 'instance_does_not_exist',
  `a refusal has its code: ${refused}`,
);

await convoke.deleteInstance(instance_id);
await close();

// The same without an address: an agent that pulls, and stops after one push.
const ending = new AbortController();
await convoke.register({ instance_id, instance_name: 'SDK', agent_ids, transport: 'pull' });
await convoke.joinMeeting({ instance_id, meeting_id: instance_id, agent_ids });
await convoke.sendMessage(instance_id, { content: 'Anybody there?' });
const pulled = [];
for await (const { message, respond } of convoke.pull(instance_id, { signal: ending.signal })) {
  pulled.push(message.content);
  respond({ status_code: 200 });
  ending.abort();
}
check(pulled.join() === 'Anybody there?', `it pulls each message once: ${pulled}`);
await convoke.deleteInstance(instance_id);

// And in five lines, from joining to answering.
const answered = new AbortController();
const where = { base_url: process.env.CONVOKE, instance_id, meetings: [instance_id], signal: answered.signal };
const served = serveAgent({ agent_id: 'anna', ...where }, ({ message }) => `You said: ${message.content}`);
await eventually(async () =>
  (await convoke.listMeetingInstances(instance_id)).data.some((one) => one.left_at === null),
);
await convoke.sendMessage(instance_id, { content: 'Good night' });
await eventually(
  async () => (await convoke.listMessages(instance_id)).data.at(-1)?.message.content === 'You said: Good night',
);
answered.abort();
await served;
await convoke.deleteInstance(instance_id);
console.log('heard', push.message.content);

function check(holds, words) {
  if (!holds) throw new Error(words);
}

async function eventually(holds) {
  const until_ms = Date.now() + 30_000;
  while (!(await holds())) {
    check(Date.now() < until_ms, `waited in vain: ${holds}`);
    await new Promise((looked) => setTimeout(looked, 20));
  }
}

/** Each of these runtimes serves a function from Request to Response in its own way. */
async function serve(handler) {
  if (globalThis.Deno !== undefined) {
    const server = globalThis.Deno.serve({ hostname: '127.0.0.1', port: 0, onListen() {} }, handler);
    return { port: server.addr.port, close: () => server.shutdown() };
  }
  if (globalThis.Bun !== undefined) {
    const server = globalThis.Bun.serve({ hostname: '127.0.0.1', port: 0, fetch: handler });
    return { port: server.port, close: () => server.stop(true) };
  }
  const server = createServer(toNodeListener(handler));
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return { port: server.address().port, close: () => server.close().closeAllConnections() };
}

/** Node 20 has no Promise.withResolvers. */
function later() {
  const made = {};
  made.promise = new Promise((done) => (made.resolve = done));
  return made;
}
