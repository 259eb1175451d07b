/** No sender gets a 201 before the disk has the message. The test reads this from the system calls of the process. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import { ask } from './api.ts';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';
import { has_strace, type Marked, type Order, straceTo, syncedBeforeAnswered } from './trace.ts';

const SENDERS = 8;
const MESSAGES_EACH = 40;

/** Sends several messages at a time, so that the service commits them in groups. */
async function sendMarked(url: string): Promise<Marked[]> {
  const messages: Marked[] = [];
  const sender = async (_: unknown, sender: number): Promise<void> => {
    for (let number = 0; number < MESSAGES_EACH; number++) {
      const mark = `mark-${sender}-${number}.`;
      const path = `/api/v1/meetings/meeting-${sender}/messages/`;
      const { status, body } = await ask(url, 'POST', path, { body: { message: { mark } } });
      assert.equal(status, 201);
      messages.push({ mark, message_id: String(body['message_id']) });
    }
  };
  await Promise.all(Array.from({ length: SENDERS }, sender));
  return messages;
}

async function traced(t: TestContext, start: (directory: string, before: string[]) => NodeProcess): Promise<Order> {
  const directory = await temporaryDirectory(t);
  const file = join(directory, 'trace');
  const node = start(directory, straceTo(file));
  const messages = await sendMarked(await node.ready);
  await node.end('SIGTERM');
  const order = syncedBeforeAnswered(await readFile(file, 'latin1'), messages);
  t.diagnostic(`${order.answers} answers, ${order.syncs} fsyncs, ${order.violations.length} violations`);
  return order;
}

const careless = (t: TestContext, synchronous: string): Promise<Order> =>
  traced(t, (directory, before) =>
    NodeProcess.run(t, ['test/faults/careless_store.ts', join(directory, 'control.db'), synchronous], { before }),
  );

describe('fsync before each 201', { skip: has_strace ? false : 'strace is not installed' }, () => {
  test('every message is on disk before its sender gets the response', async (t) => {
    const { answers, violations } = await traced(t, (directory, before) => NodeProcess.serve(t, directory, { before }));
    assert.equal(answers, SENDERS * MESSAGES_EACH);
    assert.deepEqual(violations, []);
  });

  test('control: a store that does not wait for the disk is found, at nearly every answer', async (t) => {
    const { answers, violations } = await careless(t, 'OFF');
    assert.equal(answers, SENDERS * MESSAGES_EACH);
    assert.ok(violations.length > answers * 0.9, `${violations.length} of ${answers}`);
  });

  test('control: the same store is in order when it waits', async (t) => {
    assert.deepEqual((await careless(t, 'FULL')).violations, []);
  });
});
