/** What the pages show under traffic and in trouble, in a real browser: it is there, it is true, and it is new. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { useVisitor } from '../support/browser.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { type Service, startService } from '../support/service.ts';
import { startTraffic } from '../support/traffic.ts';

const visitor = useVisitor();

const MESSAGES_PER_S = 50;
const API_MS = 900;

/** A service behind a proxy, at the address of the proxy. */
async function startBehindProxy(t: TestContext): Promise<{ service: Service; proxy: CuttingProxy; url: string }> {
  const service = await startService(t);
  const proxy = await CuttingProxy.start(Number(new URL(service.url).port));
  t.after(() => proxy.close());
  return { service, proxy, url: `http://127.0.0.1:${proxy.port}` };
}

describe('the pages under traffic', () => {
  test('an API that needs longer than the pause between two events still fills a page, and the page stays up to date', async (t) => {
    const { service, proxy, url } = await startBehindProxy(t);
    await service.member(t, 'busy', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
    const failing = { instance_id: 'other', instance_name: 'Old laptop' };
    const { receiver } = await service.member(t, 'busy', { registration: failing, behaviour: { status: 204 } });
    const traffic = startTraffic(t, service, 'busy', MESSAGES_PER_S);
    await visitor.visit(url, { path: '/now' }, async (page) => {
      // Each byte waits on its way there and on its way back.
      proxy.delayOf = () => API_MS / 2;
      const failures = page.getByRole('region', { name: 'Instances' });
      await failures.getByText('Old laptop').waitFor();
      receiver.behaviour = { status: 500 };
      await service.patch('other', { instance_name: 'New laptop' });
      await failures.getByText('New laptop').waitFor();

      await page.goto(`${url}/instances/box`);
      const detail = page.getByRole('region', { name: 'Instance box' });
      await detail.getByRole('heading', { name: 'GPU box' }).waitFor();
      await detail.getByText('up', { exact: true }).waitFor();
      const before = traffic.accepted;
      for (const instance_name of ['Second name', 'Third name']) {
        await service.patch('box', { instance_name });
        await detail.getByRole('heading', { name: instance_name }).waitFor();
      }
      assert.ok(traffic.accepted > before, 'messages arrived meanwhile');
    });
  });
});
