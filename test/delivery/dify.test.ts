/** The runtime `dify` over real HTTP, against an app as Dify's published API describes it. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { converse } from '../runtimes/conversation.ts';
import { type DifyApp, DifyServer } from '../support/dify_server.ts';
import { useService } from '../support/service.ts';

const APP: DifyApp = { name: 'Sky', mode: 'chat', key: 'app-the-key', answer: (query) => `I received: ${query}` };

/** Starts an app, and ends it with the test. Node 22 cannot parse `await using`, so this calls the disposer itself. */
async function startApp(t: TestContext, changes: Partial<DifyApp>): Promise<DifyServer> {
  const app = await DifyServer.start({ ...APP, ...changes });
  t.after(() => app[Symbol.asyncDispose]());
  return app;
}

/** A question to the app by webhook, and one by `convoke connect`. */
function talkWith(app: DifyServer, response_mode: string): ReturnType<typeof converse> {
  return converse({
    runtime: 'dify',
    version: '',
    sent: '',
    came_back: '',
    agent_id: 'lena',
    to: app.url,
    headers: { authorization: `Bearer ${APP.key}` },
    registration: { runtime: 'dify', runtime_options: { response_mode } },
    runsOf: (content) => app.runs.filter(({ query }) => query.includes(content)).length,
  });
}

for (const [mode, response_mode] of [
  ['chat', 'blocking'],
  ['advanced-chat', 'blocking'],
  ['chat', 'streaming'],
  ['agent-chat', 'streaming'],
] as const) {
  test(`an app of the mode ${mode} answers once, ${response_mode}, by webhook and by connect`, async (t) => {
    const app = await startApp(t, { mode });
    const rows = await talkWith(app, response_mode);
    for (const { reply, way } of rows)
      assert.equal(reply, `I received: somebody: What is the weather like? (by ${way})`);
    assert.deepEqual(new Set(app.runs.map(({ user }) => user)), new Set(['m:lena']));
  });
}

test('a streamed answer of a thousand words arrives whole, by webhook and by connect', async (t) => {
  const answer = 'word '.repeat(1_000).trim();
  const app = await startApp(t, { mode: 'agent-chat', answer: () => answer });
  const rows = await talkWith(app, 'streaming');
  assert.deepEqual(
    rows.map(({ reply }) => reply),
    [answer, answer],
  );
});

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
