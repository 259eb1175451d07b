/** The response of a receiver to the last failed push: only who may see all deliveries of the instance sees it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ApiKeyWithToken, CreateKeyInput, Instance, Page } from '@convoke/sdk';
import { ENGINES } from '../support/engines.ts';
import { openStream } from '../support/event_stream.ts';
import { makeDatabase } from '../support/postgres.ts';
import { startReceiver } from '../support/receiver.ts';
import { instancePath, ON_A_FILE, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const ANSWER = 'out of GPU memory';

const bearer = ({ token }: ApiKeyWithToken) => ({ authorization: `Bearer ${token}` });

const READERS: Record<string, { key: CreateKeyInput; sees: boolean | null }> = {
  'an admin': { key: { scopes: ['admin'] }, sees: true },
  'a reader of everything': { key: { scopes: ['read'] }, sees: true },
  'a reader of one of its meetings': { key: { scopes: ['read'], meeting_ids: ['here'] }, sees: false },
  'another owner who reads one of its meetings': {
    key: { scopes: ['instance', 'read'], meeting_ids: ['here'] },
    sees: false,
  },
  'a reader of another meeting': { key: { scopes: ['read'], meeting_ids: ['nowhere'] }, sees: null },
  'another owner': { key: { scopes: ['instance'] }, sees: null },
};

for (const engine of ENGINES.map(({ name }) => name)) {
  test(`what a receiver answered elsewhere is not shown to a key that knows the instance from one meeting (${engine})`, async (t) => {
    const service = await startService(t, engine === 'SQLite' ? ON_A_FILE : { database_url: await makeDatabase() });
    await service.endOpenMode();
    const owner = await service.createKey({ scopes: ['instance'] });
    const keys = new Map([['its owner', { key: owner, sees: true as boolean | null }]]);
    for (const [name, { key, sees }] of Object.entries(READERS))
      keys.set(name, { key: await service.createKey(key), sees });
    const receiver = await startReceiver(t, { status: 500, body: ANSWER });
    const { body: registered } = await service.post<Instance>(
      '/api/v1/instances/register/',
      { instance_id: 'box', instance_name: 'Box', agent_ids: ['a'], webhook_url: receiver.url },
      bearer(owner),
    );
    await service.join('here', registered.instance_id, ['a']);
    await service.join('elsewhere', registered.instance_id, ['a']);
    const stream = await openStream(`${service.url}/api/v1/events/`, bearer(keys.get('an admin')!.key));
    t.after(() => stream.close());
    await service.send('elsewhere', {});
    await stream.some(1, ({ name }) => name === 'instance.failing');
    assert.ok(stream.text.includes('500') && !stream.text.includes(ANSWER), 'the feed sends everybody the same');
    await until(
      'the failure to be stored',
      () => service.instance('box'),
      ({ last_failure }) => last_failure !== null,
    );

    for (const [name, { key, sees }] of keys) {
      const one = await service.request<Instance>('GET', instancePath('box'), { headers: bearer(key) });
      const list = await service.request<Page<Instance>>('GET', '/api/v1/instances/', { headers: bearer(key) });
      const shown = [one.body, list.body.data[0]].map((instance) => instance?.last_failure?.response_excerpt);
      if (sees === null) assert.deepEqual([one.status, list.body.data], [404, []], name);
      else assert.deepEqual(shown, sees ? [ANSWER, ANSWER] : [undefined, undefined], name);
      if (sees === false) assert.equal(one.body.last_failure?.status_code, 500, name);
    }
    const { body: beat } = await service.request<Instance>('POST', `${instancePath('box')}heartbeat/`, {
      headers: bearer(owner),
    });
    assert.equal(beat.last_failure?.response_excerpt, ANSWER);
  });
}
