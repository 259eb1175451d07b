/** The origin of a message with both databases: the agent that sends the message, and the message that it answers. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { FOLLOWS_MS, type MessageOrigin } from '../../src/domain/message_origin.ts';
import type { Accepted, NewMessage, NewOrigin } from '../../src/store/contract/messages.ts';
import type { Store } from '../../src/store/store.ts';
import { type EngineUnderTest, ENGINES } from '../support/engines.ts';
import { lane, newMessage, register, WALL } from '../support/store_contents.ts';

for (const engine of ENGINES) describe(engine.name, () => storesWhoSays(engine));

const by = (from_agent: string | null, given: Partial<NewOrigin> = {}): NewOrigin => ({
  from_agent,
  in_reply_to: null,
  speaks_for: null,
  ...given,
});

async function send(store: Store, ...batch: NewMessage[]): Promise<Accepted[]> {
  return store.messages.accept(batch);
}

/** Sends one message, which must be accepted. */
async function accepted(store: Store, message: NewMessage) {
  const [result] = await send(store, message);
  assert.ok(result?.kind === 'accepted', JSON.stringify(result));
  return result;
}

const hopsOf = (results: Accepted[]): (number | null)[] =>
  results.map((result) => (result.kind === 'accepted' ? (result.origin?.hops ?? null) : null));

const kindsOf = (results: Accepted[]): string[] =>
  results.map((result) => (result.kind === 'refused' ? `refused ${result.field}` : result.kind));

async function member(store: Store, meeting_id: string, instance_id: string, agent_ids: string[]): Promise<void> {
  await register(store, instance_id);
  await store.meetings.join(meeting_id, instance_id, agent_ids, WALL);
}

