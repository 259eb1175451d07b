/** The egress policy of a whole service: at registration, when the service starts, and at every push. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Diagnosis, Instance, ProblemDetails, RegisteredInstance } from '@convoke/sdk';
import { assertProblem, type Service, startService } from '../support/service.ts';
import { tapSockets } from '../support/socket_tap.ts';
import { until } from '../support/wait.ts';

const REFUSED = 'a stored webhook_url is refused; its pushes are blocked';

function register(service: Service, webhook_url: string, instance_id = service.name('i')) {
  const body = { instance_id, instance_name: 'A machine', agent_ids: ['a'], webhook_url };
  return service.post<RegisteredInstance | ProblemDetails>('/api/v1/instances/register/', body);
}

const refusals = (service: Service) => service.log.filter(({ msg }) => msg === REFUSED);

test('a registration that the policy refuses gets a response with the setting that would allow it', async (t) => {
  const cases = {
    lan: [
      ['http://127.0.0.1:9000/', 'CONVOKE_EGRESS=local'],
      ['http://localhost:9000/', 'CONVOKE_EGRESS=local'],
      ['http://[::ffff:7f00:1]:9000/', 'CONVOKE_EGRESS=local'],
      ['http://2852039166/', 'CONVOKE_EGRESS_ALLOW=169.254.169.254/32'],
      ['http://100.100.100.200/', 'CONVOKE_EGRESS_ALLOW=100.100.100.200/32'],
      ['http://192.0.2.1/', 'CONVOKE_EGRESS_ALLOW=192.0.2.1/32'],
    ],
    public: [
      ['https://0x7f.1/', 'CONVOKE_EGRESS=local'],
      ['https://10.0.0.1/', 'CONVOKE_EGRESS=lan'],
      ['https://[fd12::1]/', 'CONVOKE_EGRESS=lan'],
      ['https://[2001:db8::1]/', 'CONVOKE_EGRESS_ALLOW=2001:db8::1/128'],
      ['http://example.com/', 'CONVOKE_EGRESS_ALLOW_HTTP=true'],
    ],
  } as const;
  for (const [egress, refused] of Object.entries(cases)) {
    const service = await startService(t, { egress });
    for (const [webhook_url, setting] of refused) {
      const answer = await register(service, webhook_url);
      const problem = assertProblem(answer, 422, 'webhook_url_not_allowed');
      assert.ok(problem.detail.includes(`${setting} would allow`), problem.detail);
      assert.deepEqual(
        problem.errors?.map(({ path }) => path),
        ['webhook_url'],
      );
      // The control: with this setting alone, the service accepts the same registration.
      const [name = '', value = ''] = setting.split('=');
      const changed = { [name.slice('CONVOKE_'.length).toLowerCase()]: value };
      const opened = await startService(t, { egress, ...changed });
      assert.equal((await register(opened, webhook_url)).status, 201, setting);
      await opened.close();
    }
    await service.close();
  }
});

test('registering asks no name server: the response cannot show what an internal name stands for', async (t) => {
  const service = await startService(t, { egress: 'public' });
  const tap = tapSockets(t);
  const answer = await register(service, 'https://database.internal.example/');
  assert.equal(answer.status, 201);
  assert.equal(tap.lookups, 0);
  // The control: a push to this name asks a name server, and the tap shows it.
  const { instance_id } = answer.body as RegisteredInstance;
  await service.post('/api/v1/instances/webhook-test/', { instance_id });
  assert.ok(tap.lookups > 0);
});

test('an update that the policy refuses changes nothing', async (t) => {
  const service = await startService(t, { egress: 'lan', egress_allow: '127.0.0.0/8' });
  const { receiver, instance_id } = await service.member(t, 'standup');
  const before = await service.instance(instance_id);
  assertProblem(await register(service, 'http://169.254.169.254/', instance_id), 422, 'webhook_url_not_allowed');
  assert.deepEqual(await service.instance(instance_id), before);
  await service.settled(await service.send('standup', { n: 1 }));
  assert.equal(receiver.requests.length, 1);
});

for (const egress of ['lan', 'public'] as const) {
  test(`a stored URL that ${egress} refuses after a restart is reported, its pushes are blocked, and it is reached again when the policy is loosened`, async (t) => {
    const service = await startService(t);
    const { instance_id, receiver } = await service.member(t, 'standup');
    await service.settled(await service.send('standup', { n: 1 }));
    assert.equal(receiver.requests.length, 1);
    assert.deepEqual(refusals(service), []);

    const tap = tapSockets(t);
    await service.restart({ egress, egress_allow_http: 'true' });
    const sent = await service.send('standup', { n: 2 });
    const { state, attempts, delivery_id } = await service.attempted(sent);
    const [line, ...more] = await until(
      'the report',
      () => refusals(service),
      (lines) => lines.length > 0,
    );
    assert.equal(more.length, 0);
    assert.equal(line?.['instance_id'], instance_id);
    assert.match(String(line?.['reason']), /is a loopback address; CONVOKE_EGRESS=local would allow it/);

    assert.equal(state, 'pending');
    assert.deepEqual([attempts[0]?.outcome, attempts[0]?.status_code], ['blocked', null]);
    assert.match(attempts[0]?.detail ?? '', /CONVOKE_EGRESS=local would allow it/);
    const diagnosis = await service.post<Diagnosis>('/api/v1/instances/webhook-test/', { instance_id });
    assert.equal(diagnosis.body.outcome, 'blocked');
    assert.match(diagnosis.body.advice, /CONVOKE_EGRESS=local would allow it/);
    const { webhook_url, health, last_failure } = await service.instance(instance_id);
    assert.deepEqual([webhook_url, health, last_failure?.outcome], [receiver.url, 'failing', 'blocked']);
    const { port } = new URL(receiver.url);
    assert.deepEqual([tap.dialledPort(Number(port)), receiver.requests.length], [[], 1]);

    await service.restart({ egress_allow: '127.0.0.0/8' });
    await service.settled(sent);
    assert.equal(receiver.requests.length, 2);
    assert.equal(receiver.requests[1]?.headers['webhook-id'], delivery_id);
    assert.equal(tap.dialledPort(Number(port)).length, 1);
    assert.deepEqual(refusals(service), []);
  });
}

test('of many stored URLs that are refused, the log names twenty and gives the number', async (t) => {
  const service = await startService(t);
  await Promise.all(Array.from({ length: 25 }, () => register(service, 'http://127.0.0.1:9/')));
  await register(service, 'http://192.168.0.1/');
  await service.restart({ egress: 'lan' });
  const [line] = await until(
    'the number',
    () => service.log.filter(({ msg }) => msg.startsWith('more stored')),
    (lines) => lines.length > 0,
  );
  assert.equal(line?.['instances'], 25);
  assert.equal(refusals(service).length, 20);
});

test('what is logged of a refused URL is neither its path nor its query: they may hold a token', async (t) => {
  const service = await startService(t);
  const webhook_url = 'http://127.0.0.1:9/hook-canary?token=canary';
  assert.equal((await register(service, webhook_url)).status, 201);
  await service.restart({ egress: 'public' });
  await until(
    'the report',
    () => refusals(service),
    (lines) => lines.length > 0,
  );
  assert.doesNotMatch(JSON.stringify(service.log), /canary/);
  const { body } = await service.get<{ data: Instance[] }>('/api/v1/instances/');
  assert.equal(body.data[0]?.webhook_url, webhook_url);
});
