/** Many messages in one request: each message is accepted or refused separately, in the order of the list. */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { MessagePage, SendResult, SentMessages } from '@convoke/sdk';
import type { SettingName } from '../../src/config/settings.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine } from '../support/pulling.ts';
import { pushOf } from '../support/receiver.ts';
import { assertProblem, messagesPath, ON_A_FILE, type Service, startService, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const PATH = '/api/v1/messages/';

async function sendAll(service: Service, messages: object[], token?: string): Promise<SendResult[]> {
  const headers: Record<string, string> = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const answer = await service.post<SentMessages>(PATH, { messages }, headers);
  assert.equal(answer.status, 200, answer.text);
  assert.equal(answer.body.results.length, messages.length);
  return answer.body.results;
}

/** An object of this depth. */
const nested = (levels: number) => JSON.parse(`${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`) as object;

const upTo = (count: number) => Array.from({ length: count }, (_, n) => n + 1);

async function textsOf(service: Service, meeting_id: string): Promise<unknown[]> {
  const texts: unknown[] = [];
  for (let after_seq = 0; ;) {
    const path = `${messagesPath(meeting_id)}?after_seq=${after_seq}&limit=200`;
    const { data, has_more } = (await service.get<MessagePage>(path)).body;
    texts.push(...data.map(({ message }) => message['n']));
    if (!has_more) return texts;
    after_seq = data.at(-1)!.seq;
  }
}

for (const store of ['SQLite', 'PostgreSQL'] as const) {
  describe(`many messages in one request on ${store}`, { concurrency: true }, () => {
    const settings: Partial<Record<SettingName, string>> = { ...ON_A_FILE };
    if (store === 'PostgreSQL') before(async () => void (settings.database_url = await makeDatabase()));
    const service = useService(settings);

    test('are stored and pushed in the order of the list in each meeting, as they were written', async (t) => {
      const meetings = [service.name('meeting'), service.name('meeting')];
      const members = [];
      for (const meeting_id of meetings) members.push(await service.member(t, meeting_id));
      const texts = upTo(500).map((n) => `{"n":${n},"big":12345678901234567890,"big":1.10}`);
      const items = texts.map((text, i) => `{"meeting_id":"${meetings[i % 2]}","message": ${text} }`);
      const answer = await service.post<SentMessages>(PATH, `{"messages":[${items.join(',')}]}`);
      assert.equal(answer.status, 200, answer.text);
      const sent = answer.body.results.map(({ message }) => [message?.meeting_id, message?.seq]);
      const expected = upTo(500).map((n) => [meetings[(n + 1) % 2], Math.ceil(n / 2)]);
      assert.deepEqual(sent, expected);
      for (const [m, { receiver }] of members.entries()) {
        const pushed = (await receiver.count(250)).map(({ body }) => /"message":(\{.*?\})/.exec(body.toString())?.[1]);
        assert.deepEqual(
          pushed,
          texts.filter((_, i) => i % 2 === m),
        );
      }
    });

    test('keep their order when they have too many deliveries for one transaction, and others send as well', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      // Machines that pull: their deliveries are stored, and no pushes of theirs keep a slow machine busy for a minute.
      await Promise.all(upTo(30).map(() => PullingMachine.start(service, [meeting_id])));
      const lists = upTo(4).map((list) => upTo(200).map((n) => ({ meeting_id, message: { n: list * 1000 + n } })));
      const alone = upTo(20).map((n) => service.send(meeting_id, { n }));
      await Promise.all([...lists.map((list) => sendAll(service, list)), ...alone]);
      const stored = (await textsOf(service, meeting_id)) as number[];
      assert.equal(stored.length, 820);
      for (const [i, list] of lists.entries()) {
        const of_list = stored.filter((n) => Math.floor(n / 1000) === i + 1);
        assert.deepEqual(
          of_list,
          list.map(({ message }) => message.n),
        );
      }
      const pushed: number[] = [];
      // Waits for each of them, and not for all: a slow machine needs long for so many.
      while (pushed.length < 820) pushed.push((pushOf(await receiver.next()).message as { n: number }).n);
      assert.deepEqual(pushed, stored);
    });

    test('get the same problem as alone when one of them is bad, and the others are stored', async () => {
      const meeting_id = service.name('meeting');
      const key = { idempotency_key: `key ${meeting_id}` };
      assert.equal((await sendAll(service, [{ meeting_id, message: { n: 0 }, ...key }]))[0]?.status, 201);
      const bad: [item: object, status: number, path: string | null][] = [
        [{ meeting_id }, 422, 'message'],
        [{ meeting_id, message: 'text' }, 422, 'message'],
        [{ meeting_id, message: {}, target_agent: [] }, 422, 'target_agent'],
        [{ meeting_id, message: {}, target_agents: upTo(2000).map(String) }, 422, 'target_agents'],
        [{ meeting_id, message: {}, in_reply_to: 'msg_00000000000000000000' }, 422, 'in_reply_to'],
        [{ meeting_id, message: { long: 'x'.repeat(300_000) } }, 413, null],
        [{ meeting_id, message: { n: 'another' }, ...key }, 409, null],
        [{ meeting_id: '..', message: {} }, 422, 'meeting_id'],
        [{ meeting_id: 1.5, message: {} }, 422, 'meeting_id'],
        [{ message: {} }, 422, 'meeting_id'],
        [{ meeting_id, message: {}, idempotency_key: ' ' }, 422, 'idempotency_key'],
        [[], 422, ''],
        [{ meeting_id, message: nested(100) }, 400, null],
        [{ meeting_id, message: nested(2_000) }, 400, null],
      ];
      const items = bad.flatMap(([item], i) => [item, { meeting_id, message: { n: i + 1 } }]);
      const results = await sendAll(service, items);
      for (const [i, [item, status, path]] of bad.entries()) {
        const { problem, message } = results[2 * i]!;
        const what = JSON.stringify(item).slice(0, 100);
        assert.equal(message, undefined, what);
        assert.equal(results[2 * i]!.status, status, what);
        assert.equal(problem?.status, status, what);
        if (path !== null)
          assert.deepEqual(
            problem.errors?.map((error) => error.path),
            [path],
            what,
          );
        assert.equal(results[2 * i + 1]?.status, 201, what);
        if (!('meeting_id' in item) || item.meeting_id !== meeting_id) continue;
        const { meeting_id: _, idempotency_key, ...body } = item as { meeting_id: string; idempotency_key?: string };
        const headers: Record<string, string> =
          idempotency_key === undefined ? {} : { 'idempotency-key': idempotency_key };
        if (idempotency_key === ' ') continue;
        const alone = await service.post<object>(messagesPath(meeting_id), body, headers);
        assert.deepEqual(alone.body, problem, what);
      }
      assert.deepEqual(await textsOf(service, meeting_id), [0, ...upTo(bad.length)]);
    });

    test('are stored once, however often they are sent with their idempotency keys, also twice in one list', async () => {
      const meeting_id = service.name('meeting');
      const items = [1, 2, 2, 3].map((n) => ({ meeting_id, message: { n }, idempotency_key: `${meeting_id} ${n}` }));
      const first = await sendAll(service, items);
      const second = await sendAll(service, items);
      assert.deepEqual(
        first.map(({ replayed = false }) => replayed),
        [false, false, true, false],
      );
      assert.deepEqual(
        second.map(({ replayed }) => replayed),
        [true, true, true, true],
      );
      assert.deepEqual(
        second.map(({ message }) => message),
        first.map(({ message }) => message),
      );
      assert.deepEqual(await textsOf(service, meeting_id), [1, 2, 3]);
      const alone = await service.post(
        messagesPath(meeting_id),
        { message: { n: 1 } },
        { 'idempotency-key': `${meeting_id} 1` },
      );
      assert.equal(alone.headers['idempotency-replayed'], 'true');
    });

    test('are refused with an Idempotency-Key for the whole request, which cannot keep them from a second time', async () => {
      const meeting_id = service.name('meeting');
      await service.send(meeting_id, { n: 0 });
      const messages = [{ meeting_id, message: { n: 1 } }];
      const answer = await service.post(PATH, { messages }, { 'idempotency-key': 'of all' });
      assertProblem(answer, 422, 'invalid_fields');
      assert.match(
        answer.text,
        /Idempotency-Key is a header for one message: give each message its own idempotency_key/,
      );
      assert.deepEqual(await textsOf(service, meeting_id), [0]);
    });

    test('are refused as a whole when the list is none, is empty, or is too long', async () => {
      const meeting_id = service.name('meeting');
      const item = { meeting_id, message: {} };
      for (const messages of [undefined, null, {}, [], upTo(501).map(() => item)]) {
        const { errors } = assertProblem(await service.post(PATH, { messages }), 422, 'invalid_fields');
        assert.deepEqual(
          errors?.map(({ path }) => path),
          ['messages'],
        );
      }
      assertProblem(await service.post(PATH, `{"messages":[{},]}`), 400, 'malformed_json');
      assertProblem(
        await service.post(PATH, { messages: [{ ...item, message: { x: 'x'.repeat(4 << 20) } }] }),
        413,
        'body_too_large',
      );
      assertProblem(await service.get(messagesPath(meeting_id)), 404, 'meeting_does_not_exist');
    });
  });
}

