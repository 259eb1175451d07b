/** Spec section 6: the event, the body of the push, and what counts as success. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { headerOf, pushOf } from '../support/receiver.ts';
import { useService } from '../support/service.ts';

describe('spec 6, the body of the push:', { concurrency: true }, () => {
  const service = useService();

  test('the event new_message goes to each active, enabled instance in the meeting with an agent to notify', async (t) => {
    const meeting_id = service.name('meeting');
    const members = await Promise.all(
      [['a'], ['a', 'b'], ['b']].map((agent_ids) => service.member(t, meeting_id, { agent_ids })),
    );
    const sent = await service.send(meeting_id, {}, ['a']);
    assert.equal(sent.deliveries_queued, 2);
    for (const { receiver } of members.slice(0, 2)) assert.equal(pushOf(await receiver.next()).event, 'new_message');
    await service.send(meeting_id, { last: true }, ['b']);
    assert.deepEqual(pushOf(await (members[2] as (typeof members)[0]).receiver.next()).message, { last: true });
  });

  test('the body is a JSON object of exactly five fields, in the order of the spec', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    await service.send(meeting_id, { content: 'x', created_at: 'then' });
    const request = await receiver.next();
    assert.deepEqual(Object.keys(pushOf(request)), ['event', 'meeting_id', 'message', 'target_agents', 'timestamp']);
  });

  test('the body is these bytes', async (t) => {
    const meeting_id = `bytes "\\/é😀`;
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['ä"', 'b\\'] });
    await service.sendText(meeting_id, '{"content": "é😀", "created_at":"2026-03-01T09:30:00Z"}');
    const request = await receiver.next();
    const expected =
      '{"event":"new_message","meeting_id":"bytes \\"\\\\/é😀","message":{"content": "é😀", "created_at":"2026-03-01T09:30:00Z"},' +
      '"target_agents":["ä\\"","b\\\\"],"timestamp":"2026-03-01T09:30:00Z"}';
    assert.deepEqual(request.body, Buffer.from(expected));
    assert.equal(headerOf(request, 'content-length'), String(Buffer.byteLength(expected)));
  });

  test('meeting_id is the meeting id as a string, for a number too', async (t) => {
    const meeting_id = '12345678901234567890';
    const { receiver, instance_id } = await service.member(t, service.name('meeting'));
    const joined = await service.post(
      '/api/v1/instances/join-meeting/',
      `{"instance_id":"${instance_id}","meeting_id":${meeting_id},"agent_ids":["a"]}`,
    );
    assert.equal(joined.status, 201, joined.text);
    await service.send(meeting_id, {});
    assert.match((await receiver.next()).text, /^\{"event":"new_message","meeting_id":"12345678901234567890",/);
  });

  test('target_agents are the agents of that instance to notify', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, { agent_ids: ['a', 'b', 'c'] });
    await service.member(t, meeting_id, { agent_ids: ['d'] });
    await service.send(meeting_id, {}, ['d', 'c', 'b']);
    assert.deepEqual(pushOf(await receiver.next()).target_agents, ['b', 'c']);
  });

  test('every attempt for a delivery carries the same bytes', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, {
      behaviour: (_, number) => ({ status: number === 1 ? 500 : 200 }),
    });
    const sent = await service.sendText(meeting_id, '{"n":1.10,"created_at":1.50}');
    const { delivery_id } = await service.attempted(sent);
    await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
    const [first, second] = await receiver.count(2);
    assert.deepEqual(second?.body, first?.body);
  });

  describe('the message record arrives byte for byte:', { concurrency: true }, () => {
    const messages = {
      'a number that no double holds': '{"n":12345678901234567890}',
      'a number beyond all doubles': '{"n":1e400}',
      'a number with more digits than a double': '{"n":0.1000000000000000055511151231257827}',
      'a fraction that is none': '{"n":1.0}',
      'negative zero': '{"n":-0}',
      'exponents as they are written': '{"a":1E+2,"b":1e2,"c":100}',
      'an escaped NUL': String.raw`{"s":"\u0000"}`,
      'a lone surrogate, escaped': String.raw`{"s":"\ud800","\udfff":1}`,
      'escapes that are not needed': String.raw`{"\u0061":"\/\u0041\b\f"}`,
      'a key twice': '{"a":1,"b":2,"a":3}',
      'a key twice, further in': '{"in":{"a":1,"a":{"b":1,"b":2}}}',
      'keys that an object would reorder': '{"z":1,"10":2,"2":3,"a":4,"1":5}',
      'keys that an object would lose': '{"__proto__":{"x":1},"constructor":1,"toString":null,"":0}',
      'white space': '{ "a" :\t[ 1 ,\r\n 2 , { } ] ,\n"b"\n: "  " }',
      'astral characters, raw and escaped': String.raw`{"raw":"😀𝒳","escaped":"\ud83d\ude00"}`,
      'characters that JavaScript calls line ends': '{"s":"\u2028\u2029\u0085"}',
      'a byte order mark inside': '{"\ufeff":"\ufeff"}',
      'what looks like the envelope': '{"message":{"message":1},"target_agents":["x"],"event":"e"}',
      'brackets, braces and quotes in strings': String.raw`{"s":"}],{[\"\\","t\\\"}":"\\\\"}`,
      'levels upon levels': `{"deep":${'['.repeat(95)}${']'.repeat(95)}}`,
      nothing: '{}',
      'nothing, and a space': '{ }',
    };
    for (const [what, text] of Object.entries(messages)) {
      test(what, async (t) => {
        const meeting_id = service.name('meeting');
        const { receiver } = await service.member(t, meeting_id);
        await service.sendText(meeting_id, text);
        const expected = `{"event":"new_message","meeting_id":"${meeting_id}","message":${text},"target_agents":["a"],"timestamp":""}`;
        assert.equal((await receiver.next()).text, expected);
      });
    }

    test('whatever surrounds it in the request', async (t) => {
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id);
      const path = `/api/v1/meetings/${meeting_id}/messages/`;
      const text = '{ "a" : 1.0 }';
      for (const body of [
        `\n{ "target_agents" : [ "a" ] , "message" : ${text} }\t`,
        `{"message"\r\n:${text},"target_agents":[]}`,
        String.raw`{"\u006dessage":${text}}`,
      ]) {
        const answer = await service.post(path, body);
        assert.equal(answer.status, 201, answer.text);
        assert.match((await receiver.next()).text, /"message":\{ "a" : 1\.0 \},"target_agents":\["a"\]/);
      }
    });
  });

  describe('timestamp is the created_at value of the message:', { concurrency: true }, () => {
    const timestamps: [what: string, message: string, timestamp: string][] = [
      ['a string as it is', '{"created_at":"yesterday, or so"}', '"yesterday, or so"'],
      ['a string with escapes, by its value', String.raw`{"created_at":"\u0041\n\"\ud83d\ude00"}`, '"A\\n\\"😀"'],
      ['an empty string', '{"created_at":""}', '""'],
      ['an integer by its text', '{"created_at":1772357400}', '"1772357400"'],
      ['a fraction by its text', '{"created_at":1772357400.50}', '"1772357400.50"'],
      [
        'an integer that no double holds, by its digits',
        '{"created_at":12345678901234567890}',
        '"12345678901234567890"',
      ],
      ['a number with an exponent, by its text', '{"created_at":1.772e9}', '"1.772e9"'],
      ['an object by its text', '{"created_at":{"$date":"2026"}}', '"{\\"$date\\":\\"2026\\"}"'],
      ['a list by its text', '{"created_at":[2026,3]}', '"[2026,3]"'],
      ['a boolean by its text', '{"created_at":true}', '"true"'],
      ['the last of several', '{"created_at":"a","created_at":2.0}', '"2.0"'],
      ['a key written with an escape', String.raw`{"created\u005fat":"escaped"}`, '"escaped"'],
      ['empty when it is null', '{"created_at":null}', '""'],
      ['empty when the message has none', '{"content":"x"}', '""'],
      ['empty when only something inside the message has one', '{"in":{"created_at":"x"}}', '""'],
      ['empty when it is inherited', '{"__proto__":{"created_at":"x"}}', '""'],
    ];
    for (const [what, message, timestamp] of timestamps) {
      test(what, async (t) => {
        const meeting_id = service.name('meeting');
        const { receiver } = await service.member(t, meeting_id);
        await service.sendText(meeting_id, message);
        const { text } = await receiver.next();
        assert.ok(text.endsWith(`,"target_agents":["a"],"timestamp":${timestamp}}`), text);
      });
    }
  });
});

describe('spec 6, what counts as success:', { concurrency: true }, () => {
  const service = useService();

  test('a push counts as successful when the recipient responds with status 200, whatever else is in the response', async (t) => {
    for (const answer of [{}, { body: 'error' }, { headers: { 'content-type': 'text/html', 'retry-after': '60' } }]) {
      const meeting_id = service.name('meeting');
      await service.member(t, meeting_id, { behaviour: { status: 200, ...answer } });
      const delivery = await service.settled(await service.send(meeting_id, {}));
      assert.equal(delivery.state, 'delivered');
      assert.deepEqual(
        delivery.attempts.map(({ attempt, outcome, status_code }) => ({ attempt, outcome, status_code })),
        [{ attempt: 1, outcome: 'ok', status_code: 200 }],
      );
      const levels = service.logOf(delivery).map((line) => line['level']);
      assert.ok(!levels.includes(40), 'a success is no warning');
    }
  });

  const other_statuses = {
    not_200: [201, 202, 204, 206, 299],
    bad_status: [300, 301, 302, 303, 304, 307, 308, 400, 401, 404, 408, 418, 429, 499, 500, 502, 503, 504, 599],
    gone: [410],
  };
  for (const [outcome, statuses] of Object.entries(other_statuses)) {
    for (const status of statuses) {
      test(`any other status is logged as a failure: ${status}`, async (t) => {
        const meeting_id = service.name('meeting');
        const { instance_id } = await service.member(t, meeting_id, { behaviour: { status } });
        const delivery = await service.attempted(await service.send(meeting_id, {}));
        const [attempt] = delivery.attempts;
        assert.deepEqual([attempt?.outcome, attempt?.status_code], [outcome, status]);
        assert.notEqual(attempt?.detail, '');
        const [line] = service.logOf(delivery);
        assert.deepEqual(
          { level: line?.['level'], msg: line?.msg, instance: line?.['instance_id'], status: line?.['status_code'] },
          { level: 40, msg: 'push failed', instance: instance_id, status },
        );
      });
    }
  }

  test('a connection error is logged as a failure: nobody listens', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    await receiver.down();
    const delivery = await service.attempted(await service.send(meeting_id, {}));
    assert.equal(delivery.last_attempt?.outcome, 'connect_refused');
    assert.equal(delivery.last_attempt?.status_code, null);
    assert.equal(service.logOf(delivery)[0]?.['level'], 40);
  });

  test('a connection error is logged as a failure: the connection is reset', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id, { behaviour: 'reset' });
    const delivery = await service.attempted(await service.send(meeting_id, {}));
    assert.equal(delivery.last_attempt?.outcome, 'broken_response');
    assert.equal(service.logOf(delivery)[0]?.['level'], 40);
  });

  test('a connection error is logged as a failure: the host name has no address', async (t) => {
    // Resolvers refuse .onion without a query to any server (RFC 7686).
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id, { registration: { webhook_url: 'http://nobody.onion/' } });
    const delivery = await service.attempted(await service.send(meeting_id, {}));
    assert.equal(delivery.last_attempt?.outcome, 'dns_failed');
    assert.equal(service.logOf(delivery)[0]?.['level'], 40);
  });

  test('a failed push to one instance does not stop pushes to the other instances', async (t) => {
    const meeting_id = service.name('meeting');
    const refused = await service.member(t, meeting_id);
    await refused.receiver.down();
    for (const behaviour of ['reset', 'hang', { status: 500 }, { status: 410 }, { status: 202 }] as const) {
      await service.member(t, meeting_id, { behaviour });
    }
    await service.member(t, meeting_id, { registration: { webhook_url: 'http://nobody.onion/' } });
    const well = await Promise.all([1, 2, 3].map(() => service.member(t, meeting_id)));
    for (let number = 1; number <= 10; number++) {
      const sent = await service.send(meeting_id, { number });
      // An instance that responds 410 is switched off after its first push. Later messages have nine deliveries.
      assert.ok(sent.deliveries_queued >= 9);
    }
    for (const { receiver } of well) {
      const pushes = (await receiver.count(10)).map((request) => pushOf(request).message['number']);
      assert.deepEqual(pushes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }
  });
});
