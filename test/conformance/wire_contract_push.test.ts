/** The headers and signatures of a push, and where it goes. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import type { RotatedSecret } from '@convoke/sdk';
import { Webhook } from 'standardwebhooks';
import { VERSION } from '../../src/version.ts';
import { headerOf, type Received, startReceiver } from '../support/receiver.ts';
import { assertProblem, instancePath, type Service, useService } from '../support/service.ts';

/**
 * Verifies a push with the library of Standard Webhooks.
 * @throws when the signature was not made with this secret
 */
function verify(request: Received, secret: string): void {
  const headers = Object.fromEntries(
    ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) => [name, headerOf(request, name)]),
  );
  new Webhook(secret).verify(request.text, headers);
}

async function rotate(service: Service, instance_id: string, body: object = {}): Promise<RotatedSecret> {
  const answer = await service.post<RotatedSecret>(`${instancePath(instance_id)}rotate-secret/`, body);
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
}

const newSecret = (): string => `whsec_${randomBytes(32).toString('base64')}`;

describe('the headers of a push:', { concurrency: true }, () => {
  const service = useService();

  test('are these, each once', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id, {
      registration: { webhook_headers: { Authorization: 'Bearer the-credential', 'X-Runtime': 'ä' } },
    });
    const sent = await service.send(meeting_id, {});
    const { delivery_id } = await service.settled(sent);
    const request = await receiver.next();
    const names = request.raw_headers.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
    assert.equal(new Set(names).size, names.length, names.join(' '));
    const { host, connection: _, ...headers } = request.headers;
    const { 'webhook-timestamp': timestamp, 'webhook-signature': signature, ...rest } = headers;
    assert.equal(host, new URL(receiver.url).host);
    assert.deepEqual(rest, {
      'content-type': 'application/json',
      'content-length': String(request.body.length),
      'user-agent': `Convoke/${VERSION}`,
      'webhook-id': delivery_id,
      'idempotency-key': delivery_id,
      'convoke-message-id': sent.message_id,
      'convoke-seq': '1',
      'convoke-attempt': '1',
      authorization: 'Bearer the-credential',
      'x-runtime': 'ä',
    });
    assert.ok(Math.abs(Number(timestamp) - Date.now() / 1000) < 60);
    assert.match(String(signature), /^v1,[A-Za-z0-9+/]{43}=$/);
  });

  test('convoke-seq numbers the messages of a meeting from 1', async (t) => {
    const meeting_id = service.name('meeting');
    const { receiver } = await service.member(t, meeting_id);
    for (const seq of [1, 2, 3]) assert.equal((await service.send(meeting_id, {})).seq, seq);
    const seqs = (await receiver.count(3)).map((request) => headerOf(request, 'convoke-seq'));
    assert.deepEqual(seqs, ['1', '2', '3']);
  });

  test('webhook_headers are sent and never returned; their names are', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, {
      registration: { webhook_headers: { Authorization: 'Bearer first-value', 'x-other': 'second-value' } },
    });
    await service.send(meeting_id, {});
    assert.equal(headerOf(await receiver.next(), 'authorization'), 'Bearer first-value');
    const answers = [
      await service.get(instancePath(instance_id)),
      await service.get('/api/v1/instances/?limit=500'),
      await service.post(`${instancePath(instance_id)}heartbeat/`),
      await service.request('PATCH', instancePath(instance_id), { body: { instance_name: 'x' } }),
      await service.post('/api/v1/instances/register/', {
        instance_id,
        instance_name: 'x',
        agent_ids: [],
        webhook_url: receiver.url,
      }),
    ];
    for (const { text } of answers) assert.ok(!/first-value|second-value/.test(text), text);
    const { webhook_header_names } = await service.instance(instance_id);
    assert.deepEqual(webhook_header_names.toSorted(), ['authorization', 'x-other']);
  });

  test('webhook_headers stay over a registration without them, and are replaced as a whole by one with them', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id, {
      registration: { webhook_headers: { 'x-a': '1', 'x-b': '2' } },
    });
    const pushed = async (): Promise<[unknown, unknown, unknown]> => {
      await service.send(meeting_id, {});
      const { headers } = await receiver.next();
      return [headers['x-a'], headers['x-b'], headers['x-c']];
    };
    await service.register({ instance_id, webhook_url: receiver.url });
    assert.deepEqual(await pushed(), ['1', '2', undefined]);
    await service.register({ instance_id, webhook_url: receiver.url, webhook_headers: { 'x-c': '3' } });
    assert.deepEqual(await pushed(), [undefined, undefined, '3']);
    await service.patch(instance_id, { webhook_headers: { 'x-a': '4' } });
    assert.deepEqual(await pushed(), ['4', undefined, undefined]);
    await service.patch(instance_id, { webhook_headers: {} });
    assert.deepEqual(await pushed(), [undefined, undefined, undefined]);
  });

  test('webhook_headers may not replace those of Convoke, in upper or lower case, at registration and later', async (t) => {
    const { instance_id, receiver } = await service.member(t, service.name('meeting'));
    const reserved = [
      'content-type',
      'user-agent',
      'webhook-id',
      'webhook-timestamp',
      'webhook-signature',
      'idempotency-key',
      'convoke-message-id',
      'convoke-seq',
      'convoke-attempt',
      'convoke-test',
      'host',
      'content-length',
      'transfer-encoding',
      'connection',
    ];
    for (const name of [...reserved, ...reserved.map((each) => each.toUpperCase())]) {
      const webhook_headers = { [name]: 'x' };
      const input = { instance_id, instance_name: 'n', agent_ids: [], webhook_url: receiver.url, webhook_headers };
      const registered = assertProblem(await service.post('/api/v1/instances/register/', input), 422, 'invalid_fields');
      assert.equal(registered.errors?.[0]?.path, `webhook_headers.${name}`);
      const patched = await service.request('PATCH', instancePath(instance_id), { body: { webhook_headers } });
      assertProblem(patched, 422, 'invalid_fields');
    }
  });

  test('webhook_headers that are no headers are refused', async () => {
    const input = {
      instance_id: service.name('i'),
      instance_name: 'n',
      agent_ids: [],
      webhook_url: 'http://127.0.0.1/',
    };
    const many = Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`x-${i}`, '']));
    const long = { 'x-long': 'x'.repeat(4097) };
    for (const webhook_headers of [
      { 'a b': 'x' },
      { 'a:': 'x' },
      { '': 'x' },
      { 'x-ü': 'x' },
      { x: 'a\r\nwebhook-id: forged' },
      { x: 'a\u0000' },
      { x: '😀' },
      { x: 1 },
      { x: null },
      { 'X-Twice': '1', 'x-twice': '2' },
      many,
      long,
      [],
      'x: y',
      null,
    ]) {
      const answer = await service.post('/api/v1/instances/register/', { ...input, webhook_headers });
      assertProblem(answer, 422, 'invalid_fields');
    }
  });
});

