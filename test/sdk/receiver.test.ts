/** The receiver of the SDK trusts only pushes that Convoke signed, and gives every push to the program once. */
import assert from 'node:assert/strict';
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import {
  createAgentReceiver,
  createReceiver,
  type Push,
  rawJson,
  type ReceiverOptions,
  VerificationError,
  type VerificationReason,
  verify,
  verifySignature,
} from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import { signingKey, signPush } from '../../src/domain/signature.ts';
import { vectors } from '../support/vectors.ts';

const SECRET = 'whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o=';
const OTHER_SECRET = 'whsec_//r18Ovm4dzX0s3Iw765tK+qpaCblpGMh4J9eHNuaWQ=';
const NOW_MS = 1_772_357_400_000;

const PUSH = {
  event: 'new_message',
  meeting_id: 'standup-42',
  message: { content: 'Good morning', created_at: '2026-03-01T09:30:00.000Z' },
  target_agents: ['anna-planner'],
  timestamp: '2026-03-01T09:30:00.000Z',
};

interface Signed {
  body: string;
  headers: Record<string, string>;
}

/** A push as the server sends it. */
function signed(
  change: { id?: string; body?: string; secrets?: string[]; at_ms?: number; headers?: object } = {},
): Signed {
  const { id = 'dlv_1', body = JSON.stringify(PUSH), secrets = [SECRET], at_ms = NOW_MS } = change;
  const timestamp_s = Math.floor(at_ms / 1000);
  return {
    body,
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(timestamp_s),
      'webhook-signature': signPush(secrets.map(signingKey), id, timestamp_s, Buffer.from(body)),
      'convoke-message-id': 'msg_1',
      'convoke-seq': '7',
      'convoke-attempt': '2',
      ...change.headers,
    },
  };
}

const now = () => NOW_MS;

const post = ({ body, headers }: Signed) => new Request('http://agent/hook', { method: 'POST', body, headers });

const refusedFor = (reason: VerificationReason) => (error: unknown) => {
  assert.ok(error instanceof VerificationError, String(error));
  assert.equal(error.reason, reason);
  return true;
};

describe('verifying decides as the vector says:', () => {
  for (const { name, secrets, headers, body, now_s, reason } of vectors.verify) {
    test(name, async () => {
      const verdict = verifySignature(body, headers, secrets, { now: () => now_s * 1000 });
      if (reason === null) await verdict;
      else await assert.rejects(verdict, refusedFor(reason as VerificationReason));
    });
  }
});

describe('verifying accepts what the vector signs, as bytes and as text:', () => {
  for (const { name, secrets, webhook_id, webhook_timestamp, body, webhook_signature } of vectors.sign) {
    test(name, async () => {
      const headers = new Headers({
        'Webhook-Id': webhook_id,
        'Webhook-Timestamp': String(webhook_timestamp),
        'Webhook-Signature': webhook_signature,
      });
      for (const secret of secrets) {
        const options = { now: () => webhook_timestamp * 1000 };
        await verifySignature(body, headers, secret, options);
        await verifySignature(new TextEncoder().encode(body), headers, secret, options);
      }
    });
  }
});

describe('nothing is verified with an invalid secret:', () => {
  for (const { name, secret } of vectors.invalid_secrets) {
    test(name, async () => {
      const { body, headers } = signed();
      await assert.rejects(verify(body, headers, secret, { now }), refusedFor('invalid_secret'));
      assert.throws(() => createReceiver({ secret, onPush() {} }), refusedFor('invalid_secret'));
    });
  }

  test('none at all', () => {
    assert.throws(() => createReceiver({ secret: [], onPush() {} }), refusedFor('invalid_secret'));
    // The value of `secret: process.env.WEBHOOK_SECRET!` when the variable is not set.
    assert.throws(
      () => createReceiver({ secret: undefined as unknown as string, onPush() {} }),
      refusedFor('invalid_secret'),
    );
  });
});

