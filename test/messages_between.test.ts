/** What nodes tell each other fits into a NOTIFY, and arrives as it was told. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Message, messageOf, payloadOf, tellingOf, type Told } from '../src/store/postgres/messages_between.ts';

/** PostgreSQL refuses a payload of 8,000 bytes. */
const PAYLOAD_BYTES_MAX = 7_999;

function heardFrom(messages: Message[]): { lanes: Set<string>; counts: Map<string, number> } {
  const lanes = new Set<string>();
  const counts = new Map<string, number>();
  for (const message of messages) {
    const payload = payloadOf('a'.repeat(36), message);
    assert.ok(Buffer.byteLength(payload) <= PAYLOAD_BYTES_MAX, `${Buffer.byteLength(payload)} bytes`);
    const heard = messageOf(payload, 'another');
    assert.ok(heard?.kind === 'deliveries');
    for (const [meeting_id, count, ...instance_ids] of heard.lanes) {
      counts.set(meeting_id, count);
      for (const instance_id of instance_ids) {
        const lane = JSON.stringify([meeting_id, instance_id]);
        assert.ok(!lanes.has(lane), `${lane} twice`);
        lanes.add(lane);
      }
    }
  }
  return { lanes, counts };
}

const meetings = (meeting_count: number, instance_count: number, id: (letter: string, no: number) => string) =>
  new Map<string, Told>(
    Array.from({ length: meeting_count }, (_, m) => [
      id('m', m),
      { count: m + 1, instance_ids: new Set(Array.from({ length: instance_count }, (__, i) => id('i', i))) },
    ]),
  );

const SHAPES: [
  name: string,
  meeting_count: number,
  instance_count: number,
  id: (letter: string, no: number) => string,
][] = [
  ['one lane', 1, 1, (letter, no) => `${letter}${no}`],
  ['a meeting of 5,000', 1, 5_000, (letter, no) => `${letter}${no}`],
  ['3,000 meetings of two', 3_000, 2, (letter, no) => `${letter}${no}`],
  [
    'ids as long as they may be, which JSON writes in six bytes a character',
    40,
    3,
    (letter, no) => letter + '\u0001'.repeat(200) + String(no),
  ],
  ['ids of four bytes a character', 40, 30, (letter, no) => letter + '\u{1F600}'.repeat(60) + String(no)],
];

for (const [name, meeting_count, instance_count, id] of SHAPES) {
  test(`${name}: every lane is told once, in messages that fit`, () => {
    const told = meetings(meeting_count, instance_count, id);
    const { lanes, counts } = heardFrom(tellingOf(told));
    assert.equal(lanes.size, meeting_count * instance_count);
    for (const [meeting_id, { count, instance_ids }] of told) {
      assert.equal(counts.get(meeting_id), count);
      for (const instance_id of instance_ids) assert.ok(lanes.has(JSON.stringify([meeting_id, instance_id])));
    }
  });
}

test('nothing is told of nothing', () => {
  assert.deepEqual(tellingOf(new Map()), []);
});
