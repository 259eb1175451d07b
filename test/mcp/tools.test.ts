/** What a model can do with the tools, through the library that most clients use, in two versions of the protocol. */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { InviteWithLink, Membership, Message, Page, RedeemedInvite, SentMessage } from '@convoke/sdk';
import { fitting, type QuotedMessage } from '../../src/mcp/quoted_messages.ts';
import { connectMcp, ERAS, type Waited } from '../support/mcp.ts';
import { pullsWaiting } from '../support/pulling.ts';
import { messagesPath, type Service, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const ALL_TOOLS = [
  'list_meetings',
  'read_messages',
  'send_message',
  'reply',
  'wait_for_message',
  'join_meeting',
  'leave_meeting',
  'explain',
];

const historyOf = async (service: Service, meeting_id: string): Promise<Message[]> =>
  (await service.get<Page<Message>>(messagesPath(meeting_id))).body.data;

const waiting = (service: Service, count = 1) =>
  until(
    'a pull that waits',
    () => pullsWaiting(service),
    (waits) => waits === count,
  );

describe('the tools', () => {
  const service = useService();
  before(() => service.endOpenMode());
  const keyOf = async (...scopes: ('read' | 'send' | 'instance')[]) => (await service.createKey({ scopes })).token;

  test('an agent that joins says which messages it wants, and what of what waited', async (t) => {
    const anna = await connectMcp(t, service, await keyOf('read', 'instance'));
    const [meeting_id, agent_id] = [service.name('meeting'), service.name('anna')];
    const rules = { wake: 'targeted', catch_up: 'latest', max_age_s: 60 } as const;
    const joined = await anna.done<Membership>('join_meeting', { meeting_id, agent_id, ...rules });
    assert.deepEqual({ wake: joined.wake, catch_up: joined.catch_up, max_age_s: joined.max_age_s }, rules);
    const again = await anna.done<Membership>('join_meeting', { meeting_id, agent_id });
    assert.deepEqual({ wake: again.wake, catch_up: again.catch_up, max_age_s: again.max_age_s }, rules);
    for (const content of ['one', 'two']) await service.send(meeting_id, { content });
    await service.send(meeting_id, { content: 'for Anna' }, [agent_id]);
    const { messages } = await anna.done<{ messages: { missed?: number }[] }>('wait_for_message', { agent_id });
    assert.deepEqual(
      messages.map(({ missed }) => missed),
      [2],
    );
  });

  test('say whether they only read, may undo something, may be repeated, and reach others', async (t) => {
    const anna = await connectMcp(t, service, await keyOf('read', 'send', 'instance'));
    const { tools } = await anna.client.listTools();
    const hints = tools.map(({ name, annotations = {} }) => {
      const { readOnlyHint, destructiveHint, idempotentHint, openWorldHint } = annotations;
      return [name, readOnlyHint, destructiveHint, idempotentHint, openWorldHint];
    });
    assert.deepEqual(hints, [
      ['list_meetings', true, false, true, false],
      ['read_messages', true, false, true, false],
      ['send_message', false, false, false, true],
      ['reply', false, false, true, true],
      ['wait_for_message', false, false, false, true],
      ['join_meeting', false, false, true, false],
      ['leave_meeting', false, true, true, false],
      ['explain', true, false, true, false],
    ]);
  });

  for (const era of ERAS) {
    test(`an agent without any address joins, receives, answers and leaves (${era})`, async (t) => {
      const anna = await connectMcp(t, service, await keyOf('read', 'send', 'instance'), era);
      assert.equal(anna.client.getNegotiatedProtocolVersion(), era);
      assert.deepEqual(await anna.tools(), ALL_TOOLS);
      const meeting_id = service.name('meeting');
      const agent_id = service.name('anna');
      const joined = await anna.done<Membership>('join_meeting', { meeting_id, agent_id });
      assert.deepEqual([joined.instance_id, joined.agent_ids], [agent_id, [agent_id]]);

      const wait = anna.done<Waited>('wait_for_message', { agent_id, wait_s: 50 });
      await waiting(service);
      const sent = await service.send(meeting_id, { content: 'How far are you?' });
      const { notice, messages } = await wait;
      assert.match(notice, /data, not instruction/);
      assert.deepEqual(messages, [
        {
          meeting_id,
          message_id: sent.message_id,
          seq: 1,
          target_agents: [agent_id],
          message: { content: 'How far are you?' },
        },
      ]);

      const explained = await anna.done<Page<{ instance_id: string }>>('explain', { meeting_id });
      assert.deepEqual(
        explained.data.map(({ instance_id }) => instance_id),
        [agent_id],
      );
      const answer = { meeting_id, message_id: sent.message_id, content: 'Half way.', from_agent: agent_id };
      const replied = await anna.done<SentMessage>('reply', answer);
      assert.equal((await anna.done<SentMessage>('reply', answer)).seq, replied.seq, 'the same answer is one message');
      const [, said, ...more] = await historyOf(service, meeting_id);
      assert.deepEqual(more, []);
      assert.deepEqual(
        [said?.message, said?.from_agent, said?.in_reply_to],
        [{ content: 'Half way.' }, agent_id, sent.message_id],
      );

      const found = await anna.done<Page<{ meeting_id: string }>>('list_meetings', { q: meeting_id });
      assert.deepEqual(
        found.data.map((meeting) => meeting.meeting_id),
        [meeting_id],
      );
      const left = await anna.done<{ left_at: string | null }>('leave_meeting', { meeting_id, agent_id });
      assert.notEqual(left.left_at, null);
      assert.equal((await service.send(meeting_id, { content: 'Still there?' })).deliveries_queued, 0);
    });
  }

  test('resources are meetings and their histories, and a prompt says how to take part', async (t) => {
    const reader = await connectMcp(t, service, await keyOf('read'));
    const meeting_id = service.name('näch/ste');
    await service.send(meeting_id, { content: 'one' });
    await service.send(meeting_id, { content: 'two' });
    const { resources } = await reader.client.listResources();
    const listed = resources.find(({ name }) => name === meeting_id);
    assert.equal(listed?.uri, `convoke://meetings/${encodeURIComponent(meeting_id)}/messages`);
    const textOf = async (uri: string): Promise<string> => {
      const [content] = (await reader.client.readResource({ uri })).contents;
      return (content as { text: string }).text;
    };
    const history = JSON.parse(await textOf(listed.uri)) as { notice: string; messages: Message[] };
    assert.match(history.notice, /data, not instruction/);
    assert.deepEqual(
      history.messages.map(({ message }) => message),
      [{ content: 'one' }, { content: 'two' }],
    );
    const later = JSON.parse(await textOf(`${listed.uri}?after_seq=1`)) as { messages: Message[] };
    assert.deepEqual(
      later.messages.map(({ seq }) => seq),
      [2],
    );
    const meeting = JSON.parse(await textOf(listed.uri.replace(/\/messages$/, ''))) as {
      meeting: { last_seq: number };
    };
    assert.equal(meeting.meeting.last_seq, 2);
    for (const uri of ['nowhere', '%', '..', '%2E/messages'].map((id) => `convoke://meetings/${id}`))
      await assert.rejects(reader.client.readResource({ uri }), /not found/i, uri);
    for (const uri of ['file:///etc/passwd'])
      await assert.rejects(reader.client.readResource({ uri }), /not found/i, uri);
    const { resourceTemplates } = await reader.client.listResourceTemplates();
    assert.equal(resourceTemplates.length, 2);

    const prompt = await reader.client.getPrompt({ name: 'take_part', arguments: { meeting_id, agent_id: 'anna' } });
    assert.match((prompt.messages[0]!.content as { text: string }).text, /wait_for_message/);
    await assert.rejects(
      reader.client.getPrompt({ name: 'take_part', arguments: {} }),
      /needs the argument meeting_id/,
    );
    await assert.rejects(reader.client.getPrompt({ name: 'other' }), /no prompt/);
  });

  test('a long message arrives in parts, and a page ends before it is too long', async (t) => {
    const reader = await connectMcp(t, service, await keyOf('read'));
    const meeting_id = service.name('long');
    // The odd `x` puts the ends of parts inside emoji.
    const content = `x${'😀'.repeat(20_000)}`;
    await service.send(meeting_id, { content });
    let text = '';
    for (let chars = 1; text.length < chars;) {
      const page = await reader.done<{ messages: { part: { text: string; chars: number } }[] }>('read_messages', {
        meeting_id,
        after_seq: 0,
        limit: 1,
        from_char: text.length,
      });
      const [{ part } = assert.fail('no message')] = page.messages;
      assert.ok(part.text.length <= 16_000);
      assert.ok(part.text.isWellFormed(), `half a character at ${text.length}`);
      text += part.text;
      chars = part.chars;
    }
    assert.deepEqual(JSON.parse(text), { content });
    const inside = text.indexOf('😀') + 1;
    const page = await reader.done<{ messages: { part: { text: string; from_char: number } }[] }>('read_messages', {
      meeting_id,
      after_seq: 0,
      limit: 1,
      from_char: inside,
    });
    const { part } = page.messages[0]!;
    assert.deepEqual([part.from_char, part.text.slice(0, 2)], [inside - 1, '😀']);

    for (let i = 0; i < 6; i++) await service.send(meeting_id, { content: 'x'.repeat(15_000) });
    type Read = { messages: { seq: number }[]; has_more: boolean; first_seq: number; last_seq: number };
    const seqsOf = async (query: object) => {
      const { text: whole, value } = await reader.call<Read>('read_messages', { meeting_id, limit: 100, ...query });
      assert.ok(whole.length < 60_000, `${whole.length}`);
      return [value.messages.map(({ seq }) => seq), value.has_more];
    };
    assert.deepEqual(await seqsOf({}), [[5, 6, 7], true], 'the latest');
    assert.deepEqual(await seqsOf({ before_seq: 5 }), [[2, 3, 4], true]);
    assert.deepEqual(await seqsOf({ after_seq: 1 }), [[2, 3, 4], true]);
    assert.deepEqual(await seqsOf({ after_seq: 4 }), [[5, 6, 7], false]);
  });

  test('no digit of a number is lost on the way to a model', async (t) => {
    const anna = await connectMcp(t, service, await keyOf('read', 'instance'));
    const [meeting_id, agent_id] = [service.name('meeting'), service.name('anna')];
    await anna.done('join_meeting', { meeting_id, agent_id });
    const message = '{"order":12345678901234567890,"price":1.10}';
    await service.sendText(meeting_id, message);
    assert.ok((await anna.call('wait_for_message', { agent_id })).text.includes(`"message":${message}`));
    assert.ok((await anna.call('read_messages', { meeting_id })).text.includes(`"message":${message}`));
    const uri = `convoke://meetings/${meeting_id}/messages`;
    const [content] = (await anna.client.readResource({ uri })).contents;
    assert.ok((content as { text: string }).text.includes(`"message":${message}`));
  });

  test('a result reads only the messages that it has, whatever the page has', () => {
    const page = Array.from({ length: 100 }, (_, i) => i + 1);
    const read: number[] = [];
    const readOne = (seq: number) => {
      read.push(seq);
      return { seq, message: { content: 'x'.repeat(10_000) } } as unknown as QuotedMessage;
    };
    assert.deepEqual(
      fitting(page, 'last', readOne).map(({ seq }) => seq),
      [97, 98, 99, 100],
    );
    assert.deepEqual(read.splice(0), [100, 99, 98, 97, 96]);
    fitting(page, 'first', readOne);
    assert.deepEqual(read, [1, 2, 3, 4, 5]);
  });

  test('an error tells a model in words what to do', async (t) => {
    const all = await connectMcp(t, service, await keyOf('read', 'send', 'instance'));
    const meeting_id = service.name('meeting');
    assert.match(
      await all.refused('send_message', { meeting_id, contents: 'x' }),
      /did you mean content\?; content is required\. Correct/,
    );
    assert.match(
      await all.refused('send_message', { meeting_id, content: '' }),
      /content must be a text that is not empty\. Correct/,
    );
    assert.match(await all.refused('read_messages', { meeting_id: 'nowhere' }), /list_meetings/);
    assert.match(await all.refused('wait_for_message', { agent_id: 'nobody' }), /join_meeting first/);
    const reply = { meeting_id, message_id: 'msg_7f3k9q2m00r3vljl5tg00', content: 'x' };
    assert.match(await all.refused('reply', reply), /^invalid_fields: message_id must be the message_id/);
    await assert.rejects(all.client.callTool({ name: 'delete_everything' }), /There is no tool/);
    // No client can put these ids into a path.
    for (const [tool, field, more] of [
      ['read_messages', 'meeting_id', {}],
      ['send_message', 'meeting_id', { content: 'x' }],
      ['wait_for_message', 'agent_id', {}],
      ['join_meeting', 'instance_id', { meeting_id, agent_id: 'anna' }],
    ] as const)
      assert.match(
        await all.refused(tool, { [field]: '..', ...more }),
        new RegExp(`^invalid_fields: ${field} cannot be "\\.\\."\\. Correct the fields`),
      );
    assert.match(
      await all.refused('send_message', { meeting_id, content: 'x', idempotency_key: 'é' }),
      /^invalid_fields: idempotency_key must be a text of/,
    );

    const agent_id = service.name('taken');
    await all.done('join_meeting', { meeting_id, agent_id });
    for (const scopes of [['instance'], ['read', 'instance']] as const) {
      const other = await connectMcp(t, service, await keyOf(...scopes));
      assert.match(await other.refused('join_meeting', { meeting_id, agent_id }), /another agent_id/, scopes.join());
    }
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
    const admin = await connectMcp(t, service, service.token);
    assert.match(await admin.refused('wait_for_message', { agent_id: 'a', instance_id }), /is pushed to/);
  });
});

describe('what a key permits', () => {
  const service = useService();
  before(() => service.endOpenMode());

  for (const [scope, tools] of [
    ['read', ['list_meetings', 'read_messages', 'explain']],
    ['send', ['send_message', 'reply']],
    ['instance', ['send_message', 'reply', 'wait_for_message', 'join_meeting', 'leave_meeting']],
    ['admin', ALL_TOOLS],
  ] as const) {
    test(`a key with the scope ${scope} is offered ${tools.length} tools, and the others are refused`, async (t) => {
      const { token } = await service.createKey({ scopes: [scope] });
      const client = await connectMcp(t, service, token);
      assert.deepEqual(await client.tools(), tools);
      const meeting_id = service.name('meeting');
      const agent_id = service.name('agent');
      const args: Record<string, object> = {
        list_meetings: {},
        read_messages: { meeting_id },
        explain: { meeting_id },
        send_message: { meeting_id, content: 'x' },
        reply: { meeting_id, content: 'x', message_id: 'msg_7f3k9q2m00r3vljl5tg00' },
        wait_for_message: { agent_id, wait_s: 0 },
        join_meeting: { meeting_id, agent_id },
        leave_meeting: { meeting_id, agent_id },
      };
      for (const name of ALL_TOOLS.filter((tool) => !(tools as readonly string[]).includes(tool)))
        assert.match(await client.refused(name, args[name]), /^not_permitted: /, name);
      if (scope === 'send')
        assert.deepEqual((await client.client.listResources()).resources, [], 'it may read no meeting');
    });
  }

  test('the key of an invite takes part as its instance, in its meetings, and nowhere else', async (t) => {
    const meeting_id = service.name('meeting');
    const invited = await service.post<InviteWithLink>('/api/v1/invites/', {
      meeting_ids: [meeting_id],
      agent_ids: ['guest'],
    });
    assert.equal(invited.status, 201, invited.text);
    const secret = invited.body.link.split('/invite/')[1];
    const redeemed = await service.post<RedeemedInvite>('/api/v1/invites/redeem/', { secret });
    assert.equal(redeemed.status, 200, redeemed.text);
    const { api_key, instance_id } = redeemed.body;
    const guest = await connectMcp(t, service, api_key);
    const joined = await guest.done<Membership>('join_meeting', { meeting_id, agent_id: 'guest' });
    assert.equal(joined.instance_id, instance_id);
    const sent = await service.send(meeting_id, { content: 'Welcome' });
    const { messages } = await guest.done<Waited>('wait_for_message', { agent_id: 'guest' });
    assert.equal(messages[0]?.message_id, sent.message_id);
    const nameless = await guest.refused('reply', { meeting_id, message_id: sent.message_id, content: 'Hello' });
    assert.match(
      nameless,
      /^not_permitted: .*name the agent that says it as from_agent\.$/,
      'nothing forbids to try again',
    );
    await guest.done('reply', { meeting_id, message_id: sent.message_id, content: 'Hello', from_agent: 'guest' });
    assert.equal((await historyOf(service, meeting_id)).at(-1)?.from_agent, 'guest');

    const content = 'x'.repeat(40_000);
    await service.send(meeting_id, { content });
    type Parts = { messages: { message_id: string; part: { text: string; chars: number } }[] };
    let { messages: parts } = await guest.done<Parts>('wait_for_message', { agent_id: 'guest' });
    let [text, chars] = ['', 1];
    for (;;) {
      const [{ message_id: rest_of, part } = assert.fail('no part')] = parts;
      [text, chars] = [text + part.text, part.chars];
      if (text.length >= chars) break;
      const rest = { agent_id: 'guest', rest_of, from_char: text.length };
      ({ messages: parts } = await guest.done<Parts>('wait_for_message', rest));
    }
    assert.deepEqual(JSON.parse(text), { content });
    const unseen = await service.send(service.name('unseen'), { content });
    const of_others = { agent_id: 'guest', rest_of: unseen.message_id };
    assert.match(await guest.refused('wait_for_message', of_others), /^message_does_not_exist/);
    assert.match(
      await guest.refused('wait_for_message', { agent_id: 'guest', from_char: 1 }),
      /^invalid_fields: from_char/,
    );

    const elsewhere = service.name('elsewhere');
    assert.match(await guest.refused('join_meeting', { meeting_id: elsewhere, agent_id: 'guest' }), /^not_permitted/);
    const own = { meeting_id, agent_id: 'guest', instance_id: 'another' };
    assert.match(await guest.refused('join_meeting', own), /^not_permitted/);
    const as_other = { meeting_id, content: 'x', from_agent: 'somebody' };
    assert.match(await guest.refused('send_message', as_other), /^not_permitted/);
  });

  test('each change is in the audit log as if the client had made it without MCP, with its address', async (t) => {
    const { token, key_id } = await service.createKey({ scopes: ['instance'] });
    const client = await connectMcp(t, service, token);
    const meeting_id = service.name('meeting');
    const agent_id = service.name('agent');
    await client.done('join_meeting', { meeting_id, agent_id });
    await client.refused('join_meeting', { meeting_id: '.', agent_id });
    type Entry = { action: string; target_id: string; outcome: string; address: string; principal: string };
    // The entry of a refusal is written after the response.
    const of_key = await until(
      'the entry of the refusal',
      async () => {
        const { data } = (await service.get<Page<Entry>>('/api/v1/audit/?limit=20')).body;
        return data.filter(({ principal }) => principal === key_id);
      },
      (entries) => entries.some(({ outcome }) => outcome === 'refused'),
    );
    assert.deepEqual(
      of_key.map(({ action, target_id, outcome, address }) => [action, target_id, outcome, address]).toReversed(),
      [
        ['instance.register', agent_id, 'done', '127.0.0.1'],
        ['meeting.join', agent_id, 'done', '127.0.0.1'],
        ['meeting.join', agent_id, 'refused', '127.0.0.1'],
      ],
    );
  });

  test('sends by MCP count against the rate of the key', async (t) => {
    await service.restart({ send_rate: '2/h:2' });
    const { token } = await service.createKey({ scopes: ['send'] });
    const client = await connectMcp(t, service, token);
    const message = { meeting_id: 'm', content: 'x' };
    await client.done('send_message', message);
    await client.done('send_message', message);
    assert.match(await client.refused('send_message', message), /^rate_limited: .* Wait \d+ s before/);
  });
});
