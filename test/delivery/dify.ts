/** An app as Dify's published API describes it, and questions to it over real HTTP. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { converse } from '../runtimes/conversation.ts';
import { type DifyApp, DifyServer } from '../support/dify_server.ts';

export const APP: DifyApp = {
  name: 'Sky',
  mode: 'chat',
  key: 'app-the-key',
  answer: (query) => `I received: ${query}`,
};

/** Starts an app, and ends it with the test. Node 22 cannot parse `await using`, so this calls the disposer itself. */
export async function startApp(t: TestContext, changes: Partial<DifyApp>): Promise<DifyServer> {
  const app = await DifyServer.start({ ...APP, ...changes });
  t.after(() => app[Symbol.asyncDispose]());
  return app;
}

/** A question to the app by webhook, and one by `convoke connect`. */
export function talkWith(app: DifyServer, response_mode: string): ReturnType<typeof converse> {
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

/** Makes the test of an app of this mode. */
export function appAnswersOnce(mode: DifyApp['mode'], response_mode: 'blocking' | 'streaming'): void {
  test(`an app of the mode ${mode} answers once, ${response_mode}, by webhook and by connect`, async (t) => {
    const app = await startApp(t, { mode });
    const rows = await talkWith(app, response_mode);
    for (const { reply, way } of rows)
      assert.equal(reply, `I received: somebody: What is the weather like? (by ${way})`);
    assert.deepEqual(new Set(app.runs.map(({ user }) => user)), new Set(['m:lena']));
  });
}
