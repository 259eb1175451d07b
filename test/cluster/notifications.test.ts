/**
 * The broadcasts of nodes fit into a NOTIFY, and arrive unchanged and once. Nodes do not believe a NOTIFY of another
 * program, and go on working.
 */
import assert from 'node:assert/strict';
import { randomBytes, randomUUID } from 'node:crypto';
import fc from 'fast-check';
import pg from 'pg';
import { test, type TestContext } from 'node:test';
import { FeedRelay } from '../../src/feed/relay.ts';
import { CHANNEL, type Message, NodeMessages } from '../../src/store/postgres/cluster/notifications.ts';
import { makeDataKey } from '../../src/store/secrets/secret_cipher.ts';
import type { Change } from '../../src/store/contract/cluster.ts';
import { openStream } from '../support/event_stream.ts';
import { openPostgresHere } from '../support/engines.ts';
import { makeDatabase } from '../support/postgres.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';
import { VirtualClock } from '../support/virtual_clock.ts';
import { BROADCAST_BYTES_MAX } from '../../src/store/contract/cluster.ts';

/** The most bytes in the payload of a NOTIFY: PostgreSQL refuses 8,000. */
const PAYLOAD_BYTES_MAX = 7_999;

const LONGEST_ID = '\u0001'.repeat(200);
const STORED: Message = { kind: 'stored', first_no: Number.MAX_SAFE_INTEGER - 1, last_no: Number.MAX_SAFE_INTEGER };
const MESSAGES: Message[] = [
  STORED,
  { kind: 'instance', instance_id: LONGEST_ID, lifts: true, requeued: false },
  { kind: 'keys' },
  { kind: 'broadcast', topic: 'topic', text: `{"a"}\n\n${'"'.repeat(BROADCAST_BYTES_MAX - 7)}` },
  { kind: 'broadcast', topic: 'topic', text: '' },
];

const KEY = makeDataKey();
const NEXT_KEY = makeDataKey();

const nodeOf = (...keys: (typeof KEY)[]) => new NodeMessages(randomUUID(), () => keys);

for (const message of MESSAGES) {
  test(`of ${message.kind}: other nodes receive it unchanged, once, and its sender does not`, () => {
    const [speaker, listener] = [nodeOf(KEY), nodeOf(KEY)];
    const [payload = ''] = speaker.payloadsOf(message);
    assert.ok(Buffer.byteLength(payload) <= PAYLOAD_BYTES_MAX, `${Buffer.byteLength(payload)} bytes`);
    assert.deepEqual(listener.messageOf(payload), { message, unsigned: false });
    assert.equal(listener.messageOf(payload), null, 'a repetition');
    assert.equal(speaker.messageOf(payload), null);
  });

  test(`of ${message.kind}: without the data key nobody says it, changes it, or says it in another name`, () => {
    const [speaker, listener] = [nodeOf(KEY), nodeOf(KEY)];
    const [strange = ''] = nodeOf(makeDataKey()).payloadsOf(message);
    assert.equal(listener.messageOf(strange), null);
    const [payload = ''] = speaker.payloadsOf(message);
    // No MAC covers the numbers of `stored`, because the database adds them. Whatever they are, a MAC allows one read.
    const said = payload.replace(/"first_no".*/, '');
    for (let at = 0; at < said.length; at += 7) {
      const changed = payload.slice(0, at) + (payload[at] === '7' ? '8' : '7') + payload.slice(at + 1);
      assert.notEqual(listener.messageOf(changed)?.unsigned, false, `changed at ${at}`);
    }
    assert.ok(listener.messageOf(payload) !== null);
  });
}

test('a listener without the data key reads no notification', () => {
  const payloads = nodeOf(KEY).payloadsOf({ kind: 'broadcast', topic: 'feed.events', text: 'merger-talks' });
  assert.ok(payloads.every((payload) => !payload.includes('merger') && !payload.includes('feed')));
});