for (const store of ['SQLite', 'PostgreSQL'] as const) {
  test(`${store}: when the key of a list is revoked meanwhile, the rest of the list is refused`, async (t) => {
    const service = await startService(t, store === 'SQLite' ? ON_A_FILE : { database_url: await makeDatabase() });
    await service.endOpenMode();
    const { key_id, token } = await service.createKey({ scopes: ['send'] });
    // The lists of agents are so long that a transaction has only a few messages.
    const agents = upTo(1_000).map((n) => String(n).padStart(39, 'x'));
    for (const n of upTo(30)) {
      const body = { instance_id: `i${n}`, instance_name: 'x', agent_ids: ['a'], transport: 'pull' };
      assert.equal((await service.post('/api/v1/instances/register/', body)).status, 201);
      await service.join('m', `i${n}`, agents);
    }
    const results = sendAll(
      service,
      upTo(500).map((n) => ({ meeting_id: 'm', message: { n } })),
      token,
    );
    await until(
      'the first message',
      () => service.get(messagesPath('m')),
      ({ status }) => status === 200,
    );
    assert.equal((await service.request('DELETE', `/api/v1/keys/${key_id}/`)).status, 204);
    const codes = (await results).map(({ status, problem }) => problem?.code ?? status);
    const stored = codes.lastIndexOf(201) + 1;
    assert.ok(stored > 0 && stored < 500, String(stored));
    assert.deepEqual(new Set(codes.slice(stored)), new Set(['api_key_revoked']));
    assert.equal((await textsOf(service, 'm')).length, stored);
  });
}

