/** A node reads what other nodes stored, in the order of the commits. When a read fails, the node reads again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChangeReader } from '../../src/store/postgres/cluster/change_reader.ts';
import type { DedicatedConnection } from '../../src/store/postgres/connection/dedicated_connection.ts';
import { changeOf, type RawChange } from '../../src/store/postgres/cluster/stored_rows.ts';

/** The fields of a batch without deliveries for this node. */
const NO_DELIVERIES = {
  delivery_nos: null,
  of_messages: null,
  expire_ats: null,
  instance_ids: null,
  agent_lists: null,
  accepted_ats: null,
  timestamps: null,
  messages: null,
  said: null,
  traces: null,
};

/** Replaces the database: the test answers the reads. */
function following() {
  const reads: { batches: string; answer: () => void; fail: () => void }[] = [];
  const connection = {
    query: (_text: string, [first_nos, last_nos]: [number[], number[]]) =>
      new Promise((resolve, reject) => {
        const batches = first_nos.map((first_no, i) => `${first_no}-${last_nos[i]}`).join(' ');
        const rows = first_nos.map((first_no) => {
          const numbers = JSON.stringify([first_no]);
          return { ...NO_DELIVERIES, message_nos: numbers, meeting_ids: '["m"]', seqs: numbers };
        });
        reads.push({ batches, answer: () => resolve({ rows }), fail: () => reject(new Error('it is away')) });
      }),
  };
  const line = {
    use: (run: (each: typeof connection) => unknown) => run(connection),
  } as unknown as DedicatedConnection;
  const received: string[] = [];
  const failures: string[] = [];
  const onChange = (raw: RawChange): void => {
    const change = changeOf(raw);
    received.push(
      change.kind === 'stored' ? `stored ${change.ranges.map(({ first_seq }) => first_seq).join()}` : change.kind,
    );
  };
  const onFailed = (error: unknown): void => void failures.push(String(error));
  return { reads, received, failures, it: new ChangeReader(line, '0'.repeat(8), () => [1, 2], onChange, onFailed) };
}

const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

test('batches are read one after the other; those reported meanwhile are read together, as many as one read may have', async () => {
  const { reads, received, it } = following();
  it.onBatchStored({ first_no: 1, last_no: 10 });
  it.onBatchStored({ first_no: 11, last_no: 20 });
  it.onBatchStored({ first_no: 21, last_no: 5_010 });
  it.onBatchStored({ first_no: 5_011, last_no: 5_011 });
  it.onBatchStored({ first_no: 6_000, last_no: 20_000 });
  let caught_up = false;
  void it.caughtUp(60_000).then(() => (caught_up = true));
  for (const batches of ['1-10', '11-20 21-5010', '5011-5011', '6000-20000']) {
    assert.deepEqual([reads.at(-1)?.batches, received.at(-1), caught_up], [batches, 'reading', false]);
    reads.at(-1)?.answer();
    await settled();
  }
  assert.equal(caught_up, true);
  const stored = received.filter((each) => each !== 'reading');
  assert.deepEqual(stored, ['stored 1', 'stored 11,21', 'stored 5011', 'stored 6000']);
  it.onBatchStored({ first_no: 30_000, last_no: 30_000 });
  assert.equal(reads.length, 5);
});

test('nobody waits for it for longer than they want', async () => {
  const { reads, it } = following();
  it.onBatchStored({ first_no: 1, last_no: 1 });
  await it.caughtUp(1);
  assert.equal(reads.length, 1);
  reads[0]?.answer();
  await settled();
  await it.caughtUp(60_000);
});

test('a batch that cannot be read is reported, and leads to one scan, which also finds all that was reported until then', async () => {
  const { reads, received, failures, it } = following();
  it.onBatchStored({ first_no: 1, last_no: 1 });
  it.onBatchStored({ first_no: 2, last_no: 2 });
  reads[0]?.fail();
  await settled();
  assert.deepEqual(failures, ['Error: it is away']);
  assert.deepEqual(received, ['reading', 'resync']);
  it.onBatchStored({ first_no: 3, last_no: 3 });
  reads[1]?.answer();
  await settled();
  assert.deepEqual(received, ['reading', 'resync', 'reading', 'stored 3']);
});

test('a reader that is too far behind looks at everything instead, and keeps no notification', async () => {
  const { reads, received, it } = following();
  it.onBatchStored({ first_no: 1, last_no: 1 });
  for (let k = 1; k <= 11; k++) it.onBatchStored({ first_no: k * 100_000, last_no: k * 100_000 + 49_999 });
  reads[0]?.answer();
  await settled();
  assert.deepEqual(received, ['reading', 'stored 1', 'resync']);
  assert.equal(reads.length, 1);
});