describe('a verified push', () => {
  test('carries the five fields of the body and the values of the headers', async () => {
    const { body, headers } = signed();
    assert.deepEqual(await verify(Buffer.from(body), headers, SECRET, { now }), {
      ...PUSH,
      webhook_id: 'dlv_1',
      message_id: 'msg_1',
      seq: 7,
      attempt: 2,
      from_agent: null,
      in_reply_to: null,
      hops: null,
      missed: 0,
      reply_url: null,
      reply_token: null,
      traceparent: null,
      tracestate: null,
      test: false,
      body,
    });
  });

  test('is read from headers in any case, and from lists of values, as node:http has them', async () => {
    const { body, headers } = signed();
    const shouted = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), [value]]));
    assert.equal((await verify(body, shouted, SECRET, { now })).seq, 7);
  });

  test('has null for headers that are missing or make no sense', async () => {
    const { body, headers } = signed({ headers: { 'convoke-seq': 'seven', 'convoke-attempt': '-1' } });
    delete headers['convoke-message-id'];
    headers['convoke-from-agent'] = '%';
    const { message_id, seq, attempt, from_agent } = await verify(body, headers, SECRET, { now });
    assert.deepEqual([message_id, seq, attempt, from_agent], [null, null, null, null]);
  });

  test('has the sender and the answered message', async () => {
    const said = { 'convoke-from-agent': 'anna%20%C3%A9', 'convoke-in-reply-to': 'msg_0', 'convoke-hops': '2' };
    const { body, headers } = signed({ headers: said });
    const { from_agent, in_reply_to, hops } = await verify(body, headers, SECRET, { now });
    assert.deepEqual([from_agent, in_reply_to, hops], ['anna é', 'msg_0', 2]);
  });

  test('says to which trace it belongs', async () => {
    const trace = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate: 'a=1' };
    const { body, headers } = signed({ headers: trace });
    const { traceparent, tracestate } = await verify(body, headers, SECRET, { now });
    assert.deepEqual({ traceparent, tracestate }, trace);
  });

  test('keeps the text that was signed, so that big numbers can be read from it', async () => {
    const text = JSON.stringify(PUSH).replace('"Good morning"', '12345678901234567890');
    const push = await verify(signed({ body: text }).body, signed({ body: text }).headers, SECRET, { now });
    assert.equal(push.body, text);
  });

  test('is refused when it is genuine but no push', async () => {
    for (const body of [
      '',
      'null',
      '[]',
      '{}',
      '{"event":"new_message"',
      JSON.stringify({ ...PUSH, event: 'other' }),
      JSON.stringify({ ...PUSH, message: [] }),
      JSON.stringify({ ...PUSH, target_agents: [1] }),
      JSON.stringify({ ...PUSH, timestamp: null }),
    ]) {
      await assert.rejects(verify(body, signed({ body }).headers, SECRET, { now }), refusedFor('invalid_body'), body);
    }
    const bytes = Buffer.from(JSON.stringify(PUSH));
    bytes[bytes.indexOf('Good')] = 0xff;
    const signature = signPush([signingKey(SECRET)], 'dlv_1', NOW_MS / 1000, bytes);
    const { headers } = signed({ headers: { 'webhook-signature': signature } });
    await assert.rejects(verify(bytes, headers, SECRET, { now }), refusedFor('invalid_body'), 'invalid UTF-8');
  });

  test('is read from the bytes of its body in any form, and not from what a parser made of them', async () => {
    const { body, headers } = signed();
    const whole = new TextEncoder().encode(body).buffer;
    const within = new DataView(new TextEncoder().encode(`xx${body}xx`).buffer, 2, body.length);
    for (const bytes of [whole, within]) {
      assert.equal((await verify(bytes as ArrayBuffer, headers, SECRET, { now })).body, body);
      await verifySignature(bytes as ArrayBuffer, headers, SECRET, { now });
    }
    for (const parsed of [JSON.parse(body), [], undefined, null]) {
      await assert.rejects(
        verify(parsed as string, headers, SECRET, { now }),
        /^TypeError: the body must be its bytes/,
      );
    }
  });

  test('may be as old as the tolerance says', async () => {
    const { body, headers } = signed({ at_ms: NOW_MS - 3_600_000 });
    await assert.rejects(verify(body, headers, SECRET, { now }), refusedFor('timestamp_too_old'));
    await verify(body, headers, SECRET, { now, tolerance_s: 3600 });
  });
});

/** A receiver that notes its pushes. */
function start(options: Partial<ReceiverOptions> = {}) {
  const pushes: Push[] = [];
  const errors: unknown[] = [];
  const receive = createReceiver({
    secret: SECRET,
    onPush: (push) => void pushes.push(push),
    onError: (error) => void errors.push(error),
    now,
    ...options,
  });
  return { receive, pushes, errors };
}

