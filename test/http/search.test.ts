/** Searches of messages and deliveries over HTTP: by any id, by text, by state or outcome, and by recipient. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Delivery, FoundMessage, Instance, Meeting, SearchPage, SentMessage } from '@convoke/sdk';
import { searchOn, wireSearched } from '../../src/http/routes/searches.ts';
import type { MeetingRow } from '../../src/store/contract/meetings.ts';
import { ENGINES } from '../support/engines.ts';
import { assertProblem, messagesPath, useService } from '../support/service.ts';
import { newMessage } from '../support/store_contents.ts';
import { until } from '../support/wait.ts';

describe('a search', { concurrency: true }, () => {
  const service = useService();

  const send = async (meeting_id: string, content: string, fields: object = {}): Promise<SentMessage> => {
    const answer = await service.post<SentMessage>(messagesPath(meeting_id), { message: { content }, ...fields });
    assert.equal(answer.status, 201, answer.text);
    return answer.body;
  };

  const found = async (query: Record<string, string>): Promise<SearchPage<FoundMessage>> => {
    const answer = await service.get<SearchPage<FoundMessage>>(`/api/v1/messages/?${new URLSearchParams(query)}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  };

  const pushes = async (query: Record<string, string>): Promise<SearchPage<Delivery>> => {
    const answer = await service.get<SearchPage<Delivery>>(`/api/v1/deliveries/?${new URLSearchParams(query)}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  };

  test('finds a message by its id, by the webhook-id of a push, by its number and by its text, also when nobody got it', async (t) => {
    const meeting_id = service.name('meeting');
    const nobody = await send(meeting_id, `before anybody came ${meeting_id}`);
    const { receiver } = await service.member(t, meeting_id);
    const sent = await send(meeting_id, `the question ${meeting_id}`);
    await service.settled(sent);
    const webhook_id = String(receiver.requests.at(-1)!.headers['webhook-id']);
    for (const query of [
      { id: sent.message_id },
      { id: webhook_id },
      { id: webhook_id, meeting_id, seq: '2', text: 'The QUESTION', since: sent.accepted_at },
      { meeting_id, seq: '2' },
      { text: `THE QUESTION ${meeting_id}` },
    ] as Record<string, string>[]) {
      const { data, next_cursor } = await found(query);
      assert.deepEqual([data.map(({ message_id }) => message_id), next_cursor], [[sent.message_id], null]);
    }
    const [lost] = (await found({ text: `before anybody came ${meeting_id}` })).data;
    assert.deepEqual(
      [lost?.message_id, lost?.meeting_id, lost?.seq, lost?.deliveries_queued],
      [nobody.message_id, meeting_id, 1, 0],
    );
    for (const query of [
      { id: webhook_id, meeting_id: 'elsewhere' },
      { id: webhook_id, text: 'another text' },
      { id: webhook_id, seq: '1' },
      { id: webhook_id, until: sent.accepted_at },
      { id: 'dlv_none' },
      { meeting_id, seq: '9' },
    ])
      assert.deepEqual(await found(query as Record<string, string>), { data: [], next_cursor: null });
  });

  test('returns a message as it was written', async () => {
    const meeting_id = service.name('meeting');
    await service.sendText(meeting_id, '{"b": 1.50, "a":12345678901234567890}');
    const { text } = await service.get(`/api/v1/messages/?meeting_id=${meeting_id}`);
    assert.ok(text.includes('"message":{"b": 1.50, "a":12345678901234567890}'), text);
  });

  test('refuses what fits no search, and names the field', async () => {
    for (const [path, field] of [
      ['/api/v1/messages/?seq=-1', 'seq'],
      ['/api/v1/messages/?text=', 'text'],
      [`/api/v1/messages/?text=${'x'.repeat(201)}`, 'text'],
      ['/api/v1/messages/?since=yesterday', 'since'],
      ['/api/v1/deliveries/?until=2026-02-30T00:00:00Z', 'until'],
      ['/api/v1/deliveries/?status_code=99', 'status_code'],
      ['/api/v1/deliveries/?outcome=bad', 'outcome'],
      ['/api/v1/deliveries/?agent_id=', 'agent_id'],
      ['/api/v1/deliveries/?text=x&cursor=garbage', 'cursor'],
    ] as const) {
      const problem = assertProblem(await service.get(path), 422, 'invalid_fields');
      assert.equal(problem.errors?.[0]?.path, field, path);
    }
  });

  test('finds the deliveries of an agent in all meetings, and those with a certain status of the response', async (t) => {
    const [here, there] = [service.name('meeting'), service.name('meeting')];
    const agent_id = service.name('agent');
    const good = await service.member(t, here, { agent_ids: [agent_id, 'another'] });
    await service.join(there, good.instance_id, [agent_id]);
    const bad = await service.member(t, here, { agent_ids: ['another'], behaviour: { status: 202 } });
    const sent = [
      await send(here, 'one'),
      await send(there, 'two'),
      await send(here, 'for another', { target_agents: ['another'] }),
    ];
    for (const { message_id } of sent)
      await until(
        'every delivery of it is settled',
        () => pushes({ message_id }),
        ({ data }) => data.every(({ state }) => state !== 'pending'),
      );
    const of_agent = (await pushes({ agent_id })).data;
    assert.deepEqual(
      of_agent.map(({ message_id }) => message_id),
      [sent[1]!.message_id, sent[0]!.message_id],
    );
    const failed = (await pushes({ status_code: '202', meeting_id: here })).data;
    assert.deepEqual(
      failed.map(({ instance_id }) => instance_id),
      [bad.instance_id, bad.instance_id],
    );
    assert.deepEqual((await pushes({ outcome: 'not_200', instance_id: good.instance_id })).data, []);
    assert.equal((await pushes({ outcome: 'ok', instance_id: good.instance_id, text: 'TWO' })).data.length, 1);
    const { accepted_at } = sent[0]!;
    assert.deepEqual((await pushes({ instance_id: good.instance_id, until: accepted_at })).data, []);
    assert.equal((await pushes({ instance_id: good.instance_id, since: accepted_at })).data.length, 3);
  });

  test('finds meetings and instances in one request, although each call of the store reads few rows', async (t) => {
    const last = service.name('zz-last');
    for (let n = 0; n < 30; n++) await send(service.name('a'), 'x');
    await send(last, 'x');
    const { instance_id } = await service.member(t, service.name('a'), { registration: { instance_name: last } });
    const meetings = await service.get<SearchPage<Meeting>>(`/api/v1/meetings/?limit=1&q=${last}`);
    assert.deepEqual(
      [meetings.body.data.map(({ meeting_id }) => meeting_id), meetings.body.searched_to],
      [[last], undefined],
    );
    const instances = await service.get<SearchPage<Instance>>(`/api/v1/instances/?limit=1&paused=false&q=${last}`);
    assert.deepEqual(
      [instances.body.data.map((instance) => instance.instance_id), instances.body.searched_to],
      [[instance_id], undefined],
    );
  });

  test('asks the rules of one membership only', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id, { agent_ids: ['a'] });
    await service.member(t, meeting_id, { agent_ids: ['b'] });
    const answer = await service.get<{ data: { instance_id: string; why: string }[] }>(
      `/api/v1/meetings/${meeting_id}/explain/?target_agents=b&instance_id=${instance_id}`,
    );
    assert.deepEqual(
      answer.body.data.map((row) => [row.instance_id, row.why]),
      [[instance_id, 'nobody_named']],
    );
  });
});

describe('one request', () => {
  const fill = async (t: TestContext) => {
    const store = await ENGINES[0]!.open(t);
    for (let k = 1; k <= 50; k++)
      await store.messages.accept([
        newMessage('m', { message: JSON.stringify({ content: k === 2 ? 'needle' : 'hay' }) }),
      ]);
    return (page: { limit: number; cursor: string | undefined }) =>
      store.messages.search({ ...page, text: 'needle' }, { rows: 10, bytes: 2 ** 30 });
  };
  const chars = ({ message }: { message: string }): number => message.length;

  test('searches on through empty parts, until it has the requested number', async (t) => {
    const search = await fill(t);
    const page = await searchOn({ limit: 1 }, { clock: { now: () => 0 }, ms_max: 400 }, chars, search);
    assert.deepEqual([page.data.map(({ seq }) => seq), page.searched_to], [[2], null]);
  });

  test('ends when it has taken long enough, says how far it got, and the next one continues there', async (t) => {
    const search = await fill(t);
    let now = 0;
    const slow = { clock: { now: () => (now += 250) }, ms_max: 400 };
    const first = await searchOn({ limit: 1_000 }, slow, chars, search);
    assert.equal(first.data.length, 0);
    assert.notEqual(first.searched_to, null);
    const cursor = first.next_cursor ?? undefined;
    const second = await searchOn({ limit: 1, cursor }, { clock: { now: () => 0 }, ms_max: 400 }, chars, search);
    assert.deepEqual(
      second.data.map(({ seq }) => seq),
      [2],
    );
  });

  test('reads a thousand rows however late it is: on a busy service a page is not short after a few', async (t) => {
    const late = { clock: { now: () => Infinity }, ms_max: 400 };
    const page = await searchOn({ limit: 1 }, late, chars, await fill(t));
    assert.deepEqual([page.data.map(({ seq }) => seq), page.searched_to], [[2], null]);
  });

  test('does not say how far it came when its page is full', async (t) => {
    const store = await ENGINES[0]!.open(t);
    for (const meeting_id of ['a1', 'a2', 'b', 'c']) await store.messages.accept([newMessage(meeting_id)]);
    const page = await searchOn<MeetingRow, string>(
      { limit: 2 },
      { clock: { now: () => 0 }, ms_max: 400 },
      () => 0,
      ({ cursor }) => store.meetings.list({ limit: 2, q: 'a', cursor }, null, { rows: 3, bytes: 2 ** 30 }),
    );
    assert.deepEqual([page.data.length, page.searched_to, page.next_cursor === null], [2, null, false]);
  });

  test('says to which id it came, in a list in the order of ids', async (t) => {
    const store = await ENGINES[0]!.open(t);
    for (const meeting_id of ['a', 'b', 'c']) await store.messages.accept([newMessage(meeting_id)]);
    const slow = { clock: { now: () => Infinity }, ms_max: 400 };
    const page = await searchOn<MeetingRow, string>(
      { limit: 1_000 },
      slow,
      () => 0,
      ({ cursor }) => store.meetings.list({ limit: 1, q: 'c', cursor }, null, { rows: 2, bytes: 2 ** 30 }),
    );
    assert.equal(wireSearched(page).searched_to, 'b');
  });

  test('ends after so many reads, however fast they are', async () => {
    let reads = 0;
    const page = await searchOn({ limit: 1 }, { clock: { now: () => 0 }, ms_max: 400 }, chars, async () => {
      reads++;
      return { data: [], next_cursor: 'next', searched_to: 1 };
    });
    assert.deepEqual([reads, page.next_cursor], [40, 'next']);
  });
});
