/** Tests what the checker of replies finds, and what it allows. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Answered, checkReplies, type RepliesRecord, type StoredReply } from './reply_checker.ts';

const push = (webhook_id: string, how: Answered['how']): Answered => ({ webhook_id, message_id: 'msg_1', how });
const reply = (answers: string, place: number, from_agent: string): StoredReply => ({
  meeting_id: 'm',
  message_id: `msg_${answers}_${place}`,
  from_agent,
  in_reply_to: 'msg_1',
  answers,
  place,
});

function record(): RepliesRecord & { delivered: Set<string> } {
  return {
    // The last push was not delivered, so its replies may be there or not.
    answered: [push('a', 'one'), push('a', 'one'), push('b', 'three'), push('c', 'later'), push('d', 'three')],
    stored: [
      reply('a', 0, 'one'),
      ...[0, 1, 2].map((place) => reply('b', place, 'three')),
      reply('c', 0, 'later'),
      reply('d', 1, 'three'),
    ],
    delivered: new Set(['a', 'b', 'c']),
  };
}

test('where every reply is there once, nothing is found', () => {
  assert.deepEqual(checkReplies(record()), { missing: [], twice: [], false: [] });
});

test('a reply that is missing, there twice, made up, or of another agent or message is found', () => {
  const found = (doctor: (copy: ReturnType<typeof record>) => void) => {
    const copy = record();
    doctor(copy);
    const { missing, twice, false: wrong } = checkReplies(copy);
    return [missing.length, twice.length, wrong.length];
  };
  assert.deepEqual(
    found(({ stored }) => void stored.splice(2, 1)),
    [1, 0, 0],
  );
  assert.deepEqual(
    found(({ delivered }) => void delivered.add('d')),
    [2, 0, 0],
  );
  assert.deepEqual(
    found(({ stored }) => void stored.push(reply('a', 0, 'one'))),
    [0, 1, 0],
  );
  assert.deepEqual(
    found(({ stored }) => void stored.push(reply('a', 1, 'one'))),
    [0, 0, 1],
  );
  assert.deepEqual(
    found(({ stored }) => void stored.push(reply('x', 0, 'one'))),
    [0, 0, 1],
  );
  assert.deepEqual(
    found(({ stored }) => void (stored[0]!.from_agent = 'three')),
    [0, 0, 1],
  );
  assert.deepEqual(
    found(({ stored }) => void (stored[0]!.in_reply_to = undefined)),
    [0, 0, 1],
  );
});
