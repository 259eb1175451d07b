/** The diagnosis of a webhook. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Delivery, Diagnosis, Page } from '@convoke/sdk';
import { Webhook } from 'standardwebhooks';
import { type Behaviour, headerOf, pushOf, startReceiver } from '../support/receiver.ts';
import { useService } from '../support/service.ts';

describe('webhook-test:', { concurrency: true }, () => {
  const service = useService();

  async function diagnose(instance_id: string): Promise<Diagnosis> {
    const answer = await service.post<Diagnosis>('/api/v1/instances/webhook-test/', { instance_id });
    assert.equal(answer.status, 200, answer.text);
    assert.deepEqual(Object.keys(answer.body).toSorted(), [
      'advice',
      'duration_ms',
      'outcome',
      'response_excerpt',
      'stages',
      'status_code',
      'success',
    ]);
    assert.match(answer.body.advice, /^\S.*\.$/, 'the advice is a sentence');
    assert.ok(answer.body.duration_ms >= 0);
    return answer.body;
  }

  async function diagnoseBehaviour(t: TestContext, behaviour: Behaviour): Promise<Diagnosis> {
    const receiver = await startReceiver(t, behaviour);
    const { instance_id } = await service.register({ webhook_url: receiver.url });
    return diagnose(instance_id);
  }

  const stagesOf = ({ stages }: Diagnosis): [string, boolean][] => stages.map(({ stage, ok }) => [stage, ok]);

  test('sends one signed push for the stored URL, as a real one but marked as a test', async (t) => {
    const receiver = await startReceiver(t);
    const { instance_id, webhook_secret } = await service.register({
      agent_ids: ['a', 'b'],
      webhook_url: receiver.url,
      webhook_headers: { authorization: 'Bearer x' },
    });
    await diagnose(instance_id);
    assert.equal(receiver.requests.length, 1);
    const request = await receiver.next();
    assert.equal(request.method, 'POST');
    assert.equal(headerOf(request, 'convoke-test'), 'true');
    assert.equal(headerOf(request, 'content-type'), 'application/json');
    assert.equal(headerOf(request, 'authorization'), 'Bearer x');
    const push = pushOf(request);
    assert.deepEqual(Object.keys(push), ['event', 'meeting_id', 'message', 'target_agents', 'timestamp']);
    assert.deepEqual([push.event, push.meeting_id, push.target_agents], ['new_message', 'webhook-test', ['a', 'b']]);
    assert.equal(push.timestamp, push.message['created_at']);
    new Webhook(String(webhook_secret)).verify(request.text, request.headers as Record<string, string>);
  });

  test('records no delivery, and leaves the health of the instance alone', async (t) => {
    const { instance_id } = await service.member(t, service.name('meeting'), { behaviour: { status: 500 } });
    const before = await service.instance(instance_id);
    await diagnose(instance_id);
    const { body } = await service.get<Page<Delivery>>(`/api/v1/deliveries/?instance_id=${instance_id}`);
    assert.deepEqual(body.data, []);
    assert.deepEqual(await service.instance(instance_id), before);
    const rooms = await service.get<Page<{ meeting_id: string }>>('/api/v1/meetings/?q=webhook-test');
    assert.deepEqual(rooms.body.data, []);
  });

  test('works for an instance that is switched off', async (t) => {
    const receiver = await startReceiver(t);
    const { instance_id } = await service.register({ webhook_url: receiver.url });
    await service.patch(instance_id, { is_active: false, webhook_enabled: false });
    assert.equal((await diagnose(instance_id)).success, true);
  });

  test('success: every stage is ok, on a connection of its own, every time', async (t) => {
    const receiver = await startReceiver(t, { body: 'hello' });
    const { instance_id } = await service.register({ webhook_url: receiver.url });
    for (let i = 0; i < 2; i++) {
      const diagnosis = await diagnose(instance_id);
      const { success, outcome, status_code, response_excerpt } = diagnosis;
      assert.deepEqual([success, outcome, status_code, response_excerpt], [true, 'ok', 200, 'hello']);
      const stages = stagesOf(diagnosis).filter(([stage]) => stage !== 'dns');
      assert.deepEqual(stages, [
        ['connect', true],
        ['request', true],
        ['response', true],
      ]);
    }
  });

  test('401: the runtime wants a credential', async (t) => {
    const diagnosis = await diagnoseBehaviour(t, { status: 401, body: 'who are you?' });
    const { success, outcome, status_code, response_excerpt, advice } = diagnosis;
    assert.deepEqual([success, outcome, status_code, response_excerpt], [false, 'bad_status', 401, 'who are you?']);
    assert.match(advice, /^401: the runtime wants a credential: set webhook_headers\.authorization\. Or it verifies/);
  });

  for (const [status, outcome, advice] of [
    [202, 'not_200', /2xx/],
    [302, 'bad_status', /redirects are never followed/],
    [404, 'bad_status', /path/],
    [410, 'gone', /register the instance again/],
    [500, 'bad_status', /log/],
  ] as const) {
    test(`${status}: ${outcome}, with advice`, async (t) => {
      const diagnosis = await diagnoseBehaviour(t, { status });
      assert.deepEqual([diagnosis.success, diagnosis.outcome, diagnosis.status_code], [false, outcome, status]);
      assert.match(diagnosis.advice, advice);
    });
  }

  test('410 in a test does not switch the webhook off: nothing is recorded', async (t) => {
    const receiver = await startReceiver(t, { status: 410 });
    const { instance_id } = await service.register({ webhook_url: receiver.url });
    await diagnose(instance_id);
    assert.equal((await service.instance(instance_id)).webhook_enabled, true);
  });

  test('202 is a success where success_statuses says so', async (t) => {
    const receiver = await startReceiver(t, { status: 202 });
    const { instance_id } = await service.register({ webhook_url: receiver.url, success_statuses: '2xx' });
    assert.equal((await diagnose(instance_id)).success, true);
  });

  test('nobody listens: it fails at connect', async (t) => {
    const receiver = await startReceiver(t);
    await receiver.down();
    const { instance_id } = await service.register({ webhook_url: receiver.url });
    const diagnosis = await diagnose(instance_id);
    assert.deepEqual([diagnosis.success, diagnosis.outcome, diagnosis.status_code], [false, 'connect_refused', null]);
    assert.deepEqual(stagesOf(diagnosis).at(-1), ['connect', false]);
    assert.notEqual(diagnosis.stages.at(-1)?.detail, '');
  });

  test('the host name has no address: it fails at dns', async () => {
    const { instance_id } = await service.register({ webhook_url: 'http://nobody.onion/' });
    const diagnosis = await diagnose(instance_id);
    assert.deepEqual([diagnosis.success, diagnosis.outcome, diagnosis.status_code], [false, 'dns_failed', null]);
    assert.deepEqual(stagesOf(diagnosis), [['dns', false]]);
  });

  test('a host name that has one: dns is a stage of its own', async (t) => {
    const receiver = await startReceiver(t);
    await receiver.down();
    const { port } = new URL(receiver.url);
    const { instance_id } = await service.register({ webhook_url: `http://localhost:${port}/` });
    const diagnosis = await diagnose(instance_id);
    assert.deepEqual(stagesOf(diagnosis).slice(0, 2), [
      ['dns', true],
      ['connect', false],
    ]);
  });

  test('the connection is reset: a broken response', async (t) => {
    const diagnosis = await diagnoseBehaviour(t, 'reset');
    assert.deepEqual([diagnosis.success, diagnosis.outcome, diagnosis.status_code], [false, 'broken_response', null]);
    assert.deepEqual(stagesOf(diagnosis).at(-1), ['response', false]);
  });

  test('TLS where there is none: it fails at tls', async (t) => {
    const receiver = await startReceiver(t);
    const { instance_id } = await service.register({ webhook_url: receiver.url.replace('http:', 'https:') });
    const diagnosis = await diagnose(instance_id);
    assert.deepEqual([diagnosis.success, diagnosis.outcome], [false, 'tls_failed']);
    assert.deepEqual(stagesOf(diagnosis).at(-1), ['tls', false]);
  });
});