test('each message counts against the limit of its key, and the first that is too many stops the list', async (t) => {
  const service = await startService(t, { send_rate: '1/m:3' });
  await service.endOpenMode();
  const { token } = await service.createKey({ scopes: ['send'] });
  const items = [{}, ...upTo(5).map((n) => ({ meeting_id: 'm', message: { n } }))];
  const results = await sendAll(service, items, token);
  assert.deepEqual(
    results.map(({ status }) => status),
    [422, 201, 201, 201, 429, 429],
  );
  assert.equal(results[4]?.problem?.code, 'rate_limited');
  assert.ok(results[4].retry_after_s !== undefined && results[4].retry_after_s > 0);
  assert.deepEqual(await textsOf(service, 'm'), [1, 2, 3]);
});

test('a key sends only in its meetings, and as its own agents, with each item', async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const limited = await service.createKey({ scopes: ['send'], meeting_ids: ['mine'] });
  const owner = await service.createKey({ scopes: ['instance'] });
  const body = { instance_id: 'i', instance_name: 'i', agent_ids: ['a'], webhook_url: 'http://127.0.0.1:9/' };
  const headers = { authorization: `Bearer ${owner.token}` };
  assert.equal((await service.post('/api/v1/instances/register/', body, headers)).status, 201);
  const join = { instance_id: 'i', meeting_id: 'mine', agent_ids: ['a'] };
  assert.equal((await service.post('/api/v1/instances/join-meeting/', join, headers)).status, 201);

  const message = {};
  const by_meeting = await sendAll(
    service,
    ['mine', 'other', 'mine'].map((meeting_id) => ({ meeting_id, message })),
    limited.token,
  );
  assert.deepEqual(
    by_meeting.map(({ status }) => status),
    [201, 403, 201],
  );
  const speakers = [{}, { from_agent: 'a' }, { from_agent: 'b' }];
  const by_agent = await sendAll(
    service,
    speakers.map((from) => ({ meeting_id: 'mine', message, ...from })),
    owner.token,
  );
  assert.deepEqual(
    by_agent.map(({ status }) => status),
    [403, 201, 403],
  );
  const reader = await service.createKey({ scopes: ['read'] });
  assertProblem(
    await service.post(
      PATH,
      { messages: [{ meeting_id: 'mine', message }] },
      { authorization: `Bearer ${reader.token}` },
    ),
    403,
    'not_permitted',
  );
});
