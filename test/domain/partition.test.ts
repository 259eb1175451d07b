/** Which partition an instance is in, and how nodes share partitions: every node must compute the same. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fairShare, LEASE_MS, LEASE_SAFE_MS, partitionOf, PARTITIONS } from '../../src/domain/partition.ts';

test('the partition of an instance is the same in every node and every version', () => {
  const known = { '': 0, a: 3, 'laptop-1': 18, mühle: 42, 会議室: 28 };
  for (const [instance_id, partition_no] of Object.entries(known))
    assert.equal(partitionOf(instance_id), partition_no, instance_id);
});

test('instances spread over all partitions', () => {
  const counts = Array.from({ length: PARTITIONS }, () => 0);
  for (let k = 0; k < PARTITIONS * 100; k++) counts[partitionOf(`machine-${k}`)]!++;
  assert.ok(Math.min(...counts) > 50 && Math.max(...counts) < 200, String(counts));
});

test('nodes share all partitions evenly, and one that stops has none', () => {
  for (let nodes = 1; nodes <= 70; nodes++) {
    const staying = Array.from({ length: nodes }, (_, k) => 3 * k + 1);
    const shares = staying.map((node_no) => fairShare(node_no, staying));
    assert.equal(
      shares.reduce((sum, share) => sum + share, 0),
      PARTITIONS,
    );
    assert.ok(Math.max(...shares) - Math.min(...shares) <= 1);
  }
  assert.equal(fairShare(2, [1, 3]), 0);
  assert.equal(fairShare(2, []), 0);
});

test('an attempt begun on a trusted lease ends before another node may take over', () => {
  const attempt_ms_max = 5_100;
  assert.ok(LEASE_SAFE_MS + attempt_ms_max <= LEASE_MS);
});
