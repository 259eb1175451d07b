/** Liveness, readiness, metrics, the OpenAPI document and its page. */
import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { before, describe, test } from 'node:test';
import { buildIfStale } from '../../scripts/web.ts';
import { startService, useService } from '../support/service.ts';

interface OpenApi {
  openapi: string;
  servers?: { url: string }[];
  paths: Record<string, Record<string, { operationId?: string; responses?: Record<string, unknown> }>>;
}

describe('for operators:', { concurrency: true }, () => {
  const service = useService();
  before(async () => void (await buildIfStale()));

  test('/healthz and /readyz say that it lives and that it is ready', async () => {
    for (const path of ['/healthz', '/readyz']) assert.equal((await service.get(path)).status, 200);
  });

  test('/metrics is Prometheus text that counts what happens', async (t) => {
    const alone = await startService(t);
    const { receiver, instance_id } = await alone.member(t, 'm');
    const value = async (name: string): Promise<number> => {
      const { status, headers, text } = await alone.get('/metrics');
      assert.equal(status, 200);
      assert.match(String(headers['content-type']), /^text\/plain\b/);
      const line = text.split('\n').find((each) => each.startsWith(`${name} `));
      assert.ok(line !== undefined, name);
      return Number(line.slice(name.length));
    };
    await alone.settled(await alone.send('m', {}));
    assert.equal(await value('convoke_messages_accepted_total'), 1);
    assert.equal(await value('convoke_attempts_total{outcome="ok"}'), 1);
    assert.equal(await value('convoke_deliveries_settled_total{state="delivered",reason="none"}'), 1);
    const commands = await value('convoke_commit_batch_size_sum');
    assert.ok(commands >= 2, `${commands} commands`);
    assert.equal(await value('convoke_deliveries_pending'), 0);
    assert.equal(await value('convoke_oldest_pending_seconds'), 0);
    await receiver.down();
    await alone.attempted(await alone.send('m', {}));
    assert.equal(await value('convoke_attempts_total{outcome="connect_refused"}'), 1);
    assert.equal(await value('convoke_deliveries_pending'), 1);
    const oldest_s = await value('convoke_oldest_pending_seconds');
    assert.ok(oldest_s > 0, `${oldest_s} s`);
    await alone.request('DELETE', `/api/v1/instances/${instance_id}/`);
    assert.equal(await value('convoke_deliveries_settled_total{state="cancelled",reason="instance_deleted"}'), 1);
    assert.equal(await value('convoke_deliveries_pending'), 0);
  });

  test('no metric names an instance, a meeting or an agent', async (t) => {
    const meeting_id = service.name('unmistakable-meeting');
    const { instance_id } = await service.member(t, meeting_id, { agent_ids: ['unmistakable-agent'] });
    await service.settled(await service.send(meeting_id, {}));
    const { text } = await service.get('/metrics');
    for (const id of [meeting_id, instance_id, 'unmistakable-agent']) assert.ok(!text.includes(id));
  });

  test('/openapi.json is OpenAPI 3.1 and describes every endpoint of the contract', async () => {
    const { status, headers, body } = await service.get<OpenApi>('/openapi.json');
    assert.equal(status, 200);
    assert.match(String(headers['content-type']), /^application\/json\b/);
    assert.match(body.openapi, /^3\.1\./);
    const operations = Object.entries(body.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    for (const operation of [
      'POST /api/v1/instances/register/',
      'GET /api/v1/instances/',
      'GET /api/v1/instances/{instance_id}/',
      'PATCH /api/v1/instances/{instance_id}/',
      'DELETE /api/v1/instances/{instance_id}/',
      'POST /api/v1/instances/{instance_id}/heartbeat/',
      'POST /api/v1/instances/{instance_id}/rotate-secret/',
      'POST /api/v1/instances/{instance_id}/recover/',
      'POST /api/v1/instances/join-meeting/',
      'POST /api/v1/instances/leave-meeting/',
      'POST /api/v1/instances/webhook-test/',
      'GET /api/v1/meetings/',
      'GET /api/v1/meetings/{meeting_id}/instances/',
      'POST /api/v1/meetings/{meeting_id}/messages/',
      'GET /api/v1/meetings/{meeting_id}/messages/',
      'GET /api/v1/deliveries/',
      'GET /api/v1/deliveries/{delivery_id}/',
      'POST /api/v1/deliveries/{delivery_id}/retry/',
    ]) {
      assert.ok(operations.includes(operation), operation);
    }
    const ids = Object.values(body.paths).flatMap((methods) => Object.values(methods).map((each) => each.operationId));
    assert.equal(new Set(ids).size, ids.length, 'every operation has an id of its own');
  });

  test('requests tried on the page go to the origin of the page', async () => {
    const { body } = await service.get<OpenApi>('/openapi.json');
    for (const { url } of body.servers ?? []) {
      assert.equal(new URL(url, service.url).origin, service.url);
    }
  });

  test('/docs/ is a page that needs no other host', async () => {
    const page = await service.get('/docs/');
    assert.equal(page.status, 200, page.text);
    assert.match(String(page.headers['content-type']), /^text\/html\b/);
    const references = [...page.text.matchAll(/(?:src|href)="([^"]*)"/g)].map(([, reference]) => String(reference));
    assert.ok(references.length > 0);
    for (const reference of references) {
      const url = new URL(reference, `${service.url}/docs/`);
      assert.equal(url.origin, service.url, reference);
      const answer = await service.get(url.pathname);
      assert.equal(answer.status, 200, reference);
    }
    assert.ok(!/https?:\/\//.test(page.text), page.text);
    // The content security policy also lets the page load only files of the service.
    const policy = String(page.headers['content-security-policy']);
    assert.match(policy, /default-src 'none'/);
    assert.ok(!/https?:|\*|\b[a-z0-9-]+\.[a-z]{2,}\b/i.test(policy), policy);
  });

  test('/docs without the slash leads there', async () => {
    const answer = await service.get('/docs');
    if (answer.status !== 200) {
      assert.ok([301, 302, 307, 308].includes(answer.status), String(answer.status));
      assert.equal(
        new URL(String(answer.headers.location), `${service.url}/docs`).pathname.replace(/\/?$/, '/'),
        '/docs/',
      );
    }
  });
});

test('a node on all addresses is shown by the name of its machine, or by its setting', async (t) => {
  const service = await startService(t);
  await service.endOpenMode();
  const address = async (): Promise<string | undefined> => {
    await service.untilItDelivers();
    return (await service.get<{ data: { address: string }[] }>('/api/v1/nodes/')).body.data[0]?.address;
  };
  assert.equal(await address(), service.url);
  await service.restart({ host: '0.0.0.0' });
  assert.equal(await address(), `http://${hostname()}:${new URL(service.url).port}`);
  await service.restart({ host: '0.0.0.0', advertised_url: 'https://convoke.example/node-1/' });
  assert.equal(await address(), 'https://convoke.example/node-1');
});
