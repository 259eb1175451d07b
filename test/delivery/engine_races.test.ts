/** Two things happen at the same time, so that the table and memory differ, or a response arrives late. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { DeliveryRow } from '../../src/store/contract/deliveries.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { HOUR, MINUTE, SECOND, SECRET, startNode, type TestNode } from '../support/node.ts';
import { HANGS } from '../support/scripted_transport.ts';

const upTo = (count: number) => Array.from({ length: count }, (_, k) => k + 1);
const NEW_URL = 'http://elsewhere.test/hook';

describe('an attempt in progress while its instance changes', () => {
  for (const says of ['connect_refused', 'timeout', 500, 202] as const) {
    test(`${says}: from the previous URL is no failure of the new one`, async (t) => {
      const node = await startNode(t);
      for (const meeting of ['m1', 'm2', 'm3', 'm4']) await node.meeting(meeting, 'i');
      node.transport.answer('i', ({ url }) => (url === NEW_URL ? 200 : HANGS));
      for (const meeting of ['m1', 'm2', 'm3', 'm4']) await node.sendMany(meeting, 2);
      await node.clock.advance(SECOND);
      await node.register('i', { url: NEW_URL });
      node.transport.release(says);
      await node.clock.advance(SECOND);
      const { consecutive_failures, backoff_until, last_failure } = await node.instance('i');
      assert.deepEqual([consecutive_failures, backoff_until, last_failure], [0, null, null]);
      assert.deepEqual(node.transport.forgotten, ['i']);
      await node.clock.advance(HOUR);
      assert.equal(await node.store.deliveries.countPending(), 0);
    });
  }

  test('the health of the previous URL, written late, does not overwrite that of the new one', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ({ url }) => (url === NEW_URL ? HANGS : 'connect_refused'));
    await node.send('m');
    await node.clock.settle();
    // The settlement waits for its batch. The registration is stored first, but its result arrives later.
    const registered = node.register('i', { url: NEW_URL });
    await node.clock.advance(SECOND);
    await registered;
    const { consecutive_failures, backoff_step, last_failure } = await node.instance('i');
    assert.deepEqual([consecutive_failures, backoff_step, last_failure], [0, 0, null]);
  });

  test('a 410 from the previous URL does not switch the new one off', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ({ url }) => (url === NEW_URL ? 200 : HANGS));
    await node.sendMany('m', 2);
    await node.clock.advance(SECOND);
    await node.register('i', { url: NEW_URL });
    node.transport.release(410);
    await node.clock.advance(SECOND);
    assert.equal((await node.instance('i')).webhook_enabled, true);
    assert.deepEqual(await node.states(), ['failed gone', 'delivered']);
  });

  test('a 410 whose settlement waits is not forgotten over a heartbeat', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', 410);
    node.meddle = (name) => (name === 'deliveries.settle' ? 'fails' : undefined);
    await node.sendMany('m', 3);
    await node.clock.advance(SECOND);
    await node.heartbeat('i');
    await node.clock.advance(SECOND);
    assert.equal(node.transport.pushes.length, 1);
    node.meddle = null;
    await node.clock.advance(SECOND);
    assert.equal((await node.instance('i')).webhook_enabled, false);
    assert.deepEqual(await node.states(), ['failed gone', 'pending', 'pending']);
  });

  test('a registration after a 410 whose settlement waits switches on, in the table as in memory', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [410]);
    node.meddle = (name) => (name === 'deliveries.settle' ? 'fails' : undefined);
    await node.sendMany('m', 3);
    await node.clock.advance(SECOND);
    await node.register('i');
    node.meddle = null;
    await node.clock.advance(SECOND);
    assert.equal((await node.instance('i')).webhook_enabled, true);
    assert.deepEqual(await node.states(), ['failed gone', 'delivered', 'delivered']);
  });

  test('a back-off whose settlement failed is not written after a heartbeat has lifted it', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ['connect_refused', HANGS]);
    node.meddle = (name) => (name === 'deliveries.settle' ? 'fails' : undefined);
    await node.send('m');
    await node.clock.advance(SECOND);
    await node.heartbeat('i');
    node.meddle = null;
    await node.clock.advance(SECOND);
    const { backoff_until, consecutive_failures } = await node.instance('i');
    assert.deepEqual([backoff_until, consecutive_failures], [null, 1]);
  });
});

describe('an instance that is deleted and registered again', () => {
  test('gets none of what was cancelled, and no late result harms it', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    await node.meeting('m2', 'i');
    node.transport.answer('i', HANGS);
    await node.sendMany('m', 300);
    await node.send('m2');
    await node.clock.advance(SECOND);
    await node.remove('i');
    node.transport.answer('i', 200);
    await node.meeting('m', 'i');
    await node.sendMany('m', 3);
    await node.clock.advance(SECOND);
    assert.equal(node.transport.release(410), 2);
    await node.clock.advance(SECOND);
    assert.deepEqual((await node.states()).filter((state) => state === 'cancelled instance_deleted').length, 301);
    await node.clock.advance(HOUR);
    assert.equal(node.engine.stats.queued_in_memory, 0);
  });

  test('a 410 to the previous registration does not switch the new one off', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [HANGS]);
    await node.send('m');
    await node.clock.advance(SECOND);
    await node.remove('i');
    await node.meeting('m', 'i');
    node.transport.release(410);
    await node.clock.advance(SECOND);
    assert.equal((await node.instance('i')).webhook_enabled, true);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['cancelled instance_deleted', 'delivered']);
  });

  for (const held of ['instances.load', 'deliveries.loadLanes', 'deliveries.loadAside']) {
    test(`while ${held} is in progress: leaves nothing in memory, and the new one is served`, async (t) => {
      const node = await startNode(t);
      await node.meeting('m', 'i');
      node.transport.answer('i', 500);
      await node.sendMany('m', 4);
      await node.clock.advance(MINUTE);
      await node.crash(false);
      await node.heartbeat('i');
      let gates = 0;
      const { promise: gate, resolve: open } = Promise.withResolvers<void>();
      node.meddle = (name) => (name === held && gates++ === 0 ? gate : undefined);
      await node.started();
      await node.clock.advance(30 * MINUTE);
      assert.ok(gates > 0);
      await node.remove('i');
      open();
      await node.clock.settle();
      assert.equal(node.engine.stats.queued_in_memory, 0);
      node.transport.answer('i', 200);
      await node.meeting('m', 'i');
      await node.sendMany('m', 3);
      await node.clock.advance(SECOND);
      assert.deepEqual((await node.states()).slice(4), ['delivered', 'delivered', 'delivered']);
      assert.equal(node.engine.stats.queued_in_memory, 0);
    });
  }
});

describe('deliveries aside', () => {
  test('what is due is read while settlements keep coming', async (t) => {
    const node = await startNode(t);
    await node.meeting('bad', 'i');
    await node.meeting('busy', 'j');
    node.transport.answer('i', ({ attempt }) => (attempt < 4 ? 500 : 200));
    await node.send('bad');
    await node.clock.advance(MINUTE);
    // Each write starts when the previous write ends, so that at every moment a settlement waits.
    const gates: (() => void)[] = [];
    node.meddle = (name) => {
      if (name !== 'deliveries.settle') return undefined;
      const { promise, resolve } = Promise.withResolvers<void>();
      gates.push(resolve);
      return promise;
    };
    for (let k = 0; k < 200; k++) {
      await node.send('busy');
      await node.clock.advance(SECOND);
      gates.shift()?.();
      await node.send('busy');
      await node.clock.settle();
    }
    assert.equal(node.transport.to('i').length, 4);
    node.meddle = null;
    for (const open of gates) open();
    await node.clock.advance(MINUTE);
    assert.equal(await node.store.deliveries.countPending(), 0);
  });

  test('leave memory while their machine is away, and are delivered when it is back', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', 202);
    await node.sendMany('m', 5);
    await node.clock.advance(SECOND);
    node.transport.answer('i', 'connect_refused');
    for (const { delivery_id } of await node.deliveries()) await node.retry(delivery_id);
    await node.clock.advance(SECOND);
    assert.equal(node.engine.stats.queued_in_memory, 0);
    node.transport.answer('i', 200);
    await node.clock.advance(HOUR);
    assert.deepEqual(await node.states(), Array<string>(5).fill('delivered'));
  });

  test('nothing is read again whose settlement is not written yet', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ({ attempt }) => (attempt < 4 ? 500 : 200));
    await node.sendMany('m', 3);
    await node.clock.advance(3 * MINUTE);
    const failed_until = node.clock.now() + 5 * MINUTE;
    node.meddle = (name) => (name === 'deliveries.settle' && node.clock.now() < failed_until ? 'fails' : undefined);
    await node.clock.advance(HOUR);
    assert.deepEqual(await node.states(), ['delivered', 'delivered', 'delivered']);
    for (const delivery of await node.deliveries()) assert.equal(delivery.attempt_count, 4);
    assert.equal(node.transport.pushes.length, 12);
  });

  test('more than a page is worked off in order of what is due', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', ({ seq }) => (seq % 5 === 0 ? 200 : 202));
    for (let k = 0; k < 40; k++) {
      await node.sendMany('m', 5);
      await node.clock.advance(10);
    }
    node.transport.answer('i', 200);
    const before = node.transport.pushes.length;
    await node.recover('i', 0);
    await node.clock.advance(1);
    assert.deepEqual(
      node.transport.seqsTo('i').slice(before),
      upTo(200).filter((seq) => seq % 5 !== 0),
    );
  });
});

describe('a delivery that is queued again while an attempt on it is in flight', () => {
  type End = (node: TestNode) => Promise<unknown>;
  const ENDS: Record<string, End> = {
    'was dropped': (node) => node.drop({ meeting_id: 'm' }),
    'has expired': async (node) => {
      await node.clock.advance(MINUTE);
      await node.maintenance().run();
    },
  };
  for (const [what, ends] of Object.entries(ENDS)) {
    test(`and ${what}: starts when that attempt has ended, and keeps no other delivery waiting`, async (t) => {
      const node = await startNode(t);
      await node.meeting('m', 'i');
      await node.meeting('n', 'i');
      node.transport.answer('i', ({ meeting_id }) => (meeting_id === 'm' ? HANGS : 202));
      await node.send('m', { expires_in_ms: MINUTE });
      await node.send('n');
      await node.clock.advance(SECOND);
      await ends(node);
      node.transport.answer('i', 200);
      for (const { delivery_id } of await node.deliveries()) await node.retry(delivery_id);
      await node.clock.advance(10 * MINUTE);
      assert.deepEqual(await node.states(), ['pending', 'delivered']);
      assert.equal(node.transport.to('i', 'm').length, 1);
      node.transport.release(500);
      await node.clock.advance(SECOND);
      assert.deepEqual(await node.states(), ['delivered', 'delivered']);
      assert.equal(node.transport.to('i', 'm').length, 2);
      assert.equal(node.engine.stats.queued_in_memory, 0);
    });
  }

  test('starts when that attempt has ended, also after it was dropped and queued again once more', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.transport.answer('i', [HANGS]);
    await node.send('m');
    await node.clock.advance(SECOND);
    const [{ delivery_id }] = (await node.deliveries()) as [DeliveryRow];
    for (let k = 0; k < 2; k++) {
      await node.drop({ instance_id: 'i' });
      await node.retry(delivery_id);
      await node.clock.advance(SECOND);
    }
    await node.drop({ instance_id: 'i' });
    node.transport.release();
    await node.clock.advance(SECOND);
    assert.deepEqual(await node.states(), ['cancelled dropped']);
    await node.retry(delivery_id);
    await node.clock.advance(SECOND);
    assert.equal(node.transport.pushes.length, 2);
    assert.deepEqual(await node.states(), ['delivered']);
  });
});

describe('a lane that is forgotten and made again', () => {
  test('sends nothing twice while what was taken from it is not written yet', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    node.meddle = (name) => (name === 'deliveries.settle' ? 'fails' : undefined);
    for (let k = 0; k < 20; k++) {
      await node.sendMany('m', 2);
      await node.clock.advance(10);
    }
    // These are more deliveries than memory holds of a lane. The rest is in the table, and all of it is still pending.
    await node.sendMany('m', 400);
    await node.clock.advance(SECOND);
    node.meddle = null;
    await node.clock.advance(MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(440));
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
  });

  test('reads on where it was, when messages are sent while it loads', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    let gates: (() => void)[] = [];
    node.meddle = (name) => {
      if (name !== 'deliveries.loadLanes') return undefined;
      const { promise, resolve } = Promise.withResolvers<void>();
      gates.push(resolve);
      return promise;
    };
    for (let k = 0; k < 60; k++) {
      await node.sendMany('m', k % 7 === 0 ? 300 : 3);
      await node.clock.advance(1);
      if (k % 3 === 0) {
        for (const open of gates) open();
        gates = [];
      }
      if (k % 2 === 0) await node.clock.advance(1);
    }
    node.meddle = null;
    for (const open of gates) open();
    await node.clock.advance(MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), upTo(node.transport.pushes.length));
    assert.deepEqual(new Set(await node.states()), new Set(['delivered']));
    assert.equal(node.engine.stats.queued_in_memory, 0);
  });
});

describe('a read that fails after a change has made another read necessary', () => {
  for (const aside of [false, true]) {
    const name = aside ? 'deliveries.loadAside' : 'deliveries.loadLanes';
    test(`is made once more when the store is back: ${name}`, async (t) => {
      const node = await startNode(t);
      await node.meeting('m', 'i');
      node.transport.answer('i', 500);
      await node.sendMany('m', 1);
      // From the fourth attempt on, the delivery is aside.
      await node.clock.advance(aside ? 5 * MINUTE : 0);
      await node.crash(false);
      const gate = Promise.withResolvers<void>();
      let loads = 0;
      node.meddle = (called) => {
        if (called !== name) return undefined;
        return ++loads === 1
          ? gate.promise.then(() => Promise.reject(new Error('scripted: it cannot be read')))
          : undefined;
      };
      node.transport.answer('i', 200);
      await node.started();
      await node.clock.advance(aside ? 10 * MINUTE : 0);
      assert.equal(loads, 1);
      node.engine.invalidateInstance('i');
      gate.resolve();
      await node.clock.advance(MINUTE);
      assert.deepEqual(await node.states(), ['delivered']);
      assert.equal(loads, 2);
    });
  }
});

describe('a database that is behind what this node knows, and assigns a seq again', () => {
  for (const noticed of [true, false]) {
    test(`what is accepted then flows ${noticed ? 'at once, when the node notices it' : 'after the next scan of the table'}`, async (t) => {
      const node = await startNode(t, { others: true });
      await node.meeting('m', 'i');
      await node.sendMany('m', 3);
      await node.clock.advance(SECOND);
      // Another node reported a message that the table never had.
      const lost = { message_id: 'msg_lost', meeting_id: 'm', seq: 4, accepted_at: node.clock.wall() };
      const message = {
        ...lost,
        message: '{}',
        timestamp: '',
        origin: null,
        trace: null,
        expires_at: node.clock.now() + HOUR,
      };
      const deliveries = [{ delivery_id: 'dlv_lost', instance_id: 'i', target_agents: '["a"]' }];
      const range = { meeting_id: 'm', first_seq: 4, last_seq: 4, messages: [{ ...message, deliveries }] };
      node.engine.onChange({ kind: 'reading' });
      node.engine.onChange({ kind: 'stored', ranges: [range] });
      await node.clock.advance(SECOND);
      assert.deepEqual(node.transport.seqsTo('i'), [1, 2, 3, 4]);
      assert.equal((await node.send('m')).seq, 4);
      if (noticed) node.engine.onChange({ kind: 'resync' });
      await node.clock.advance(noticed ? SECOND : 30 * SECOND);
      assert.deepEqual(node.transport.seqsTo('i'), [1, 2, 3, 4, 4]);
      assert.notEqual(node.transport.to('i')[4]?.delivery_id, 'dlv_lost');
    });
  }
});

describe('a message that is read from the table before its sender gets the response', () => {
  /** Stores everything, and holds back the results of these sends until the returned function is called. */
  function holdAnswer(node: TestNode, meeting_id: string): () => void {
    const { promise, resolve } = Promise.withResolvers<void>();
    node.meddle = (name, [batch]) => {
      const is_held = name === 'messages.accept' && (batch as { meeting_id: string }[])[0]?.meeting_id === meeting_id;
      return is_held ? { answered: promise } : undefined;
    };
    return resolve;
  }

  test('is pushed once, when the scan of the table found it', async (t) => {
    const node = await startNode(t, { others: true });
    await node.meeting('m', 'i');
    const answer = holdAnswer(node, 'm');
    const sent = node.send('m');
    await node.clock.advance(MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    answer();
    await sent;
    await node.clock.advance(MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
  });

  test('is pushed once, although its lane was emptied and forgotten after many others', async (t) => {
    const node = await startNode(t, { others: true });
    await node.meeting('m', 'i');
    await node.send('m');
    await node.clock.advance(SECOND);
    const answer = holdAnswer(node, 'm');
    const sent = node.send('m');
    await node.clock.advance(MINUTE);
    for (const n of upTo(300)) {
      await node.join('i', `m${n}`);
      await node.send(`m${n}`);
      await node.clock.advance(10);
    }
    assert.equal(node.transport.pushes.length, 302);
    answer();
    await sent;
    await node.clock.advance(MINUTE);
    assert.equal(node.transport.pushes.length, 302);
  });

  test('control: what was requested after a lane was forgotten needs no read', async (t) => {
    const node = await startNode(t, { others: true });
    let loads = 0;
    node.meddle = (name) => {
      if (name === 'deliveries.loadLanes') loads++;
      return undefined;
    };
    for (const n of upTo(600)) {
      await node.meeting(`m${n}`, 'i');
      await node.send(`m${n}`);
      await node.clock.advance(10);
    }
    assert.equal(node.transport.pushes.length, 600);
    assert.ok(loads < 5, `${loads} reads`);
  });
});

