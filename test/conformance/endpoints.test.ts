/** Spec section 4: the endpoints and what their operations take. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Diagnosis, Instance, Page, RegisteredInstance } from '@convoke/sdk';
import { startReceiver } from '../support/receiver.ts';
import { assertProblem, useService } from '../support/service.ts';

const WEBHOOK_URL = 'http://127.0.0.1:9000/';

describe('spec 4, the endpoints:', { concurrency: true }, () => {
  const service = useService();

  for (const slash of ['/', '']) {
    const spelled = slash === '' ? 'without' : 'with';

    test(`POST /api/v1/instances/register registers an instance, ${spelled} a slash at the end`, async () => {
      const body = { instance_id: service.name('i'), instance_name: 'n', agent_ids: ['a'], webhook_url: WEBHOOK_URL };
      const path = `/api/v1/instances/register${slash}`;
      assert.equal((await service.post(path, body)).status, 201);
      assert.equal((await service.post(path, body)).status, 200);
    });

    test(`POST /api/v1/instances/join-meeting links an instance to a meeting, ${spelled} a slash`, async () => {
      const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
      const body = { instance_id, meeting_id: service.name('meeting'), agent_ids: ['a'] };
      assert.equal((await service.post(`/api/v1/instances/join-meeting${slash}`, body)).status, 201);
    });

    test(`GET /api/v1/instances lists the instances, ${spelled} a slash`, async () => {
      const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
      const answer = await service.get<Page<Instance>>(`/api/v1/instances${slash}?q=${instance_id}`);
      assert.equal(answer.status, 200);
      assert.ok(answer.body.data.some((instance) => instance.instance_id === instance_id));
    });

    test(`POST /api/v1/instances/webhook-test tests a webhook, ${spelled} a slash`, async (t) => {
      const receiver = await startReceiver(t);
      const { instance_id } = await service.register({ webhook_url: receiver.url });
      const answer = await service.post<Diagnosis>(`/api/v1/instances/webhook-test${slash}`, { instance_id });
      assert.equal(answer.status, 200, answer.text);
      assert.equal(answer.body.success, true);
      assert.equal(receiver.requests.length, 1);
    });

    test(`every other endpoint is there too, ${spelled} a slash`, async (t) => {
      const meeting_id = service.name('meeting');
      const { instance_id } = await service.member(t, meeting_id);
      const delivery = await service.settled(await service.send(meeting_id, {}));
      const endpoints: [method: string, path: string, status: number, body?: object][] = [
        ['GET', `/api/v1/instances/${instance_id}`, 200],
        ['PATCH', `/api/v1/instances/${instance_id}`, 200, { instance_name: 'Other' }],
        ['POST', `/api/v1/instances/${instance_id}/heartbeat`, 200],
        ['POST', `/api/v1/instances/${instance_id}/rotate-secret`, 200, {}],
        ['POST', `/api/v1/instances/${instance_id}/recover`, 200, { since: '2026-01-01T00:00:00Z' }],
        ['GET', '/api/v1/meetings', 200],
        ['GET', `/api/v1/meetings/${meeting_id}/instances`, 200],
        ['GET', `/api/v1/meetings/${meeting_id}/messages`, 200],
        ['POST', `/api/v1/meetings/${meeting_id}/messages`, 201, { message: {} }],
        ['GET', '/api/v1/deliveries', 200],
        ['GET', `/api/v1/deliveries/${delivery.delivery_id}`, 200],
        ['POST', `/api/v1/deliveries/${delivery.delivery_id}/retry`, 409],
        ['POST', '/api/v1/instances/leave-meeting', 200, { instance_id, meeting_id }],
        ['DELETE', `/api/v1/instances/${instance_id}`, 204],
        ['GET', '/healthz', 200],
        ['GET', '/readyz', 200],
        ['GET', '/metrics', 200],
      ];
      for (const [method, path, status, body] of endpoints) {
        const answer = await service.request(method, path + slash, body === undefined ? {} : { body });
        assert.equal(answer.status, status, `${method} ${path + slash}: ${answer.text}`);
      }
    });
  }

  test('the path of an endpoint answers to no other method', async () => {
    for (const [method, path, allowed] of [
      ['PUT', '/api/v1/instances/register/', 'DELETE, GET, HEAD, PATCH, POST'],
      ['PUT', '/api/v1/instances/', 'GET, HEAD'],
      ['POST', '/api/v1/instances/', 'GET, HEAD'],
      ['DELETE', '/api/v1/instances/', 'GET, HEAD'],
      ['POST', '/api/v1/meetings/', 'GET, HEAD'],
      ['DELETE', '/api/v1/deliveries/dlv_x/', 'GET, HEAD'],
      ['GET', '/api/v1/instances/a%2Fb/heartbeat', 'POST'],
    ] as const) {
      const answer = await service.request(method, path);
      assertProblem(answer, 405, 'method_not_allowed');
      assert.equal(answer.headers.allow, allowed);
    }
    assertProblem(await service.get('/api/v1/instances/register/x/'), 404, 'route_does_not_exist');
  });

  test('HEAD answers as GET does, without the body', async () => {
    const answer = await service.request('HEAD', '/api/v1/instances/');
    assert.deepEqual([answer.status, answer.text], [200, '']);
  });

  describe('the inputs of the operations:', { concurrency: true }, () => {
    const inputs: Record<
      string,
      { path: string; body: () => Promise<Record<string, unknown>> | Record<string, unknown> }
    > = {
      register: {
        path: '/api/v1/instances/register/',
        body: () => ({
          instance_id: service.name('i'),
          instance_name: 'n',
          agent_ids: ['a'],
          webhook_url: WEBHOOK_URL,
        }),
      },
      'join meeting': {
        path: '/api/v1/instances/join-meeting/',
        body: async () => {
          const { instance_id } = await service.register({ webhook_url: WEBHOOK_URL });
          return { instance_id, meeting_id: service.name('meeting'), agent_ids: ['a'] };
        },
      },
      'leave meeting': {
        path: '/api/v1/instances/leave-meeting/',
        body: () => ({ instance_id: service.name('i'), meeting_id: service.name('meeting') }),
      },
    };
    for (const [operation, { path, body }] of Object.entries(inputs)) {
      test(`${operation} takes these and nothing less`, async () => {
        const whole = await body();
        assert.ok((await service.post(path, whole)).status < 300);
        for (const field of Object.keys(whole)) {
          const { [field]: _, ...rest } = whole;
          const problem = assertProblem(await service.post(path, rest), 422, 'invalid_fields');
          assert.deepEqual(problem.errors, [{ path: field, message: 'is required' }]);
        }
        const problem = assertProblem(await service.post(path, {}), 422, 'invalid_fields');
        assert.deepEqual(problem.errors?.map((error) => error.path).toSorted(), Object.keys(whole).toSorted());
      });

      test(`${operation} takes each of its own type only`, async () => {
        const whole = await body();
        for (const field of Object.keys(whole)) {
          for (const wrong of [null, true, 1.5, {}, [{}], ...(field === 'agent_ids' ? ['a', 1] : [['a'], ''])]) {
            const answer = await service.post(path, { ...whole, [field]: wrong });
            const problem = assertProblem(answer, 422, 'invalid_fields');
            assert.ok(
              problem.errors?.every((error) => error.path.split('.')[0] === field),
              answer.text,
            );
          }
        }
        // Only a meeting id may be a number. In any other field a number is an error: the service makes no text of it.
        assertProblem(await service.post(path, { ...whole, instance_id: 1 }), 422, 'invalid_fields');
      });
    }

    test('webhook test takes the instance_id of an instance that is registered', async () => {
      const path = '/api/v1/instances/webhook-test/';
      assertProblem(await service.post(path, {}), 422, 'invalid_fields');
      assertProblem(await service.post(path, { instance_id: 'nobody' }), 404, 'instance_does_not_exist');
    });
  });

  test('the same register twice answers the same instance', async () => {
    const body = { instance_id: service.name('i'), instance_name: 'n', agent_ids: ['a'], webhook_url: WEBHOOK_URL };
    const [first, second] = [
      await service.post<RegisteredInstance>('/api/v1/instances/register/', body),
      await service.post<RegisteredInstance>('/api/v1/instances/register/', body),
    ];
    const { webhook_secret, ...answered } = first.body;
    assert.equal(typeof webhook_secret, 'string');
    const { last_seen_at, updated_at } = second.body;
    assert.deepEqual(second.body, { ...answered, last_seen_at, updated_at });
  });
});
