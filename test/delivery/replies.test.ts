/** A reply in a response is sent to the meeting, once, before its delivery counts as delivered. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { queryObjects } from 'node:v8';
import type { Push, PushResult } from '../../src/delivery/transport/transport.ts';
import type { NewMessage } from '../../src/store/contract/messages.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { type Meddle, SECOND, startNode, type TestNode } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

/** Makes a reply. No instance hosts its target, so no push follows. */
const said = (text: string) => ({ message: { text }, from_agent: 'a', target_agents: ['nobody'] });
const answers = (...texts: string[]) => ({ says: 200 as const, body: JSON.stringify({ replies: texts.map(said) }) });

/** A node with an instance that may reply, in the meeting m. */
async function replier(t: TestContext, options: Parameters<typeof startNode>[1] = {}): Promise<TestNode> {
  const node = await startNode(t, options);
  await node.register('i', { replies: true });
  await node.join('i', 'm');
  return node;
}

/** The texts of all messages of the meeting, in their order. */
async function history(node: TestNode): Promise<string[]> {
  const page = await node.store.messages.list('m', { limit: 100, chars_max: 1e6 });
  return page?.data.map(({ message }) => (JSON.parse(message) as { text: string }).text) ?? [];
}

const isReply = (name: string, args: unknown[]): boolean =>
  name === 'messages.accept' && (args[0] as NewMessage[]).some(({ idempotency }) => idempotency?.sender === 'reply');
const isDelivered = (name: string, args: unknown[]): boolean =>
  name === 'deliveries.settle' && (args[0] as { state: string }[]).some(({ state }) => state === 'delivered');

describe('responses whose replies wait to be stored', () => {
  const BODY_BYTES = 64 << 10;
  const padded = {
    says: 200 as const,
    body: JSON.stringify({ reply: said('yes'), padding: 'x'.repeat(BODY_BYTES - 110) }),
  };

  test('count with their whole bodies: no attempt starts while they have 32 MiB', async (t) => {
    const node = await startNode(t);
    node.meddle = (name, args) => (isReply(name, args) ? { answered: new Promise(() => {}) } : undefined);
    const most = Math.ceil((32 << 20) / padded.body.length);
    for (let k = 0; k < most + 100; k++) {
      await node.register(`i${k}`, { replies: true });
      await node.store.meetings.join(`m${k}`, `i${k}`, ['a'], node.clock.wall());
      node.transport.answer(`i${k}`, padded);
      await node.send(`m${k}`);
      await node.clock.advance(5);
    }
    assert.equal(node.transport.pushes.length, most);
    assert.ok(node.engine.isFullOfReplies);
  });

  for (const waits of [true, false]) {
    test(waits ? 'are not kept beside their bodies' : 'control: a response that arrives is in memory', async (t) => {
      /** A part of a response: it is in memory as long as the response is. */
      class Mark {
        readonly of = 'a response';
      }
      const node = await replier(t);
      node.meddle = (name, args) => (isReply(name, args) ? { answered: new Promise(() => {}) } : undefined);
      const push = node.transport.push.bind(node.transport);
      const arrived: PushResult[] = [];
      Object.assign(node.transport, {
        push: async (made: Push) => {
          const response = { ...(await push(made)), mark: new Mark() };
          if (!waits) arrived.push(response);
          return response;
        },
      });
      node.transport.answer('i', padded);
      await node.send('m');
      await node.clock.advance(SECOND);
      assert.equal(node.engine.stats.in_flight, 0);
      assert.equal(queryObjects(Mark, { format: 'count' }), arrived.length);
      assert.equal(arrived.length, waits ? 0 : 1);
    });
  }
});