const status = async (answer: Promise<Response>) => (await answer).status;

/** Resolves when this many signatures have been computed and their callbacks have run. */
function untilVerified(t: TestContext, number: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const sign = crypto.subtle.sign.bind(crypto.subtle);
  let computed = 0;
  t.mock.method(crypto.subtle, 'sign', async (...args: Parameters<typeof sign>) => {
    const signature = await sign(...args);
    if (++computed === number) setImmediate(resolve);
    return signature;
  });
  return promise;
}

describe('a receiver', () => {
  test('hands a genuine push over and answers 200', async () => {
    const { receive, pushes } = start();
    assert.equal(await status(receive(post(signed()))), 200);
    assert.equal(pushes.length, 1);
    assert.deepEqual(pushes[0]!.message, PUSH.message);
  });

  test('answers 401 to a forged body, an old timestamp and a wrong secret, and hands nothing over', async () => {
    const { receive, pushes } = start();
    const good = signed();
    for (const [push, reason] of [
      [{ ...good, body: good.body.replace('Good', 'Evil') }, 'no_matching_signature'],
      [signed({ at_ms: NOW_MS - 301_000 }), 'timestamp_too_old'],
      [signed({ secrets: [OTHER_SECRET] }), 'no_matching_signature'],
      [{ body: good.body, headers: {} }, 'missing_header'],
    ] as const) {
      const answer = await receive(post(push));
      assert.equal(answer.status, 401);
      assert.match(await answer.text(), new RegExp(`^${reason}`));
    }
    assert.equal(pushes.length, 0);
  });

  test('answers 400 to what is genuine but no push: a retry would not help it', async () => {
    assert.equal(await status(start().receive(post(signed({ body: '{}' })))), 400);
  });

  test('goes through a rotation without losing a push', async () => {
    const before = start();
    const during = start({ secret: [OTHER_SECRET, SECRET] });
    const after = start({ secret: OTHER_SECRET });
    assert.equal(await status(before.receive(post(signed({ secrets: [OTHER_SECRET, SECRET] })))), 200);
    assert.equal(await status(during.receive(post(signed({ id: 'dlv_2', secrets: [SECRET] })))), 200);
    assert.equal(await status(during.receive(post(signed({ id: 'dlv_3', secrets: [OTHER_SECRET] })))), 200);
    assert.equal(await status(after.receive(post(signed({ secrets: [OTHER_SECRET, SECRET] })))), 200);
    assert.equal(await status(after.receive(post(signed({ id: 'dlv_4', secrets: [SECRET] })))), 401);
  });

  test('answers a webhook test without waking an agent, unless onTest is given', async () => {
    const sample = () => signed({ id: 'dlv_test-3f9c', headers: { 'convoke-test': 'true' } });
    const plain = start();
    assert.equal(await status(plain.receive(post(sample()))), 200);
    assert.equal(plain.pushes.length, 0);

    const tests: Push[] = [];
    const { receive } = start({ onTest: (push) => void tests.push(push) });
    assert.equal(await status(receive(post(sample()))), 200);
    assert.equal(tests[0]!.test, true);
  });

  test('knows a webhook test by its signed id, and not by a header that anybody could add to a push', async () => {
    const { receive, pushes } = start();
    assert.equal(await status(receive(post(signed({ headers: { 'convoke-test': 'true' } })))), 200);
    assert.equal(pushes.length, 1);
    assert.equal(pushes[0]!.test, false);
    // The genuine push is now a repetition, and was handled.
    assert.equal(await status(receive(post(signed()))), 200);
    assert.equal(pushes.length, 1);
  });

  test('answers 405 to anything but POST, and says what it takes', async () => {
    const answer = await start().receive(new Request('http://agent/hook'));
    assert.equal(answer.status, 405);
    assert.equal(answer.headers.get('allow'), 'POST');
  });

  test('answers 413 to a body over its limit, announced or not', async () => {
    const { receive, pushes } = start({ body_bytes_max: 100 });
    assert.equal(await status(receive(post(signed()))), 413);
    let pulled = 0;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulled++;
        controller.enqueue(new Uint8Array(60));
      },
    });
    const { headers } = signed();
    const request = new Request('http://agent/hook', { method: 'POST', body: endless, headers, duplex: 'half' });
    assert.equal(await status(receive(request)), 413);
    assert.ok(pulled < 10, `it stops reading, after ${pulled} chunks`);
    assert.equal(pushes.length, 0);
  });

  test('says that something else has read the body: it cannot be verified any more', async () => {
    const request = post(signed());
    await request.json();
    await assert.rejects(start().receive(request), /^TypeError: the body was read before .* any body parser$/);
  });

  test('answers 400 to a body that was cut off', async () => {
    const broken = new ReadableStream<Uint8Array>({ pull: (controller) => controller.error(new Error('reset')) });
    const { headers } = signed();
    const request = new Request('http://agent/hook', { method: 'POST', body: broken, headers, duplex: 'half' });
    assert.equal(await status(start().receive(request)), 400);
  });
});