test("while the data key is changed, nodes with the old key, with both and with the new one receive each other's notifications, once", () => {
  const nodes = [nodeOf(KEY), nodeOf(NEXT_KEY, KEY), nodeOf(NEXT_KEY)];
  const [before, during, after] = nodes as [NodeMessages, NodeMessages, NodeMessages];
  for (const message of MESSAGES) {
    const heardBy = (speaker: NodeMessages, listener: NodeMessages): number =>
      speaker.payloadsOf(message).filter((payload) => listener.messageOf(payload) !== null).length;
    const pairs = [heardBy(before, during), heardBy(during, before), heardBy(during, after), heardBy(after, during)];
    assert.deepEqual(pairs, [1, 1, 1, 1], message.kind);
    assert.equal(heardBy(before, after), 0);
  }
});

test('numbers that arrive in another order count once each; those that are too old do not count', () => {
  const [speaker, listener] = [nodeOf(KEY), nodeOf(KEY)];
  const say = (): string => speaker.payloadsOf({ kind: 'keys' })[0]!;
  const said = Array.from({ length: 100 }, say);
  const received = (): number => said.toReversed().filter((payload) => listener.messageOf(payload) !== null).length;
  assert.equal(received(), 100);
  assert.equal(received(), 0);
  const late = say();
  for (let i = 0; i < 65_536; i++) speaker.signedName();
  assert.ok(listener.messageOf(say()) !== null);
  assert.equal(listener.messageOf(late), null);
});

test('whatever the payload is, reading it does not throw, and none of it has a valid signature', () => {
  const listener = nodeOf(KEY);
  for (const payload of ['', 'x', '{', '\n', '{"from":', 'null', '1', '{"from":1}']) {
    assert.equal(listener.messageOf(payload), null);
  }
  const anything = fc.oneof(
    fc.string(),
    fc.json(),
    fc
      .record({
        from: fc.oneof(fc.constantFrom('x', 'x 1', `x 1 ${'A'.repeat(22)}`, 'x 1  '), fc.anything()),
        kind: fc.constantFrom('stored', 'instance', 'keys', 'broadcast', 'sealed', '__proto__'),
        first_no: fc.anything(),
        last_no: fc.anything(),
        instance_id: fc.anything(),
        lifts: fc.anything(),
      })
      .map((head) => `${jsonOf(head)}\n[{}]`),
  );
  fc.assert(fc.property(anything, (payload) => listener.messageOf(payload)?.unsigned !== false));
  const relay = new FeedRelay(new VirtualClock(), async () => {}, {
    listening_since: () => 0,
    onEvent: () => assert.fail('no event'),
    onLost: () => {},
    onAsked: () => {},
  });
  const events = ['not json', 'null', '{}', '[1,null,{}]', '[{"name":"x\\ndata: 1","data":{},"about":{}}]'];
  for (const text of events) relay.onBroadcast('feed.events', text);
  relay.onBroadcast(
    'feed.events',
    '[{"name":"message.accepted","data":{},"about":{"kind":"message","meeting_id":null,"instance_ids":[]}}]',
  );
});

function jsonOf(value: object): string {
  try {
    return JSON.stringify(value);
  } catch {
    return '{}';
  }
}

// ── on a database ───────────────────────────────────────────────────────────────────────────────────────────────────

interface Neighbour {
  notify: (payload: string) => Promise<void>;
  received: string[];
}

/** A database user who may connect, and do nothing else. */
async function neighbourAt(t: TestContext, url: string): Promise<Neighbour> {
  const role = `neighbour_${randomBytes(4).toString('hex')}`;
  const owner = new pg.Client(url);
  await owner.connect();
  await owner.query(`CREATE ROLE ${role} LOGIN PASSWORD 'low'`);
  const at = new URL(url);
  at.username = role;
  at.password = 'low';
  const client = new pg.Client(at.href);
  await client.connect();
  t.after(async () => {
    await client.end();
    await owner.query(`DROP ROLE ${role}`);
    await owner.end();
  });
  await assert.rejects(client.query('SELECT 1 FROM instances'), { code: '42501' });
  const received: string[] = [];
  client.on('notification', ({ payload }) => received.push(payload ?? ''));
  await client.query(`LISTEN ${CHANNEL}`);
  return {
    notify: async (payload) => void (await client.query(`SELECT pg_notify('${CHANNEL}', $1)`, [payload])),
    received,
  };
}

