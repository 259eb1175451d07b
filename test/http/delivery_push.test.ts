/** GET /api/v1/deliveries/{delivery_id}/push/: the request of an attempt, without its secrets. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { curlOf, type DeliveryPush } from '@convoke/sdk';
import { assertProblem, type Service, useService } from '../support/service.ts';

const pushOf = async (service: Service, delivery_id: string): Promise<DeliveryPush> => {
  const answer = await service.get<DeliveryPush>(`/api/v1/deliveries/${delivery_id}/push/`);
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
};

const MESSAGE = `{"b": 1.50, "a":12345678901234567890, "t":"it's \\u0000 $(x) \`y\` é", "created_at":"2026-01-01T00:00:00Z"}`;

describe('the request of a delivery', { concurrency: true }, () => {
  const service = useService();

  test('is the one that the receiver got, but for the secrets', async (t) => {
    const meeting_id = service.name('meeting');
    const webhook_headers = { authorization: 'Bearer canary-3f9c20d1', 'x-own': 'canary-own' };
    const { receiver } = await service.member(t, meeting_id, { registration: { webhook_headers } });
    const { delivery_id } = await service.settled(await service.sendText(meeting_id, MESSAGE));
    const push = await pushOf(service, delivery_id);
    const [got] = receiver.requests;
    assert.ok(got !== undefined);
    assert.deepEqual([push.url, push.runtime, push.body], [receiver.url, null, got.text]);
    for (const [name, value] of Object.entries(push.headers)) {
      if (value === '[hidden]' || value === '[signature]') assert.ok(got.headers[name] !== undefined, name);
      else assert.equal(value, got.headers[name], name);
    }
    const hidden = Object.keys(push.headers).filter((name) => push.headers[name]?.startsWith('['));
    assert.deepEqual(hidden, ['authorization', 'x-own', 'webhook-signature']);
    assert.doesNotMatch(JSON.stringify(push), /canary/);
  });

  test('as a curl command gives curl the same request, whatever the message contains', async (t) => {
    const meeting_id = service.name('meeting');
    await service.member(t, meeting_id);
    const { delivery_id } = await service.settled(await service.sendText(meeting_id, MESSAGE));
    const push = await pushOf(service, delivery_id);
    const command = curlOf(push);
    assert.ok(command !== null);
    // A shell parses the command and prints the arguments of curl.
    const printed = execFileSync('sh', ['-c', `curl() { printf '%s\\0' "$@"; }\n${command}`]);
    const headers = Object.entries(push.headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]);
    const expected = ['--globoff', '-X', 'POST', push.url, ...headers, '--data-binary', push.body];
    assert.deepEqual(printed.toString().split('\0').slice(0, -1), expected);
  });

  test('as a curl command has a message on standard input that is too long for an argument', () => {
    const body = JSON.stringify({ text: `it's ${'é'.repeat(70_000)}%s` });
    const command = curlOf({ delivery_id: 'd', url: 'http://x/', runtime: null, headers: {}, body });
    const got = execFileSync('sh', { input: `curl() { printf '%s ' "$*"; cat; }\n${command}\n` });
    assert.equal(got.toString(), `--globoff -X POST http://x/ --data-binary @- ${body}`);
  });

  test('before the first attempt is that of the first', async (t) => {
    const meeting_id = service.name('meeting');
    const { instance_id } = await service.member(t, meeting_id, { behaviour: 'hang' });
    const sent = await service.send(meeting_id, {});
    const [delivery] = await service.deliveriesOf(sent);
    assert.ok(delivery !== undefined);
    const { headers } = await pushOf(service, delivery.delivery_id);
    assert.deepEqual([headers['convoke-attempt'], headers['webhook-id']], ['1', delivery.delivery_id]);
    assert.equal(delivery.instance_id, instance_id);
  });

  test('has no command for a runtime with another shape, and for a machine without an address', () => {
    const push = { delivery_id: 'd', url: 'http://x/', runtime: null, headers: {}, body: '{}' };
    assert.ok(curlOf(push) !== null);
    assert.equal(curlOf({ ...push, runtime: 'openai' }), null);
    assert.equal(curlOf({ ...push, url: null }), null);
  });

  test('is not there for a delivery that is not', async () => {
    assertProblem(await service.get('/api/v1/deliveries/dlv_x/push/'), 404, 'delivery_does_not_exist');
  });
});