describe('what onPush returns', () => {
  const ANSWERS: [answer: unknown, body: string][] = [
    ['Good morning', '{"reply":"Good morning"}'],
    [{ reply: 'yes', more: 1 }, '{"reply":"yes"}'],
    [
      { replies: ['a', { message: { n: 1 }, from_agent: 'b' }] },
      '{"replies":["a",{"message":{"n":1},"from_agent":"b"}]}',
    ],
    [{ replies: [{ message: rawJson('{"n": 1.10}') }] }, '{"replies":[{"message":{"n": 1.10}}]}'],
    [undefined, 'ok\n'],
    ['', 'ok\n'],
    [7, 'ok\n'],
    [{ content: 'x' }, 'ok\n'],
  ];
  for (const [answer, body] of ANSWERS) {
    test(`is the reply in the response, the same each time: ${JSON.stringify(answer)}`, async () => {
      let calls = 0;
      const { receive } = start({ onPush: () => (++calls === 1 ? answer : 'other words') });
      for (let attempt = 1; attempt <= 2; attempt++) {
        const response = await receive(post(signed()));
        assert.equal(response.status, 200);
        assert.equal(await response.text(), body);
      }
    });
  }
});

test('an answer that is longer than Convoke reads is a failure, and reported: it would be lost without a word', async () => {
  const { receive, errors } = start({ onPush: () => 'ä'.repeat(32 * 1024) });
  assert.equal(await status(receive(post(signed()))), 500);
  assert.match(String(errors), /^RangeError: the answer has 65548 bytes as JSON; 65536 are possible$/);
});

test('an agent answers with JSON as it is written; what is no answer is refused, and reported', async () => {
  const errors: unknown[] = [];
  const answered = async (answer: unknown) => {
    const onError = (error: unknown) => void errors.push(error);
    const receive = createAgentReceiver({ secret: SECRET, now, onError }, () => answer as string);
    const response = await receive(post(signed()));
    return `${response.status} ${await response.text()}`;
  };
  assert.equal(await answered([rawJson('{"n": 1.10}'), 'and']), '200 {"replies":[{"message":{"n": 1.10}},"and"]}');
  assert.equal(await answered(rawJson('{"n": 1.10}')), '200 {"reply":{"message":{"n": 1.10}}}');
  for (const answer of [5, true, [['a list']], [null], () => 'called']) assert.match(await answered(answer), /^500 /);
  assert.deepEqual(
    errors.map((error) => /TypeError: an agent answers with .*, not with a (.*)$/.exec(String(error))?.[1]),
    ['number', 'boolean', 'list in a list', 'null in a list', 'function'],
  );
});

