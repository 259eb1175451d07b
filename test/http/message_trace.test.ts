/** The trace of a message (earlier messages that led to it, its answers, its deliveries), and explain, over HTTP. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Delivery, Explanation, MessageTrace, Page, SentMessage } from '@convoke/sdk';
import { assertProblem, messagesPath, useService } from '../support/service.ts';

describe('the trace of a message', { concurrency: true }, () => {
  const service = useService();

  const send = async (meeting_id: string, fields: object): Promise<SentMessage> => {
    const answer = await service.post<SentMessage>(messagesPath(meeting_id), { message: {}, ...fields });
    assert.equal(answer.status, 201, answer.text);
    return answer.body;
  };

  const trace = async (message_id: string, query = ''): Promise<MessageTrace> => {
    const answer = await service.get<MessageTrace>(`/api/v1/messages/${message_id}/${query}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  };

  test('has what led to it, the nearest first, what answers it, and each delivery with its outcome', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id, { agent_ids: ['b'] });
    const question = await send(meeting_id, { message: { content: 'why?' } });
    const first = await send(meeting_id, { from_agent: 'a', in_reply_to: question.message_id });
    const second = await send(meeting_id, { from_agent: 'b', in_reply_to: first.message_id });
    await send(meeting_id, { from_agent: 'c' });
    const third = await send(meeting_id, { from_agent: 'c', in_reply_to: first.message_id });
    await service.settled(first);
    const seen = await trace(first.message_id);
    assert.deepEqual(
      [seen.seq, seen.meeting_id, seen.from_agent, seen.in_reply_to, seen.hops, seen.deliveries_queued],
      [2, meeting_id, 'a', question.message_id, 1, 1],
    );
    assert.deepEqual(
      seen.answered.map(({ seq, excerpt }) => [seq, excerpt]),
      [[1, '{"content":"why?"}']],
    );
    assert.deepEqual(
      seen.answers.map(({ message_id, from_agent }) => [message_id, from_agent]),
      [
        [second.message_id, 'b'],
        [third.message_id, 'c'],
      ],
    );
    assert.deepEqual(
      seen.deliveries.map((row) => [row.instance_id, row.state, row.target_agents]),
      [[instance_id, 'delivered', ['b']]],
    );
    assert.deepEqual([seen.next_answers_after, seen.deliveries_cursor], [null, null]);
    assert.equal((await trace(first.message_id, '?answers_after=3')).answers.length, 1);
    const chain = (await trace(third.message_id)).answered.map(({ seq }) => seq);
    assert.deepEqual(chain, [2, 1]);
  });

  test('has the text of the message as it was written', async () => {
    const meeting_id = service.name('meeting');
    const { message_id } = await service.sendText(meeting_id, '{"b": 1.50, "a":12345678901234567890}');
    const { text } = await service.get(`/api/v1/messages/${message_id}/`);
    assert.ok(text.includes('"message":{"b": 1.50, "a":12345678901234567890}'), text);
  });

  test('has its deliveries page by page: the list of deliveries continues', async (t) => {
    const meeting_id = service.name('meeting');
    for (let i = 0; i < 3; i++) await service.member(t, meeting_id);
    const { message_id } = await send(meeting_id, {});
    const { deliveries, deliveries_cursor } = await trace(message_id, '?limit=2');
    assert.equal(deliveries.length, 2);
    const rest = await service.get<Page<Delivery>>(
      `/api/v1/deliveries/?message_id=${message_id}&cursor=${deliveries_cursor}`,
    );
    assert.equal(rest.body.data.length, 1);
  });

  test('is refused for an id of no message, and for an invalid place', async () => {
    assertProblem(await service.get('/api/v1/messages/msg_none/'), 404, 'message_does_not_exist');
    const { message_id } = await send(service.name('meeting'), {});
    const wrong = await service.get(`/api/v1/messages/${message_id}/?answers_after=x`);
    assert.deepEqual(assertProblem(wrong, 422, 'invalid_fields').errors?.[0]?.path, 'answers_after');
  });

  test('explain counts the hops of the answered message, and names a field that is wrong', async (t) => {
    const meeting_id = service.name('meeting');
    const machine = { instance_id: service.name('i'), instance_name: 'n', agent_ids: ['b'], transport: 'pull' };
    assert.equal((await service.post('/api/v1/instances/register/', machine)).status, 201);
    await service.join(meeting_id, machine.instance_id, ['b']);
    await service.member(t, meeting_id, { agent_ids: ['é,1'] });
    const path = `/api/v1/meetings/${meeting_id}/explain/`;
    const why = async (query: string) =>
      (await service.get<Page<Explanation>>(`${path}${query}`)).body.data
        .map((row) => row.why ?? row.pushed)
        .toSorted();
    assert.deepEqual(await why(''), ['connection', 'now']);
    assert.deepEqual(await why(`?target_agents=${encodeURIComponent('é,1')}`), ['nobody_named', 'now']);
    assert.deepEqual(await why('?target_agents=b&target_agents=nobody'), ['connection', 'nobody_named']);
    assert.deepEqual(await why('?from_agent=b'), ['is_sender', 'now']);
    await service.request('PATCH', `/api/v1/meetings/${meeting_id}/`, { body: { hop_limit: 1 } });
    const person = await send(meeting_id, {});
    const agent = await send(meeting_id, { from_agent: 'x' });
    assert.deepEqual(await why(`?from_agent=x&in_reply_to=${agent.message_id}`), ['hop_limit', 'hop_limit']);
    assert.deepEqual(await why(`?from_agent=x&in_reply_to=${person.message_id}`), ['connection', 'now']);
    const elsewhere = await send(service.name('meeting'), {});
    for (const query of [`?in_reply_to=${elsewhere.message_id}`, '?target_agents=', '?limit=0', '?nothing=1'])
      assertProblem(await service.get(`${path}${query}`), 422, 'invalid_fields');
    assertProblem(await service.get('/api/v1/meetings/nowhere/explain/'), 404, 'meeting_does_not_exist');
  });
});