describe('the signature of a push:', { concurrency: true }, () => {
  const service = useService();

  test('is verified by the reference library over the exact bytes, and by no other secret', async (t) => {
    const meeting_id = service.name('meeting');
    const { webhook_secret, receiver } = await service.member(t, meeting_id);
    await service.sendText(meeting_id, String.raw`{ "n": 12345678901234567890, "s": "\u0000😀" }`);
    const request = await receiver.next();
    verify(request, webhook_secret);
    assert.throws(() => verify(request, newSecret()));
    assert.throws(() => verify({ ...request, text: `${request.text} ` }, webhook_secret));
  });

  test('is computed again for every attempt, over the same id', async (t) => {
    const meeting_id = service.name('meeting');
    const { webhook_secret, receiver } = await service.member(t, meeting_id, {
      behaviour: (_, number) => ({ status: number === 1 ? 500 : 200 }),
    });
    const { delivery_id } = await service.attempted(await service.send(meeting_id, {}));
    await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
    for (const request of await receiver.count(2)) verify(request, webhook_secret);
  });

  test('webhook_secret is returned only when it was just made', async () => {
    const input = { instance_id: service.name('i'), webhook_url: 'http://127.0.0.1:9000/' };
    const { webhook_secret } = await service.register(input);
    assert.match(String(webhook_secret), /^whsec_[A-Za-z0-9+/]{43}=$/);
    const answers = [
      await service.register(input),
      await service.instance(input.instance_id),
      await service.heartbeat(input.instance_id),
      await service.patch(input.instance_id, { instance_name: 'x' }),
    ];
    for (const answer of answers) {
      assert.ok(!('webhook_secret' in answer));
      assert.ok(!JSON.stringify(answer).includes(String(webhook_secret)));
    }
  });

  test('a given secret is used and not returned', async (t) => {
    const [meeting_id, given] = [service.name('meeting'), newSecret()];
    const { instance_id, receiver } = await service.member(t, meeting_id, { registration: { webhook_secret: given } });
    const again = await service.register({ instance_id, webhook_url: receiver.url, webhook_secret: given });
    assert.ok(!('webhook_secret' in again));
    await service.send(meeting_id, {});
    verify(await receiver.next(), given);
  });

  test('the secret stays over a registration without one, and is replaced at once by one with one', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, webhook_secret, receiver } = await service.member(t, meeting_id);
    await service.register({ instance_id, webhook_url: receiver.url });
    await service.send(meeting_id, {});
    verify(await receiver.next(), webhook_secret);
    const given = newSecret();
    await service.register({ instance_id, webhook_url: receiver.url, webhook_secret: given });
    await service.send(meeting_id, {});
    const request = await receiver.next();
    verify(request, given);
    assert.throws(() => verify(request, webhook_secret));
  });

  test('secrets that others could guess or not read are refused', async () => {
    const input = {
      instance_id: service.name('i'),
      instance_name: 'n',
      agent_ids: [],
      webhook_url: 'http://127.0.0.1/',
    };
    for (const webhook_secret of [
      '',
      'whsec_',
      'whsec_AAAA',
      randomBytes(32).toString('base64'),
      `whsec_${randomBytes(23).toString('base64')}`,
      `whsec_${randomBytes(65).toString('base64')}`,
      `whsec_${randomBytes(31).toString('base64').replace(/=+$/, '')}`,
      `whsec_${'_-'.repeat(16)}`,
      ` ${newSecret()}`,
      null,
      1,
    ]) {
      const answer = await service.post('/api/v1/instances/register/', { ...input, webhook_secret });
      const problem = assertProblem(answer, 422, 'invalid_fields');
      assert.deepEqual(
        problem.errors?.map(({ path }) => path),
        ['webhook_secret'],
        String(webhook_secret),
      );
    }
  });

  test('while a rotated secret overlaps, there are two signatures, and both secrets verify', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, webhook_secret: previous, receiver } = await service.member(t, meeting_id);
    const { webhook_secret: current, previous_secret_expires_at } = await rotate(service, instance_id);
    assert.notEqual(current, previous);
    const overlap_s = (Date.parse(previous_secret_expires_at) - Date.now()) / 1000;
    assert.ok(Math.abs(overlap_s - 86_400) < 60, `${overlap_s} s`);
    await service.send(meeting_id, {});
    const request = await receiver.next();
    assert.equal(headerOf(request, 'webhook-signature').split(' ').length, 2);
    verify(request, current);
    verify(request, previous);
    assert.throws(() => verify(request, newSecret()));
  });

  test('while two rotations overlap, every secret verifies, and the response says until when', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, webhook_secret: first, receiver } = await service.member(t, meeting_id);
    const second = await rotate(service, instance_id);
    const third = await rotate(service, instance_id, { overlap_seconds: 60 });
    assert.deepEqual(third.earlier_secrets_expire_at, [second.previous_secret_expires_at]);
    await service.send(meeting_id, {});
    const request = await receiver.next();
    assert.equal(headerOf(request, 'webhook-signature').split(' ').length, 3);
    for (const secret of [first, second.webhook_secret, third.webhook_secret]) verify(request, secret);
    await rotate(service, instance_id, { overlap_seconds: 0 });
    await service.send(meeting_id, {});
    assert.equal(headerOf(await receiver.next(), 'webhook-signature').split(' ').length, 1);
  });

  test('without overlap only the new secret signs', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, webhook_secret: previous, receiver } = await service.member(t, meeting_id);
    const { webhook_secret: current } = await rotate(service, instance_id, { overlap_seconds: 0 });
    await service.send(meeting_id, {});
    const request = await receiver.next();
    assert.match(headerOf(request, 'webhook-signature'), /^v1,[A-Za-z0-9+/]{43}=$/);
    verify(request, current);
    assert.throws(() => verify(request, previous));
  });

  test('what was queued before a rotation is signed with the new secret too', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id, receiver } = await service.member(t, meeting_id);
    await receiver.down();
    await service.attempted(await service.send(meeting_id, {}));
    const { webhook_secret } = await rotate(service, instance_id);
    await receiver.up();
    await service.heartbeat(instance_id);
    verify(await receiver.next(), webhook_secret);
  });

  test('rotate-secret wants a registered instance and a sensible overlap', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    assertProblem(await service.post(`${instancePath('nobody')}rotate-secret/`, {}), 404, 'instance_does_not_exist');
    for (const overlap_seconds of [-1, 1.5, '60', 2_592_001, null]) {
      const answer = await service.post(`${instancePath(instance_id)}rotate-secret/`, { overlap_seconds });
      assertProblem(answer, 422, 'invalid_fields');
    }
  });

  test('rotate-secret takes no body at all for its defaults', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:9000/' });
    const answer = await service.post(`${instancePath(instance_id)}rotate-secret/`);
    assert.equal(answer.status, 200, answer.text);
  });
});