describe('an instance whose secrets do not open', () => {
  const unreadable = new StoreError('SECRET_UNREADABLE', 'scripted');
  const unreadableTo = (node: TestNode): void => {
    node.meddle = (name, [ids]) =>
      name === 'instances.load' && (ids as string[]).includes('i') ? Promise.reject(unreadable) : undefined;
  };

  test('is read at once when another node registered it with new ones', async (t) => {
    const node = await startNode(t, { others: true });
    await node.meeting('m', 'i');
    unreadableTo(node);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.equal(node.transport.pushes.length, 0);
    node.meddle = null;
    node.engine.onChange({ kind: 'instance', instance_id: 'i', resets_backoff: true, requeued: false });
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
  });

  test('is pushed nothing while a secret in its row is malformed, which ends no process and delays nobody', async (t) => {
    const node = await startNode(t);
    const row = { instance_id: 'i', instance_name: 'i', agent_ids: ['a'], webhook_url: 'http://i.test/hook' };
    const rest = { webhook_headers: undefined, webhook_secret: undefined, success_statuses: undefined };
    const damaged = { ...row, ...rest, new_secret: 'whsec_x' };
    await node.store.instances.register(damaged, node.clock.wall());
    await node.meeting('m', 'i', 'other');
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual([node.transport.seqsTo('i'), node.transport.seqsTo('other')], [[], [1]]);
    assert.equal(node.engine.isReading('i'), false, 'a pull of the machine does not wait for a read');
    const codes = node.storage_errors.map((error) => (error as StoreError).code);
    assert.deepEqual(codes, ['SECRET_UNREADABLE']);
    const repair = { ...damaged, webhook_secret: SECRET };
    const { instance } = await node.store.instances.register(repair, node.clock.wall());
    node.engine.instanceChanged(instance, true);
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
  });

  test('is pushed nothing on what was known before', async (t) => {
    const node = await startNode(t, { others: true });
    await node.meeting('m', 'i');
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    unreadableTo(node);
    node.engine.onChange({ kind: 'instance', instance_id: 'i', resets_backoff: false, requeued: false });
    await node.sendMany('m', 3);
    await node.clock.advance(5 * MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    assert.ok(node.storage_errors.length < 10, `${node.storage_errors.length} reads in five minutes`);
    node.meddle = null;
    await node.clock.advance(MINUTE);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 2, 3, 4]);
  });

  test('on one node: what it is registered with counts at once, and again when it changes', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i');
    unreadableTo(node);
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.equal(node.transport.pushes.length, 0);
    node.meddle = null;
    await node.register('i');
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    // A step of a deletion failed, so the engine reads the row again.
    node.engine.invalidateInstance('i');
    await node.send('m');
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, 2]);
  });
});

describe('a deletion that fails half-way', () => {
  test('starts nothing meanwhile, and a registration delivers what was not cancelled', async (t) => {
    const node = await startNode(t);
    await node.meeting('m', 'i', 'other');
    node.transport.answer('i', HANGS);
    await node.sendMany('m', 30);
    await node.clock.settle();
    let steps = 0;
    node.meddle = (name) => (name === 'instances.remove' && ++steps > 2 ? 'fails' : undefined);
    await assert.rejects(node.remove('i', 7), { code: 'SQLITE_13' });
    node.meddle = null;
    node.transport.answer('i', 200);
    node.transport.release(200);
    await node.clock.advance(HOUR);
    // The attempt in progress has ended; of the rest, 14 are cancelled and 16 wait.
    assert.deepEqual(node.transport.seqsTo('i'), [1]);
    assert.equal(await node.store.deliveries.countPending(), 16);

    await node.register('i');
    await node.clock.advance(SECOND);
    assert.deepEqual(node.transport.seqsTo('i'), [1, ...upTo(30).slice(14)]);
    assert.equal(await node.store.deliveries.countPending(), 0);
    assert.equal(node.engine.stats.queued_in_memory, 0);
  });
});
