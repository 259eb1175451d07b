/** When 64 MiB of messages wait to be stored, messages that belong together find room together or not at all. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { Problem } from '../../src/domain/problem.ts';
import { SECOND, startNode, type TestNode } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

const LARGE = 100_000;
const textOf = (chars: number): string => JSON.stringify({ text: 'x'.repeat(chars) });
const said = (text: string) => ({ message: { text }, from_agent: 'a', target_agents: ['nobody'] });

const outcomeOf = (result: PromiseSettledResult<unknown>): string =>
  result.status === 'fulfilled' ? 'stored' : (result.reason as Problem).code;

/**
 * Fills the room with messages of a store that does not respond, until a message of LARGE characters finds no room and
 * a small one does.
 */
async function nodeWithoutRoom(t: TestContext): Promise<{ node: TestNode; respond: () => void }> {
  const node = await startNode(t);
  await node.register('i', { replies: true });
  await node.join('i', 'm');
  node.transport.answer('i', () => HANGS);
  await node.send('m');
  await node.clock.advance(SECOND);
  const stored = Promise.withResolvers<void>();
  node.meddle = (name) => (name === 'messages.accept' ? stored.promise : undefined);
  const refusals: unknown[] = [];
  for (let k = 0; k < 2_000 && refusals.length === 0; k++) {
    const send = node.sendOf('filler', { text: textOf(LARGE) });
    node.engine.send(send).catch((error: unknown) => refusals.push(error));
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(refusals[0] instanceof Problem && refusals[0].code === 'overloaded');
  const respond = (): void => {
    node.meddle = null;
    stored.resolve();
  };
  return { node, respond };
}

const textsIn = async (node: TestNode, meeting_id: string): Promise<string[]> => {
  const page = await node.store.messages.list(meeting_id, { limit: 100, chars_max: 1e6 });
  return (page?.data ?? []).map(({ message }) => (JSON.parse(message) as { text: string }).text.slice(0, 5));
};

test('a list is refused as a whole when its first message finds no room', async (t) => {
  const { node, respond } = await nodeWithoutRoom(t);
  const alone = node.send('alone');
  const list = [node.sendOf('list', { text: textOf(LARGE) }), node.sendOf('list'), node.sendOf('list')];
  const results = node.engine.sendAll(list);
  respond();
  assert.deepEqual((await results).map(outcomeOf), ['overloaded', 'overloaded', 'overloaded']);
  assert.equal((await alone).seq, 1, 'a small one alone has room');
});

test('the replies of a response keep their order when the first one finds no room', async (t) => {
  const { node, respond } = await nodeWithoutRoom(t);
  const replies = [said('first'.padEnd(LARGE, '.')), said('second')];
  node.transport.release({ says: 200, body: JSON.stringify({ replies }) });
  await new Promise((resolve) => setImmediate(resolve));
  respond();
  await node.clock.advance(10 * SECOND);
  assert.deepEqual(await textsIn(node, 'm'), ['hello', 'first', 'secon']);
});