describe('where a push goes:', { concurrency: true }, () => {
  const service = useService();

  for (const status of [301, 302, 303, 307, 308]) {
    test(`redirects are never followed: ${status}`, async (t) => {
      const elsewhere = await startReceiver(t);
      const meeting_id = service.name('meeting');
      const { receiver } = await service.member(t, meeting_id, {
        behaviour: { status, headers: { location: elsewhere.url } },
      });
      const delivery = await service.attempted(await service.send(meeting_id, {}));
      assert.deepEqual([delivery.last_attempt?.outcome, delivery.last_attempt?.status_code], ['bad_status', status]);
      assert.deepEqual([receiver.requests.length, elsewhere.requests.length], [1, 0]);
    });
  }

  test('a webhook_url that no push can go to is refused', async () => {
    const input = { instance_id: service.name('i'), instance_name: 'n', agent_ids: [] };
    for (const webhook_url of [
      '',
      'localhost',
      '/hook',
      'ftp://127.0.0.1/',
      'javascript:alert(1)',
      'http://',
      'http:///hook',
      'http://user:password@127.0.0.1/',
      'http://127.0.0.1:0/',
      'http://127.0.0.1:65536/',
      'http://127.0.0.1/a b',
      'http://127.0.0.1/\n',
      'http:\\\\127.0.0.1\\',
      'http://a..b/',
      null,
      1,
      ['http://127.0.0.1/'],
    ]) {
      const problem = assertProblem(
        await service.post('/api/v1/instances/register/', { ...input, webhook_url }),
        422,
        'invalid_fields',
      );
      assert.deepEqual(
        problem.errors?.map(({ path }) => path),
        ['webhook_url'],
        String(webhook_url),
      );
    }
  });

  test('a webhook_url that the egress policy forbids is refused with a code of its own', async () => {
    const input = { instance_id: service.name('i'), instance_name: 'n', agent_ids: [] };
    for (const host of ['169.254.169.254', '[fe80::1]', '168.63.129.16', '0xa9fea9fe', '[::ffff:a9fe:a9fe]']) {
      const answer = await service.post('/api/v1/instances/register/', { ...input, webhook_url: `http://${host}/` });
      const problem = assertProblem(answer, 422, 'webhook_url_not_allowed');
      assert.equal(problem.errors?.[0]?.path, 'webhook_url');
    }
  });
});
