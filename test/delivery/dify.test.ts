/** The runtime `dify` over real HTTP, against an app as Dify's published API describes it. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { DifyServer } from '../support/dify_server.ts';
import { useService } from '../support/service.ts';
import { APP, appAnswersOnce, startApp } from './dify.ts';

// dify.slow.ts has the other modes.
appAnswersOnce('agent-chat', 'streaming');

describe('a wrong setting', () => {
  const service = useService({ retry_schedule: '1s' });

  async function member(app: DifyServer, more: object = {}): Promise<{ m: string; instance_id: string }> {
    const m = service.name('meeting');
    const { instance_id } = await service.register({
      webhook_url: app.url,
      webhook_headers: { authorization: `Bearer ${APP.key}` },
      agent_ids: ['lena'],
      runtime: 'dify',
      ...more,
    });
    await service.join(m, instance_id, ['lena']);
    return { m, instance_id };
  }

  for (const [what, mode, more, advice] of [
    ['of the way to answer', 'agent-chat', {}, 'Sky is an agent: set runtime_options.response_mode to streaming.'],
    ['of the app', 'workflow', {}, 'The app Sky does not chat, its mode is workflow: take the key of one that does.'],
    [
      'of the key',
      'chat',
      { webhook_headers: { authorization: 'Bearer wrong' } },
      '401: it wants another credential; set webhook_headers.authorization.',
    ],
  ] as const) {
    test(`${what} is found by webhook-test without a run of the app, and fails a push`, async (t) => {
      const app = await startApp(t, { mode });
      const { m, instance_id } = await member(app, more);
      const tested = await service.post<{ success: boolean; advice: string }>('/api/v1/instances/webhook-test/', {
        instance_id,
      });
      assert.deepEqual([tested.body.success, tested.body.advice], [false, advice]);
      const { attempts } = await service.attempted(await service.send(m, { content: 'hi' }));
      assert.equal(attempts[0]?.outcome, 'bad_status');
      assert.deepEqual(app.runs, []);
    });
  }
});