const FORGED_EVENT = {
  name: 'instance.up\ndata: {"instance_id":"forged"}\n\nevent: injected',
  data: { instance_id: 'forged' },
  about: { kind: 'everybody', meeting_id: null, instance_ids: [] },
};
/** Notifications that nodes believe only while a node of the previous version is in the cluster. */
const HINTS: string[] = [
  '{"from":"x","kind":"stored","first_no":0,"last_no":9007199254740991}',
  '{"from":"x","kind":"stored","first_no":0,"last_no":10}',
  '{"from":"x","kind":"instance","instance_id":"forged","lifts":true,"requeued":true}',
  '{"from":"x","kind":"keys"}',
];
const FORGED: string[] = [
  '{"from":"x","kind":"told","topic":"feed.events"}\nnot json',
  `{"from":"x","kind":"told","topic":"feed.events"}\n${JSON.stringify([FORGED_EVENT])}`,
  '{"from":"x","kind":"told","topic":"feed.events"}\nnull',
  '{"from":"x","kind":"told","topic":"feed.ask"}\n',
  '{"from":"x","kind":"told","topic":"backlog"}\n999999 x',
  '{"from":"x","kind":"stored","first_no":"a","last_no":{}}',
  '{"from":"x","kind":"instance"}',
  '{"from":"x","kind":"instance","instance_id":{"a":1}}',
  'null',
  ...HINTS,
];

async function startNodes(t: TestContext): Promise<{ url: string; nodes: [Service, Service] }> {
  const url = await makeDatabase();
  const settings = { database_url: url, encryption_key: randomBytes(32).toString('base64') };
  return { url, nodes: [await startService(t, settings), await startService(t, settings)] };
}

test('a role that may only connect to the database ends no node, forges no event, and reads nothing of the feed', async (t) => {
  const { url, nodes } = await startNodes(t);
  const [here, there] = nodes;
  const streams = await Promise.all(nodes.map(({ url: node }) => openStream(`${node}/api/v1/events/`)));
  t.after(() => streams.forEach((stream) => stream.close()));
  const neighbour = await neighbourAt(t, url);
  for (const payload of FORGED) await neighbour.notify(payload);
  // All notifications use one channel. When a node gets the events of the other node, it already has the forged events.
  const ids = await Promise.all(
    nodes.map(async (node) => (await node.register({ webhook_url: 'http://127.0.0.1:1/' })).instance_id),
  );
  await until(
    'each node to hear the other',
    async () => {
      for (const [i, id] of ids.entries()) await nodes[i]!.patch(id, { instance_name: 'changed' });
      return streams.map(({ events }) => ids.every((id) => events.some(({ data }) => data['instance_id'] === id)));
    },
    (received) => received.every((each) => each),
  );
  for (const { events } of streams) {
    assert.ok(!events.some(({ name, data }) => name === 'injected' || data['instance_id'] === 'forged'));
  }
  const told = neighbour.received.filter((payload) => !FORGED.includes(payload));
  assert.ok(told.length > 0, 'nodes spoke');
  assert.deepEqual(
    told.filter((payload) => payload.includes('instance.') || payload.includes('127.0.0.1')),
    [],
  );
  for (const node of [here, there]) assert.equal((await node.get('/readyz')).status, 200);
});

test('a node of the version before, which does not sign, is believed where it says where to look, while it is there', async (t) => {
  const url = await makeDatabase();
  const store = await openPostgresHere(url);
  t.after(() => store.close());
  const changes: Change[] = [];
  store.onChange((change) => changes.push(change));
  const node = { version: '0', address: 'http://127.0.0.1:1', stopping: false };
  await store.cluster!.renew({ ...node, node_id: 'here' }, []);
  const neighbour = await neighbourAt(t, url);
  const saysKeys = () => neighbour.notify('{"from":"former","kind":"keys"}');
  await saysKeys();
  const owner = new pg.Client(url);
  await owner.connect();
  t.after(() => owner.end());
  await owner.query("SELECT renew_lease('former', '0', 'http://127.0.0.1:2', 0::smallint, '{}')");
  await until(
    'it to be believed',
    async () => {
      await saysKeys();
      return changes.map(({ kind }) => kind);
    },
    (kinds) => kinds.includes('keys'),
  );
  assert.equal(changes[0]?.kind, 'resync', 'what it said before may have been missed');
});