describe('a push that arrives again', () => {
  test('gets 200 and is not handed over twice', async () => {
    const { receive, pushes } = start();
    for (let attempt = 1; attempt <= 3; attempt++) assert.equal(await status(receive(post(signed()))), 200);
    assert.equal(await status(receive(post(signed({ id: 'dlv_2' })))), 200);
    assert.deepEqual(
      pushes.map(({ webhook_id }) => webhook_id),
      ['dlv_1', 'dlv_2'],
    );
  });

  test('must be genuine each time: a handled id opens no door', async () => {
    const { receive } = start();
    await receive(post(signed()));
    const good = signed();
    assert.equal(await status(receive(post({ ...good, body: good.body.replace('Good', 'Evil') }))), 401);
  });

  test('waits for the first call when that still runs', async (t) => {
    const { promise: done, resolve: finish } = Promise.withResolvers<void>();
    const verified = untilVerified(t, 20);
    let calls = 0;
    const { receive } = start({
      onPush: () => {
        calls++;
        return done;
      },
    });
    let answered = 0;
    const answers = Array.from({ length: 20 }, async () => {
      const { status } = await receive(post(signed()));
      answered++;
      return status;
    });
    await verified;
    assert.equal(answered, 0);
    finish();
    assert.deepEqual(new Set(await Promise.all(answers)), new Set([200]));
    assert.equal(calls, 1);
  });

  test('is handed over again when the first call threw, at once or later', async () => {
    const outcomes: (() => unknown)[] = [
      () => {
        throw new Error('at once');
      },
      () => Promise.reject(new Error('later')),
      () => undefined,
    ];
    const { receive, errors } = start({ onPush: () => outcomes.shift()!() });
    const failed = await receive(post(signed()));
    assert.equal(failed.status, 500);
    assert.doesNotMatch(await failed.text(), /at once/, 'what went wrong stays here');
    assert.equal(await status(receive(post(signed()))), 500);
    assert.equal(await status(receive(post(signed()))), 200);
    assert.deepEqual(errors.map(String), ['Error: at once', 'Error: later']);
  });

  test('shares the failure of the call it waited for, which is reported once', async (t) => {
    const { promise: done, reject: fail } = Promise.withResolvers<void>();
    const verified = untilVerified(t, 2);
    const { receive, errors } = start({ onPush: () => done });
    const answers = Promise.all([receive(post(signed())), receive(post(signed()))]);
    await verified;
    fail(new Error('no'));
    assert.deepEqual(
      (await answers).map(({ status }) => status),
      [500, 500],
    );
    assert.equal(errors.length, 1);
  });

  test('ends no process when onError throws, at once or later', async (t) => {
    const logged = t.mock.method(console, 'error', () => {});
    const onPush = () => Promise.reject(new Error('of the agent'));
    const failures = [() => assert.fail('at once'), () => Promise.reject(new Error('later'))];
    for (const onError of failures) {
      assert.equal(await status(start({ onPush, onError }).receive(post(signed()))), 500);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(logged.mock.callCount(), 2);
  });

  test('is forgotten after an hour', async () => {
    let clock_ms = NOW_MS;
    const { receive, pushes } = start({ now: () => clock_ms });
    const at = (ms: number) => {
      clock_ms = NOW_MS + ms;
      return receive(post(signed({ at_ms: clock_ms })));
    };
    await at(0);
    await at(3_600_000);
    assert.equal(pushes.length, 1);
    await at(7_200_001);
    assert.equal(pushes.length, 2);
  });

  test('is forgotten when too many others arrived since: the memory is bounded', async () => {
    const { receive, pushes } = start({ remembered_max: 3 });
    const ids = () => pushes.splice(0).map(({ webhook_id }) => webhook_id);
    for (const id of ['a', 'b', 'c', 'a', 'd']) await receive(post(signed({ id })));
    assert.deepEqual(ids(), ['a', 'b', 'c', 'd']);
    for (const id of ['a', 'd', 'c', 'b']) await receive(post(signed({ id })));
    assert.deepEqual(ids(), ['b'], 'b was the longest unseen');
  });

  test('is forgotten when the answers since took more than 16 MiB: long ones are bounded too', async () => {
    const heard: string[] = [];
    const onPush = ({ webhook_id }: Push): string => {
      heard.push(webhook_id);
      // 130 of these answers fit into 16 MiB, at two bytes a character.
      return 'a'.repeat(64_000);
    };
    const { receive } = start({ onPush });
    const ids = Array.from({ length: 131 }, (_, i) => `dlv_${i}`);
    for (const id of [...ids.slice(0, 130), 'dlv_0', 'dlv_130', 'dlv_0', 'dlv_1']) await receive(post(signed({ id })));
    assert.deepEqual(heard, [...ids, 'dlv_1']);
  });
});

describe('over node:http,', () => {
  async function listen(t: TestContext, handler: (request: Request) => Promise<Response> | Response) {
    const server = createServer(toNodeListener(handler));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => {
      server.close();
      server.closeAllConnections();
    });
    return (server.address() as AddressInfo).port;
  }

  const send = (port: number, push: Signed) =>
    fetch(`http://127.0.0.1:${port}/hook`, { method: 'POST', body: push.body, headers: push.headers });

  test('a push is verified byte for byte and handled once', async (t) => {
    const { receive, pushes } = start();
    const port = await listen(t, receive);
    const text = JSON.stringify({ ...PUSH, message: { content: 'Grüße, 会议 🎙️', filler: 'x'.repeat(500_000) } });
    for (let attempt = 1; attempt <= 2; attempt++) {
      const answer = await send(port, signed({ body: text }));
      assert.equal(answer.status, 200);
      assert.equal(await answer.text(), 'ok\n');
    }
    assert.equal(pushes.length, 1);
    assert.equal(pushes[0]!.body, text);
    assert.equal((await send(port, { ...signed(), body: '{}' })).status, 401);
  });

  test('a hundred pushes at once are all handled', async (t) => {
    const { receive, pushes } = start();
    const port = await listen(t, receive);
    const ids = Array.from({ length: 100 }, (_, i) => `dlv_${i}`);
    const answers = await Promise.all(ids.map((id) => send(port, signed({ id }))));
    assert.ok(answers.every(({ status }) => status === 200));
    assert.deepEqual(new Set(pushes.map(({ webhook_id }) => webhook_id)), new Set(ids));
  });

  test('an endless body gets its 413, and the connection is closed', async (t) => {
    const port = await listen(t, start({ body_bytes_max: 1000 }).receive);
    const request = httpRequest({ port, host: '127.0.0.1', method: 'POST' });
    const closed = new Promise((resolve) => request.on('close', resolve));
    request.on('error', () => {});
    request.write('x'.repeat(2000));
    const answer = await new Promise<IncomingMessage>((resolve) => request.on('response', resolve));
    assert.equal(answer.statusCode, 413);
    assert.equal(answer.headers.connection, 'close');
    answer.resume();
    await closed;
  });

  test('a request whose body was parsed before gets 500, and the log says why', async (t) => {
    const logged = t.mock.method(console, 'error', () => {});
    const listener = toNodeListener(start().receive);
    const server = createServer(async (incoming, outgoing) => {
      await buffer(incoming);
      listener(incoming, outgoing);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => server.close().closeAllConnections());
    const { port } = server.address() as AddressInfo;
    assert.equal((await send(port, signed())).status, 500);
    assert.match(String(logged.mock.calls[0]?.arguments[0]), /the body was read before .* any body parser$/);
  });

  test('the handler gets method, URL, headers and body, and its whole answer goes out', async (t) => {
    const port = await listen(t, async (request) => {
      const text = `${request.method} ${new URL(request.url).pathname} ${request.headers.get('x-a')} ${await request.text()}`;
      const headers = new Headers({ 'x-b': 'b' });
      headers.append('set-cookie', 'one=1');
      headers.append('set-cookie', 'two=2');
      return new Response(text, { status: 207, headers });
    });
    const answer = await fetch(`http://127.0.0.1:${port}//a/b?c`, {
      method: 'PUT',
      headers: { 'x-a': 'ä' },
      body: 'body',
    });
    assert.equal(await answer.text(), 'PUT //a/b ä body');
    assert.equal(answer.status, 207);
    assert.equal(answer.headers.get('x-b'), 'b');
    assert.deepEqual(answer.headers.getSetCookie(), ['one=1', 'two=2']);
  });

  test('a request from which no Request can be made gets 400, and a handler that throws 500', async (t) => {
    t.mock.method(console, 'error', () => {});
    const port = await listen(t, () => {
      throw new Error('broken');
    });
    const raw = async (text: string) => {
      const socket = connect(port, '127.0.0.1');
      socket.write(text);
      let answer = '';
      for await (const chunk of socket) answer += String(chunk);
      return answer;
    };
    assert.match(await raw('TRACE / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n'), /^HTTP\/1.1 400 /);
    assert.match(await raw('GET / HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n'), /^HTTP\/1.1 400 /);
    assert.match(await raw('GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n'), /^HTTP\/1.1 500 /);
  });

  test('a client that goes away in the middle harms nobody', async (t) => {
    const { promise: cutOff, resolve } = Promise.withResolvers<number>();
    const { receive } = start();
    const port = await listen(t, async (request) => {
      const answer = await receive(request);
      if (answer.status === 400) resolve(answer.status);
      return answer;
    });
    const socket = connect(port, '127.0.0.1');
    socket.write('POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{', () => socket.resetAndDestroy());
    assert.equal(await cutOff, 400);
    assert.equal((await send(port, signed())).status, 200);
  });
});
