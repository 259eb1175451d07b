/** Bytes that stay in memory do not keep the memory of other Buffers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { queryObjects } from 'node:v8';
import { type ApiKey, digestOf } from '../../src/domain/api_key.ts';
import { ownBytes } from '../../src/domain/own_bytes.ts';
import { pushBody, pushBodyHead } from '../../src/domain/push_body.ts';
import { Keyring } from '../../src/http/auth/keyring.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const takesOnlyItself = (bytes: Uint8Array): boolean => bytes.buffer.byteLength === bytes.byteLength;

/** The bytes of all Buffers that something needs. */
function bufferBytes(): number {
  // Collects what nothing needs.
  queryObjects(Keyring, { format: 'count' });
  return process.memoryUsage().arrayBuffers;
}

test('control: a small Buffer of Node keeps memory of others', () => {
  assert.ok(!takesOnlyItself(Buffer.from('{"event":"message"}')));
});

test('the body of a push, and the part that pushes of a message share, take no more memory than their bytes', () => {
  const head = pushBodyHead('m', '{"content":"Grüße 👋"}');
  const body = pushBody(head, '["anna"]', '2026-03-01T09:30:00Z');
  assert.equal(
    Buffer.from(body).toString(),
    '{"event":"new_message","meeting_id":"m","message":{"content":"Grüße 👋"},"target_agents":["anna"],"timestamp":"2026-03-01T09:30:00Z"}',
  );
  assert.ok(takesOnlyItself(head) && takesOnlyItself(body));
});

test('bytes are those of the text; a text that is not hex has none', () => {
  assert.deepEqual([...ownBytes('Grüße')], [...Buffer.from('Grüße')]);
  assert.deepEqual([...ownBytes('00ff', 'hex')], [0, 255]);
  assert.equal(ownBytes('no hex', 'hex').byteLength, 0);
});

test('a thousand keys that are made while the service works take less than a megabyte of Buffers', () => {
  const keyring = new Keyring(new VirtualClock(), { changedSince: async () => [] } as never, () => {});
  const before = bufferBytes();
  for (let i = 0; i < 1_000; i++) {
    keyring.put(keyOf(i));
    // Other work needs as many small Buffers as share a piece of memory.
    for (let k = 0; k < 64; k++) Buffer.from('x'.repeat(1_024));
  }
  assert.equal(keyring.is_open, false);
  const taken = bufferBytes() - before;
  assert.ok(taken < 1 << 20, `${taken} bytes`);
});

function keyOf(i: number): ApiKey {
  return {
    key_id: `key${i}`,
    name: null,
    scopes: ['read'],
    meeting_ids: null,
    instance_id: null,
    digest: digestOf(`token ${i}`),
    earlier_tokens: [],
    created_at: 0,
    expires_at: null,
    revoked_at: null,
    last_used_at: null,
    change_no: i + 1,
  };
}
