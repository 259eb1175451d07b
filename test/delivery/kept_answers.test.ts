/** Until all agents of a push have answered, the answers are in memory: there is a limit for their bytes. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Message, Page } from '@convoke/sdk';
import { ANSWERS_CHARS_MAX, KeptAnswers } from '../../src/delivery/runtimes/kept_answers.ts';
import { messagesPath, useService } from '../support/service.ts';

const ANSWER_CHARS = 60_000;
const LONG = 'x'.repeat(ANSWER_CHARS);
const FITTING = Math.floor(ANSWERS_CHARS_MAX / (ANSWER_CHARS + 20));

describe('the answers of one push', () => {
  const service = useService();

  for (const agents of [FITTING, FITTING + 4]) {
    test(`of ${agents} agents are sent as far as they fit, and the attempt says what was not`, async (t) => {
      const m = service.name('meeting');
      const agent_ids = Array.from({ length: agents }, (_, i) => `a${i}`);
      await service.member(t, m, {
        agent_ids,
        // An agent does not answer the answers of other agents.
        behaviour: ({ text }) => ({ body: JSON.stringify({ said: text.includes('there?') ? LONG : '' }) }),
        registration: {
          runtime: 'template',
          runtime_options: { body: { asked: '{{text}}' }, each_agent: true, reply: '/said' },
        },
      });
      const sent = await service.send(m, { content: 'Who is there?' });
      const { state, attempts } = await service.settled(sent);
      assert.equal(state, 'delivered');
      const { last_seq } = (await service.get<{ last_seq: number }>(`/api/v1/meetings/${m}/`)).body;
      // The meeting has the message, and a reply of each agent whose answer had room in memory.
      assert.equal(last_seq, 1 + FITTING);
      const { data } = (await service.get<Page<Message>>(`${messagesPath(m)}?after_seq=1&limit=1`)).body;
      assert.deepEqual(data[0]?.message, { content: LONG });
      if (agents === FITTING) assert.equal(attempts[0]?.detail, '');
      else assert.match(attempts[0]?.detail ?? '', /over 4194304 characters; an answer was not sent/);
      assert.equal(attempts[0]?.answered_agents?.length, agents);
    });
  }
});

test('the answers of all pushes together are bounded, and a push that ends makes room for others', () => {
  const all = new KeptAnswers();
  const pushes = Array.from({ length: 16 }, () => all.ofPush());
  for (const push of pushes) assert.equal(push.take(ANSWERS_CHARS_MAX), 'kept');
  const late = all.ofPush();
  assert.equal(late.take(1), 'no_room');
  assert.equal(pushes[0]?.take(1), 'too_long');
  pushes[0]?.release();
  assert.equal(late.take(ANSWERS_CHARS_MAX), 'kept');
  assert.equal(late.take(1), 'too_long');
  late.release();
  assert.equal(all.ofPush().take(ANSWERS_CHARS_MAX), 'kept');
});
