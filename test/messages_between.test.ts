/** What nodes tell each other fits into a NOTIFY, and arrives as it was told. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Message, messageOf, payloadOf } from '../src/store/postgres/messages_between.ts';

/** PostgreSQL refuses a payload of 8,000 bytes. */
const PAYLOAD_BYTES_MAX = 7_999;

const LONGEST_ID = '\u0001'.repeat(200);
const MESSAGES: Message[] = [
  { kind: 'stored', first_no: Number.MAX_SAFE_INTEGER - 1, last_no: Number.MAX_SAFE_INTEGER },
  { kind: 'instance', instance_id: LONGEST_ID, lifts: true, requeued: false },
  { kind: 'keys' },
  { kind: 'told', topic: 'topic', text: `{"a"}\n\n${'"'.repeat(6_990)}` },
  { kind: 'told', topic: 'topic', text: '' },
];

for (const message of MESSAGES) {
  test(`of ${message.kind}: others hear it as it was told, and who told it does not`, () => {
    const payload = payloadOf('a'.repeat(36), message);
    assert.ok(Buffer.byteLength(payload) <= PAYLOAD_BYTES_MAX, `${Buffer.byteLength(payload)} bytes`);
    const { from: _, ...heard } = messageOf(payload, 'another') as Message & { from: string };
    assert.deepEqual(heard, message);
    assert.equal(messageOf(payload, 'a'.repeat(36)), null);
  });
}

test('what is none of ours is ignored', () => {
  for (const payload of ['', 'x', '{', '\n', '{"from":']) assert.equal(messageOf(payload, 'me'), null);
});
