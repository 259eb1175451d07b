/** The TypeScript SDK on a page in a real browser: on the origin of the service, and on another origin. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { useVisitor } from '../support/browser.ts';
import { PAGE_PATH, putPagesAt, servePages, type Used, useAllIn } from '../support/pages_elsewhere.ts';
import { type Service, startService } from '../support/service.ts';

const visitor = useVisitor();

const WORKS: Used = {
  pulled: ['Anybody there?'],
  refused: 'instance_does_not_exist',
  answer: 'You said: Good night',
};
/** Lines that Chromium logs for each unsuccessful response, and for each response that it does not give to the page. */
const REFUSALS = /Failed to load resource/;
const KEPT_OUT = /blocked by CORS policy|net::ERR_FAILED/;

/** Starts a service with keys, and serves a page on another origin. */
async function elsewhere(t: TestContext, is_listed: boolean): Promise<{ service: Service; origin: string }> {
  const { origin, close } = await servePages();
  t.after(close);
  const service = await startService(t, is_listed ? { cors_origins: `https://app.example.com,${origin}` } : {});
  await service.endOpenMode();
  return { service, origin };
}

describe('the SDK in a page', () => {
  for (const has_keys of [false, true]) {
    const keys = has_keys ? 'keys' : 'no keys';
    test(`of the same origin calls, pulls, follows the feed and serves an agent, with ${keys}`, async (t) => {
      const service = await startService(t);
      const api_key = has_keys ? (await service.endOpenMode()).token : undefined;
      await visitor.visit(service.url, { path: '/healthz', allowed: REFUSALS }, async (page) => {
        await putPagesAt(page, service.url);
        await page.goto(service.url + PAGE_PATH);
        assert.deepEqual(await useAllIn(page, { base_url: service.url, api_key, name: 'tab' }), WORKS);
      });
    });
  }

  test('of another origin that is listed does the same, with a key', async (t) => {
    const { service, origin } = await elsewhere(t, true);
    const { token } = await service.createKey({ scopes: ['send', 'read', 'instance'], name: 'a page' });
    await visitor.visit(origin, { path: PAGE_PATH, allowed: REFUSALS, also: service.url }, async (page) => {
      assert.deepEqual(await useAllIn(page, { base_url: service.url, api_key: token, name: 'tab' }), WORKS);
      const nothing = await page.evaluate<Record<string, unknown>>(
        `useAll({ base_url: ${JSON.stringify(service.url)}, name: 'other' }).catch(({ code, status }) => ({ code, status }))`,
      );
      assert.deepEqual(nothing, { code: 'api_key_missing', status: 401 });
    });
  });

  test('of an origin that is not listed is kept out by the browser, and nothing is carried out', async (t) => {
    const { service, origin } = await elsewhere(t, false);
    const allowed = new RegExp(`${REFUSALS.source}|${KEPT_OUT.source}`);
    await visitor.visit(origin, { path: PAGE_PATH, allowed, also: service.url }, async (page) => {
      await page.waitForFunction('globalThis.useAll !== undefined');
      const given = JSON.stringify({ base_url: service.url, api_key: service.token, name: 'tab' });
      assert.equal(await page.evaluate(`useAll(${given}).catch(({ code }) => code)`), 'unreachable');
      const instances = await service.get<{ data: unknown[] }>('/api/v1/instances/');
      assert.deepEqual(instances.body.data, []);
    });
  });

  test('of a listed origin gets nothing with the cookie of a signed-in person', async (t) => {
    const { service, origin } = await elsewhere(t, true);
    const allowed = new RegExp(`${REFUSALS.source}|${KEPT_OUT.source}`);
    await visitor.visit(service.url, { path: '/healthz', allowed, also: origin }, async (page) => {
      const ask = (path: string, init: object): Promise<string> =>
        page.evaluate<string>(
          `fetch(${JSON.stringify(service.url + path)}, ${JSON.stringify(init)}).then(
            async (response) => response.status + ' ' + await response.text(),
            (error) => 'kept out')`,
        );
      const headers = { authorization: `Bearer ${service.token}` };
      const signed_in = await ask('/api/v1/session/', { method: 'POST', headers });
      assert.match(signed_in, /^201 /);
      const { csrf_token } = JSON.parse(signed_in.slice(4)) as { csrf_token: string };
      const with_token = { credentials: 'include', headers: { 'convoke-csrf': csrf_token } };
      assert.match(await ask('/api/v1/instances/', with_token), /^200 /, 'the page of the service itself is served');
      // The same browser still has the cookie, because another port of this host is the same site.
      await page.goto(origin + PAGE_PATH);
      assert.equal(await ask('/api/v1/instances/', { credentials: 'include' }), 'kept out');
      assert.equal(await ask('/api/v1/instances/', with_token), 'kept out');
      assert.equal(await ask('/api/v1/session/', { method: 'POST', credentials: 'include', headers }), 'kept out');
      // Without credentials the browser leaves the cookie out, and the page sees that it needs a key.
      assert.match(await ask('/api/v1/instances/', {}), /^401 .*api_key_missing/);
    });
  });
});