describe('a reply in the response', () => {
  test('is sent in the same meeting, as the answer of the agent to the message that was pushed', async (t) => {
    const node = await replier(t);
    await node.meeting('m', 'other');
    node.transport.answer('i', [{ says: 200, body: '{"reply":{"message":{"text":"yes"},"from_agent":"i"}}' }]);
    const { message_id } = await node.send('m');
    await node.clock.advance(SECOND);
    const page = await node.store.messages.list('m', { limit: 10, chars_max: 1e6 });
    const { origin: who, message } = page?.data[1] ?? {};
    assert.equal(message, '{"text":"yes"}');
    assert.deepEqual(who, { from_agent: 'i', in_reply_to: message_id, hops: 1 });
    assert.deepEqual(node.transport.seqsTo('other'), [1, 2]);
    // The other agent of the instance gets the reply; its sender does not.
    assert.deepEqual(
      node.transport.to('i').map(({ body }) => JSON.parse(body).target_agents),
      [['a', 'i'], ['a']],
    );
  });

  test('is not looked for in the response of an instance that did not ask for it', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', answers('unasked'));
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    assert.deepEqual(await history(node), ['said']);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('counts only in a success', async (t) => {
    const node = await replier(t);
    node.transport.answer('i', [{ ...answers('no'), says: 500 }, answers('yes')]);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(20 * SECOND);
    assert.deepEqual(await history(node), ['said', 'yes']);
  });

  const MOVED = 'the reply was not sent: the instance has another owner or another address by now';
  for (const { of, response, words } of [
    { of: 'with a reply', response: answers('late'), words: MOVED },
    { of: 'without a reply', response: { says: 200, body: 'ok' }, words: '' },
    { of: 'without a body', response: { says: 200 }, words: '' },
    { of: 'that is a failure', response: { says: 500 }, words: 'scripted 500' },
    { of: 'that did not come', response: { says: 'timeout' }, words: 'scripted timeout' },
  ] as const) {
    test(`is missed only where there is one: a response ${of}, after the instance moved`, async (t) => {
      const node = await replier(t);
      node.transport.answer('i', [HANGS]);
      await node.send('m', { text: '{"text":"said"}' });
      await node.clock.advance(SECOND);
      await node.register('i', { url: 'http://elsewhere.test/hook', replies: true });
      node.transport.release(response);
      await node.clock.advance(SECOND);
      assert.equal(node.attempts[0]?.attempt.detail, words);
      assert.deepEqual(node.replied, words === MOVED ? ['response refused'] : []);
      assert.deepEqual(await history(node), ['said']);
    });
  }

  test('may be one of several, which are stored in their order', async (t) => {
    const node = await replier(t);
    const texts = Array.from({ length: 20 }, (_, i) => `reply ${i}`);
    node.transport.answer('i', [answers(...texts)]);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    assert.deepEqual(await history(node), ['said', ...texts]);
  });

  test('that cannot be sent is noted with the attempt, in words, and the delivery is delivered all the same', async (t) => {
    const node = await replier(t);
    const replies = [said('one'), { message: {}, from_agent: 'outsider' }, 7];
    node.transport.answer('i', [{ says: 200, body: JSON.stringify({ replies }) }]);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    const [delivery] = await node.deliveries();
    assert.equal(delivery?.state, 'delivered');
    assert.match(delivery.attempts[0]?.detail ?? '', /^of 3 replies, 2 were not sent: reply 2: from_agent "outsider"/);
    assert.deepEqual(await history(node), ['said', 'one']);
  });

  test('of an agent that has left the meeting is not sent, and the attempt says so', async (t) => {
    const node = await replier(t);
    node.transport.answer('i', [HANGS]);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    await node.leave('i', 'm');
    node.transport.release(answers('late'));
    await node.clock.advance(SECOND);
    const [delivery] = await node.deliveries();
    assert.equal(delivery?.state, 'delivered');
    assert.match(delivery.attempts[0]?.detail ?? '', /its agent is not in the meeting any more/);
    assert.deepEqual(await history(node), ['said']);
  });
});

describe('a delivery whose response has a reply', () => {
  test('is not settled before the reply is stored, and its lane waits; other lanes continue', async (t) => {
    const node = await replier(t, { settings: { instance_concurrency: 1 } });
    await node.join('i', 'elsewhere');
    node.transport.answer('i', ({ meeting_id, seq }) => (meeting_id === 'm' && seq === 1 ? answers('yes') : 200));
    const stored = Promise.withResolvers<void>();
    const order: string[] = [];
    node.meddle = (name, args) => {
      if (isDelivered(name, args)) order.push('settled');
      if (!isReply(name, args)) return undefined;
      order.push('asked');
      return stored.promise.then(() => void order.push('stored'));
    };
    await node.sendMany('m', 2);
    await node.send('elsewhere');
    await node.clock.advance(SECOND);
    assert.deepEqual([node.transport.seqsTo('i', 'm'), node.transport.seqsTo('i', 'elsewhere')], [[1], [1]]);
    assert.deepEqual(await node.states({ meeting_id: 'm' }), ['pending', 'pending']);
    stored.resolve();
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states({ meeting_id: 'm' }), ['delivered', 'delivered']);
    // The first settlement is that of the other meeting.
    assert.deepEqual(order.slice(0, 4), ['asked', 'settled', 'stored', 'settled']);
  });

  test('waits for a store that is down, and then has one reply', async (t) => {
    const node = await replier(t);
    node.transport.answer('i', [answers('yes')]);
    let fails = 3;
    node.meddle = (name, args) => (isReply(name, args) && fails-- > 0 ? 'fails' : undefined);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['pending']);
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['delivered']);
    assert.deepEqual(await history(node), ['said', 'yes']);
    assert.equal(node.storage_errors.length, 3);
  });

  for (const { what, error, results, words } of [
    {
      what: 'waits while nobody can read whether the instance may still reply',
      error: new StoreError('SQLITE_13', 'scripted: the disk is full'),
      results: ['response stored'],
      words: /^$/,
    },
    {
      what: 'loses its reply when the row of the instance is damaged, and the attempt says so',
      error: new StoreError('SECRET_UNREADABLE', 'scripted'),
      results: ['response refused'],
      words: /^the reply was not sent: a row that it needs is damaged/,
    },
  ]) {
    test(what, async (t) => {
      const node = await replier(t);
      node.transport.answer('i', [HANGS]);
      await node.send('m', { text: '{"text":"said"}' });
      await node.clock.advance(SECOND);
      let is_read = false;
      node.meddle = (name) => {
        if (name !== 'instances.load' || is_read) return undefined;
        is_read = true;
        return Promise.reject(error);
      };
      node.transport.release(answers('yes'));
      await node.clock.advance(SECOND);
      assert.deepEqual(node.storage_errors, [error]);
      assert.deepEqual(node.replied, results);
      const [delivery] = await node.deliveries();
      assert.equal(delivery?.state, 'delivered');
      assert.match(delivery.attempts[0]?.detail ?? '', words);
    });
  }

  test('is pushed again after a crash before it was settled, and the first reply stays the only one', async (t) => {
    const node = await replier(t);
    node.transport.answer('i', [answers('first'), answers('in other words', 'and more')]);
    node.meddle = (name, args) => (isDelivered(name, args) ? 'lost' : undefined);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    assert.deepEqual(await history(node), ['said', 'first']);
    node.meddle = null;
    await node.crash();
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 1]);
    assert.deepEqual(await history(node), ['said', 'first', 'and more']);
    assert.deepEqual(node.replied, ['response stored', 'response repeated', 'response stored']);
    assert.equal((await node.states())[0], 'delivered');
  });

  test('is pushed again after a crash, and its reply keeps its position when one before it is new', async (t) => {
    const node = await replier(t);
    const list = (...replies: (string | null)[]) => ({
      says: 200 as const,
      body: JSON.stringify({ replies: replies.map((text) => text && said(text)) }),
    });
    node.transport.answer('i', [list(null, 'B', '', 'D'), list('A', 'B', 'C', 'D')]);
    node.meddle = (name, args) => (isDelivered(name, args) ? 'lost' : undefined);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    assert.deepEqual(await history(node), ['said', 'B', 'D']);
    node.meddle = null;
    await node.crash();
    await node.clock.advance(SECOND);
    assert.deepEqual(await history(node), ['said', 'B', 'D', 'A', 'C']);
  });

  test('is pushed again after a crash before the reply was stored, and then has one', async (t) => {
    const node = await replier(t);
    node.transport.answer('i', [answers('lost'), answers('stored')]);
    const meddle: Meddle = (name, args) => (isReply(name, args) ? 'lost' : undefined);
    node.meddle = meddle;
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    node.meddle = null;
    await node.crash();
    await node.clock.advance(SECOND);
    assert.deepEqual(await history(node), ['said', 'stored']);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('that is in flight when the service stops is settled with its reply', async (t) => {
    const node = await replier(t);
    node.transport.answer('i', [HANGS]);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    const stopped = node.engine.stop();
    node.transport.release(answers('yes'));
    await node.clock.advance(3 * SECOND);
    await stopped;
    assert.deepEqual(await history(node), ['said', 'yes']);
    assert.deepEqual(await node.states(), ['delivered']);
  });

  test('stays pending when the service stops while the store is down: a stop does not wait for ever', async (t) => {
    const node = await replier(t);
    node.transport.answer('i', [answers('yes')]);
    node.meddle = (name, args) => (isReply(name, args) ? 'fails' : undefined);
    await node.send('m', { text: '{"text":"said"}' });
    await node.clock.advance(SECOND);
    const stopped = node.engine.stop();
    await node.clock.advance(3 * SECOND);
    await stopped;
    assert.deepEqual(await node.states(), ['pending']);
  });
});

test('while very many replies wait to be stored, nothing starts; then everything continues', async (t) => {
  const node = await replier(t, { settings: { instance_concurrency: 64 } });
  const text = 'x'.repeat(60_000);
  node.transport.answer('i', () => answers(text));
  const stored = Promise.withResolvers<void>();
  node.meddle = (name, args) => (isReply(name, args) ? stored.promise : undefined);
  const meetings = Array.from({ length: 1_000 }, (_, i) => `m${i}`);
  await node.join('i', ...meetings);
  for (const meeting_id of meetings) void node.send(meeting_id);
  await node.clock.advance(3 * SECOND);
  const pushed = node.transport.pushes.length;
  // The replies to these pushes take 32 MiB.
  assert.ok(pushed > 500 && pushed < 640, `${pushed} were pushed`);
  stored.resolve();
  await node.clock.advance(3 * SECOND);
  assert.equal(node.transport.pushes.length, meetings.length);
  assert.ok((await node.states()).every((state) => state === 'delivered'));
});
