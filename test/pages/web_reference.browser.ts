/** The page of the API at /docs/, in a real browser: all of the document, with links, and copying. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import axe from 'axe-core';
import { useVisitor } from '../support/browser.ts';
import { startService, useService } from '../support/service.ts';

interface Document {
  paths: Record<string, Record<string, { operationId: string; summary: string }>>;
}

describe('the page of the API', () => {
  const visitor = useVisitor();
  const service = useService();

  test('shows every operation of the document, and what the service sends', async () => {
    const { paths } = JSON.parse(await readFile(new URL('../../openapi.json', import.meta.url), 'utf8')) as Document;
    const operations = Object.values(paths).flatMap((path) => Object.values(path));
    await visitor.visit(service.url, { path: '/docs/' }, async (page) => {
      await page.locator('article').first().waitFor();
      const shown = await page.evaluate<string[]>("[...document.querySelectorAll('article')].map(({ id }) => id)");
      const wanted = [...operations.map(({ operationId }) => operationId), 'newMessage'];
      assert.deepEqual(shown.toSorted(), wanted.toSorted());
    });
  });

  test('a link to an operation leads to it', async () => {
    await visitor.visit(service.url, { path: '/docs/#sendMessage' }, async (page) => {
      const operation = page.locator('#sendMessage');
      await operation.waitFor();
      await page.waitForFunction(
        "document.querySelector('#sendMessage').getBoundingClientRect().top < innerHeight / 2",
      );
      assert.match(String(await operation.textContent()), /\/api\/v1\/meetings\/\{meeting_id\}\/messages\//);
    });
  });

  test('its commands work as they are copied', async (t) => {
    const run = (command: string): Promise<{ stdout: string }> =>
      promisify(execFile)('sh', ['-c', command.replace(/^curl/, 'curl -sS --fail')]);
    if ((await run('curl --version').catch(() => null)) === null) return t.skip('there is no curl here');
    await visitor.visit(service.url, { path: '/docs/' }, async (page) => {
      const command = async (operation: string): Promise<string> =>
        String(await page.locator(`#${operation} .snippet pre`).textContent());
      await run(await command('register'));
      await run(await command('joinMeeting'));
      await run(await command('sendMessage'));
      assert.match((await run(await command('listInstances'))).stdout, /"instance_id":"laptop-anna"/);
    });
  });

  test('its commands send a key when the service requires one, and say from where', async (t) => {
    const guarded = await startService(t);
    const { token } = await guarded.endOpenMode();
    const run = (command: string): Promise<{ stdout: string }> =>
      promisify(execFile)('sh', ['-c', command.replace(/^curl/, 'curl -sS --fail')], {
        env: { ...process.env, CONVOKE_API_KEY: token },
      });
    if ((await run('curl --version').catch(() => null)) === null) return t.skip('there is no curl here');
    await visitor.visit(guarded.url, { path: '/docs/' }, async (page) => {
      const command = async (operation: string): Promise<string> =>
        String(await page.locator(`#${operation} .snippet pre`).textContent());
      await page.getByText('This service needs a key').waitFor();
      await run(await command('register'));
      assert.match((await run(await command('listInstances'))).stdout, /"instance_id":"laptop-anna"/);
      assert.doesNotMatch(await command('healthz'), /authorization/, 'it needs no key');
    });
    await visitor.visit(service.url, { path: '/docs/' }, async (page) => {
      await page.locator('article').first().waitFor();
      assert.equal(await page.getByText('This service needs a key').count(), 0);
    });
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`axe finds nothing serious, and nothing is wider than the screen, ${colorScheme}`, async () => {
      for (const width of [360, 1440]) {
        const viewport = { width, height: 800 };
        await visitor.visit(service.url, { path: '/docs/', colorScheme, viewport }, async (page) => {
          await page.locator('article').first().waitFor();
          const wide = Number(await page.evaluate('document.documentElement.scrollWidth'));
          assert.ok(wide <= width, `${wide} px at ${width} px`);
          await page.evaluate(axe.source);
          const grave = await page.evaluate<string[]>(
            "axe.run({ resultTypes: ['violations'] }).then(({ violations }) => violations.filter(({ impact }) => /serious|critical/.test(impact)).map(({ id, nodes }) => `${id}: ${nodes[0].html}`))",
          );
          assert.deepEqual(grave, []);
        });
      }
    });
  }
});