function storesWhoSays(engine: EngineUnderTest): void {
  test('a broadcast leaves out the agent that says it, on every instance; one that names it reaches it', async (t) => {
    const store = await engine.open(t);
    await member(store, 'm', 'both', ['b', 'é"\\', 'a']);
    await member(store, 'm', 'same', ['é"\\']);
    await member(store, 'm', 'third', ['a']);
    const origin = by('é"\\');
    const received = async (message: NewMessage) =>
      (await accepted(store, message)).deliveries.map(({ instance_id, target_agents }) => [
        instance_id,
        ...(JSON.parse(target_agents) as string[]),
      ]);
    for (const target_agents of [null, []]) {
      assert.deepEqual(await received(newMessage('m', { origin, target_agents })), [
        ['both', 'b', 'a'],
        ['third', 'a'],
      ]);
    }
    assert.deepEqual(await received(newMessage('m', { origin, target_agents: ['é"\\'] })), [
      ['both', 'é"\\'],
      ['same', 'é"\\'],
    ]);
    // Control: without from_agent every agent gets it.
    assert.equal((await received(newMessage('m'))).flat().length, 3 + 5);
    assert.equal((await received(newMessage('m', { origin: by('nobody') }))).flat().length, 3 + 5);
  });

  test('hops count the messages of agents that led to one', async (t) => {
    const store = await engine.open(t);
    const person = newMessage('m');
    const agent = newMessage('m', { origin: by('a') });
    const elsewhere = newMessage('n', { origin: by('a') });
    assert.deepEqual(hopsOf(await send(store, agent)), [1], 'the first of a meeting');
    assert.deepEqual(hopsOf(await send(store, agent, elsewhere, agent, person, agent, agent)), [2, 1, 3, null, 1, 2]);
    const { message } = await accepted(store, person);
    const answer = (from_agent: string | null) =>
      newMessage('m', { origin: by(from_agent, { in_reply_to: message.message_id }) });
    assert.deepEqual(
      hopsOf(await send(store, agent, agent, answer('b'), agent, answer(null), agent)),
      [1, 2, 1, 2, 0, 1],
    );
    const later = (ms: number) => newMessage('m', { origin: by('a'), wall_ms: WALL + ms });
    assert.deepEqual(hopsOf(await send(store, later(FOLLOWS_MS - 1))), [2]);
    assert.deepEqual(hopsOf(await send(store, later(2 * FOLLOWS_MS - 1))), [1], 'the message before is too old');
  });

  test('an answer to what the meeting does not have is refused, and stores nothing', async (t) => {
    const store = await engine.open(t);
    const there = (await accepted(store, newMessage('m'))).message.message_id;
    const answer = (meeting_id: string, in_reply_to: string) =>
      newMessage(meeting_id, { origin: by(null, { in_reply_to }) });
    const batch = [answer('m', there), answer('new', there), newMessage('m'), answer('m', 'msg_none')];
    assert.deepEqual(kindsOf(await send(store, ...batch)), [
      'accepted',
      'refused in_reply_to',
      'accepted',
      'refused in_reply_to',
    ]);
    assert.deepEqual(kindsOf(await send(store, answer('new', there))), ['refused in_reply_to']);
    assert.equal(await store.messages.list('new', { limit: 1, chars_max: 1 }), null, 'no meeting is made');
    assert.equal((await store.messages.list('m', { limit: 9, chars_max: 1e9 }))?.data.length, 3);
  });

  test('a key speaks for agents of its own instances, in meetings that they are in', async (t) => {
    const store = await engine.open(t);
    const registration = {
      instance_name: 'n',
      webhook_url: 'http://i.test/',
      new_secret: 'whsec_x',
      owner_key_id: 'key',
    };
    const rest = { webhook_headers: undefined, webhook_secret: undefined, success_statuses: undefined };
    for (const instance_id of ['mine', 'left'])
      await store.instances.register({ instance_id, agent_ids: ['a', 'c'], ...registration, ...rest }, WALL);
    await store.meetings.join('m', 'mine', ['a'], WALL);
    await store.meetings.join('m', 'left', ['c'], WALL);
    await store.meetings.leave('m', 'left', WALL);
    await member(store, 'm', 'other', ['b']);
    const as = (from_agent: string, meeting_id = 'm', instance_id: string | null = null, key_id = 'key') =>
      newMessage(meeting_id, { origin: by(from_agent, { speaks_for: { key_id, instance_id } }) });
    const allowed = [as('a'), as('a', 'm', 'mine')];
    const refused = [
      as('b'),
      as('c'),
      as('a', 'n'),
      as('a', 'm', 'other'),
      as('a', 'm', null, 'another'),
      as('nobody'),
    ];
    assert.deepEqual(kindsOf(await send(store, ...allowed, ...refused)), [
      ...allowed.map(() => 'accepted'),
      ...refused.map(() => 'refused from_agent'),
    ]);
  });

  test('a reply speaks for the agents of one instance, no matter who owns it, in the meetings of that instance', async (t) => {
    const store = await engine.open(t);
    await member(store, 'm', 'here', ['a']);
    await member(store, 'm', 'left', ['c']);
    await store.meetings.leave('m', 'left', WALL);
    const as = (from_agent: string, instance_id: string, meeting_id = 'm') =>
      newMessage(meeting_id, { origin: by(from_agent, { speaks_for: { key_id: null, instance_id } }) });
    const batch = [as('a', 'here'), as('c', 'here'), as('c', 'left'), as('a', 'left'), as('a', 'here', 'n')];
    assert.deepEqual(kindsOf(await send(store, ...batch)), [
      'accepted',
      ...batch.slice(1).map(() => 'refused from_agent'),
    ]);
  });

  test('a key of a refused message is free: another message with it in the same batch is judged by itself', async (t) => {
    const store = await engine.open(t);
    const keyed = (origin: NewOrigin | null, fingerprint: string) =>
      newMessage('m', { origin, idempotency: { key: 'k', sender: 'key', fingerprint } });
    const refused = by('nobody', { speaks_for: { key_id: 'key', instance_id: null } });
    const batch = [keyed(refused, 'f'), keyed(refused, 'f'), keyed(null, 'g'), keyed(null, 'g'), keyed(refused, 'f')];
    assert.deepEqual(kindsOf(await send(store, ...batch)), [
      'refused from_agent',
      'refused from_agent',
      'accepted',
      'repeated',
      'key_reused',
    ]);
  });

  test('a repeated key gets the first result, also when the message would be refused by now', async (t) => {
    const store = await engine.open(t);
    await member(store, 'm', 'i', ['a']);
    const first = await accepted(store, newMessage('m'));
    const origin = by('a', { in_reply_to: first.message.message_id });
    const answer = newMessage('m', { origin, idempotency: { key: 'k', sender: '', fingerprint: 'f' } });
    assert.deepEqual(kindsOf(await send(store, answer, answer)), ['accepted', 'repeated']);
    const nowhere = newMessage('m', { ...answer, origin: { ...origin, in_reply_to: 'msg_none' } });
    assert.deepEqual(kindsOf(await send(store, nowhere, newMessage('m'))), ['repeated', 'accepted']);
  });

  test('sender and answered message are listed, replayed and queued with the message, and absent where the send had none', async (t) => {
    const store = await engine.open(t);
    await member(store, 'm', 'i', ['b']);
    const { message } = await accepted(store, newMessage('m'));
    const in_reply_to = message.message_id;
    await send(store, newMessage('m', { origin: by('a', { in_reply_to }) }), newMessage('m', { origin: by('é') }));
    const expected: (MessageOrigin | null)[] = [
      null,
      { from_agent: 'a', in_reply_to, hops: 1 },
      { from_agent: 'é', in_reply_to: null, hops: 2 },
    ];
    const origin = (rows: readonly { origin: MessageOrigin | null }[] | undefined) => rows?.map((row) => row.origin);
    assert.deepEqual(origin((await store.messages.list('m', { limit: 9, chars_max: 1e9 }))?.data), expected);
    assert.deepEqual(origin((await store.messages.since(null, { scan: 9, limit: 9, chars_max: 1e9 })).data), expected);
    assert.deepEqual(origin(await lane(store, 'i', 'm')), expected);
  });

  test('a message leads to what it answers and to its answers, within its meeting', async (t) => {
    const store = await engine.open(t);
    const long = `{"text":"${'\u{1F600}'.repeat(300)}"}`;
    const { message } = await accepted(store, newMessage('m', { message: long }));
    const in_reply_to = message.message_id;
    const answer = (await accepted(store, newMessage('m', { origin: by('a', { in_reply_to }) }))).message.message_id;
    await send(store, newMessage('m'), newMessage('m', { origin: by('b', { in_reply_to: answer }) }), newMessage('n'));
    const last = (await accepted(store, newMessage('m', { origin: by('c', { in_reply_to }) }))).message.message_id;
    const found = await store.messages.get(answer);
    assert.deepEqual([found?.meeting_id, found?.seq, found?.origin?.from_agent], ['m', 2, 'a']);
    assert.equal(await store.messages.get('msg_none'), null);
    const chain = await store.messages.answeredBy(answer, 9);
    assert.deepEqual(
      chain.map(({ seq, excerpt }) => [seq, excerpt]),
      [[1, [...long].slice(0, 200).join('')]],
    );
    const answers = await store.messages.answersTo(in_reply_to, 'm', 1, 9);
    assert.deepEqual(
      answers.data.map(({ message_id }) => message_id),
      [answer, last],
    );
    assert.equal(answers.next_seq, null);
    const first = await store.messages.answersTo(in_reply_to, 'm', 1, 2);
    assert.deepEqual([first.data.length, first.next_seq], [1, 3]);
    assert.deepEqual(await store.messages.answersTo('msg_none', 'n', 0, 9), { data: [], next_seq: null });
    const beneath = await store.messages.answersTo(answer, 'm', 2, 9);
    const deepest = beneath.data[0]!.message_id;
    const distances = (await store.messages.answeredBy(deepest, 9)).map(({ seq }) => seq);
    assert.deepEqual(distances, [2, 1]);
    assert.equal((await store.messages.answeredBy(deepest, 1)).length, 1, 'a limit ends the chain');
  });

  test('a membership is woken by what it says; a join that does not say it changes nothing', async (t) => {
    const store = await engine.open(t);
    for (const wake of ['all', 'targeted', 'people'] as const) {
      await register(store, wake);
      const { membership } = await store.meetings.join('m', wake, ['a'], WALL, null, wake === 'all' ? {} : { wake });
      assert.equal(membership.wake, wake);
    }
    const woken = async (changes: Partial<NewMessage>) =>
      (await accepted(store, newMessage('m', changes))).deliveries.map(({ instance_id }) => instance_id);
    const asked = async () => [
      await woken({}),
      await woken({ target_agents: ['a'] }),
      await woken({ target_agents: [], origin: by('x') }),
      await woken({ target_agents: ['a'], origin: by('x') }),
      await woken({ origin: by(null, { in_reply_to: (await store.messages.last()) as string }) }),
    ];
    const expected = [
      ['all', 'people'],
      ['all', 'people', 'targeted'],
      ['all'],
      ['all', 'targeted'],
      ['all', 'people'],
    ];
    assert.deepEqual(await asked(), expected);
    await store.meetings.leave('m', 'targeted', WALL);
    const again = await store.meetings.join('m', 'targeted', ['a'], WALL);
    assert.equal(again.membership.wake, 'targeted');
    assert.deepEqual(await asked(), expected);
    const page = await store.meetings.instances('m', { limit: 9 });
    assert.deepEqual(
      page?.data.map(({ wake }) => wake),
      ['all', 'people', 'targeted'],
    );
    await store.meetings.join('m', 'people', ['a'], WALL, null, { wake: 'all' });
    assert.deepEqual(await woken({ origin: by('x') }), ['all', 'people']);
  });
}
