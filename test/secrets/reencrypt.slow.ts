/**
 * The data key in its file is changed over the API while the service works, and with the command of the real program.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Reencryption } from '@convoke/sdk';
import { ConvokeClient } from '@convoke/sdk';
import type { Author } from '../../src/changes/author.ts';
import { ServiceChanges } from '../../src/changes/service.ts';
import { program } from '../../src/cli/program/program.ts';
import { signingKey, signPush } from '../../src/domain/signature.ts';
import { headerOf, startReceiver } from '../support/receiver.ts';
import { ON_A_FILE, startService } from '../support/service.ts';

const INSTANCES = 300;
const MESSAGES = 200;

test('while the key is changed, sends are accepted, pushes arrive signed, and instances are registered', async (t) => {
  const service = await startService(t, ON_A_FILE);
  const receiver = await startReceiver(t);
  const headers = { authorization: 'Bearer 0123456789' };
  const { webhook_secret = '' } = await service.register({
    instance_id: 'listener',
    webhook_url: receiver.url,
    webhook_headers: headers,
  });
  await service.join('m', 'listener', ['a']);
  const secrets = new Map<string, string | undefined>();
  const register = async (instance_id: string): Promise<void> => {
    const made = await service.register({ instance_id, webhook_url: receiver.url, webhook_headers: headers });
    secrets.set(instance_id, made.webhook_secret);
  };
  await Promise.all(Array.from({ length: INSTANCES }, (_, i) => register(`i${i}`)));

  const reencrypt = () => service.post<Reencryption>('/api/v1/encryption/reencrypt/');
  /** Continues until the change is over: on a slow machine one call does only a part. Returns how many it rewrote. */
  const rewrittenFrom = async ({ key_id, rewritten, done }: Reencryption): Promise<number> => {
    if (done) return rewritten;
    const { body } = await reencrypt();
    assert.equal(body.key_id, key_id, 'it is the same change');
    return rewritten + (await rewrittenFrom(body));
  };
  const sending = Promise.all(Array.from({ length: MESSAGES }, (_, n) => service.send('m', { n })));
  const registering = Promise.all(Array.from({ length: 50 }, (_, i) => register(`later${i}`)));
  // Neither of the two calls begins its work before the other one has arrived.
  const both = Promise.withResolvers<void>();
  let arrived = 0;
  const begin: ServiceChanges['reencrypt'] = Reflect.get(ServiceChanges.prototype, 'reencrypt');
  t.mock.method(ServiceChanges.prototype, 'reencrypt', async function (this: ServiceChanges, author: Author) {
    if (++arrived === 2) both.resolve();
    await both.promise;
    return begin.call(this, author);
  });
  const [first, second] = await Promise.all([reencrypt(), reencrypt()]);
  await Promise.all([sending, registering]);

  assert.deepEqual([first.status, second.status], [200, 200], first.text + second.text);
  assert.equal(first.body.key_id, second.body.key_id, 'two at a time are one change');
  const ended = { ...first.body, done: first.body.done || second.body.done };
  assert.ok((await rewrittenFrom(ended)) + second.body.rewritten >= INSTANCES);
  const key = signingKey(webhook_secret);
  for (const request of await receiver.count(MESSAGES)) {
    assert.equal(request.headers['authorization'], headers.authorization);
    const [id, timestamp] = [headerOf(request, 'webhook-id'), Number(headerOf(request, 'webhook-timestamp'))];
    assert.equal(headerOf(request, 'webhook-signature'), signPush([key], id, timestamp, request.body));
  }

  const again = await reencrypt();
  assert.notEqual(again.body.key_id, first.body.key_id, 'after it, the next call is another change');
  assert.equal(await rewrittenFrom(again.body), INSTANCES + 50 + 1);
  for (const instance_id of ['i0', 'later49', 'listener']) {
    assert.deepEqual((await service.instance(instance_id)).webhook_header_names, ['authorization']);
    const { success } = (await service.post<{ success: boolean }>('/api/v1/instances/webhook-test/', { instance_id }))
      .body;
    assert.ok(success);
  }
});

test('`convoke keys reencrypt` and the SDK do the same', async (t) => {
  const service = await startService(t, ON_A_FILE);
  await service.register({ webhook_url: 'http://127.0.0.1:9/' });
  const before = await new ConvokeClient({ base_url: service.url }).reencrypt();
  assert.deepEqual([before.done, before.rewritten], [true, 1]);
  const lines: string[] = [];
  t.mock.method(process.stdout, 'write', (text: string) => lines.push(text) > 0);
  await program().parseAsync(['keys', 'reencrypt', '--url', service.url], { from: 'user' });
  t.mock.restoreAll();
  assert.match(lines.join(''), /^the secrets of 1 instance are encrypted under the new key [0-9a-f]{16}\n$/);
  assert.ok(!lines.join('').includes(before.key_id));
});
