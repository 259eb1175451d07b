/** How often a forwarded pull calls the store: each call wakes the thread of the store. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { FORWARDED_HEADER, PullForwarder } from '../../src/delivery/cluster/pull_forwarder.ts';
import { PARTITIONS } from '../../src/domain/partition.ts';
import { startReceiver } from '../support/receiver.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const PULLS = 100;

/** Starts a node that holds all partitions, and a forwarder of another node that forwards pulls to this node. */
async function start(t: TestContext) {
  const asked: string[] = [];
  const holder = await startReceiver(t);
  const clock = new VirtualClock();
  const cluster = {
    addressesOfHolders: async () => {
      asked.push('addresses');
      return new Map(Array.from({ length: PARTITIONS }, (_, partition_no) => [partition_no, holder.origin]));
    },
    sign: async (text: string) => {
      asked.push('sign');
      return `signed(${text})`;
    },
    isSigned: async (text: string, signature: string) => {
      asked.push('is signed');
      return signature === `signed(${text})`;
    },
  };
  const forwarder = new PullForwarder({ cluster, clock });
  t.after(() => forwarder.close());
  const pull = async (instance_id: string): Promise<number | undefined> => {
    const of = { instance_id, body: '{}', headers: {}, address: '127.0.0.9', wait_ms: 0 };
    const response = await forwarder.forward(of, () => {});
    response?.resume();
    return response?.statusCode;
  };
  const marks = () => holder.requests.map(({ headers }) => String(headers[FORWARDED_HEADER]));
  return { asked, holder, clock, cluster, forwarder, pull, marks };
}

test('pulls of a second ask the store twice where they are forwarded, and once where they arrive', async (t) => {
  const { asked, clock, cluster, pull, marks } = await start(t);
  await Promise.all(Array.from({ length: PULLS }, (_, i) => pull(`i${i}`)));
  await pull('one more');
  assert.deepEqual(asked.splice(0), ['addresses', 'sign']);

  const arriving = new PullForwarder({ cluster, clock });
  t.after(() => arriving.close());
  for (const mark of marks()) assert.equal(await arriving.addressIn(mark), '127.0.0.9');
  assert.deepEqual(asked.splice(0), ['is signed']);
});

test('a response other than 200 makes the node read again who delivers', async (t) => {
  const { asked, holder, pull } = await start(t);
  assert.equal(await pull('a'), 200);
  holder.behaviour = { status: 503 };
  assert.equal(await pull('a'), 503);
  asked.length = 0;
  holder.behaviour = {};
  assert.equal(await pull('a'), 200);
  assert.deepEqual(asked, ['addresses']);
});

test('a stamp of another cluster, or of more than a minute ago, says no address', async (t) => {
  const { clock, forwarder, pull, marks } = await start(t);
  await pull('a');
  const [mark = ''] = marks();
  assert.equal(await forwarder.addressIn(mark.replace('signed(', 'forged(')), undefined);
  assert.equal(await forwarder.addressIn(mark), '127.0.0.9');
  clock.stepWall(61_000);
  assert.equal(await forwarder.addressIn(mark), undefined);
  clock.stepWall(-122_000);
  assert.equal(await forwarder.addressIn(mark), undefined);
  assert.equal(await forwarder.addressIn('not signed'), undefined);
});
