/** The two questions of an operator, with clicks: what happened to this message, and why did this agent get nothing? */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { seriousIn } from '../support/axe.ts';
import { useVisitor } from '../support/browser.ts';
import { type Service, startService } from '../support/service.ts';

const visitor = useVisitor();

/** Counts each click, and each key that decides something, but no typing. */
async function inThreeClicks(page: Page, clicks: (() => Promise<unknown>)[]): Promise<void> {
  assert.match(page.url(), /\/now$/);
  assert.ok(clicks.length <= 3);
  for (const click of clicks) await click();
}

const search = (page: Page) => page.getByRole('combobox', { name: /part of a message/ });
const found = (page: Page, name: RegExp) => page.getByRole('option', { name });

async function visit(t: TestContext, use: (page: Page, service: Service) => Promise<void>): Promise<void> {
  const service = await startService(t);
  await service.member(t, 'standup', { agent_ids: ['anna'], registration: { instance_name: 'Laptop' } });
  await visitor.visit(service.url, { path: '/now' }, async (page) => {
    await page.getByRole('heading', { name: 'Now', exact: true }).waitFor();
    await use(page, service);
  });
}

describe('the search of the pages', { concurrency: 2 }, () => {
  test('what happened to this message: three clicks from Now, by a part of its text, and the reason stands there', async (t) => {
    await visit(t, async (page, service) => {
      await service.send('standup', { content: 'The quarterly report is late' }, ['nobody']);
      await inThreeClicks(page, [
        () => page.getByRole('button', { name: 'Search', exact: false }).first().click(),
        async () => {
          await search(page).fill('QUARTERLY report');
          await found(page, /Message.*quarterly report is late.*no one received it/).click();
        },
        () => page.getByRole('button', { name: 'Why? No one received message 1' }).click(),
      ]);
      assert.match(page.url(), /\/meetings\/standup#1$/);
      const trace = page.getByRole('group', { name: 'Trace of message 1' });
      await trace.getByText('Laptop').waitFor();
      await trace.getByText('the message is for none of its agents').waitFor();
    });
  });

  test('what happened to this message: by its webhook-id, and by its number in a meeting', async (t) => {
    await visit(t, async (page, service) => {
      const sent = await service.send('standup', { content: 'Good morning' });
      const { delivery_id } = await service.settled(sent);
      await page.keyboard.press('Control+k');
      await search(page).fill(delivery_id);
      await found(page, /Message Good morning standup #1/).waitFor();
      await found(page, /Delivery/).click();
      await page.getByText('answered 200').first().waitFor();
      await page.keyboard.press('Control+k');
      await search(page).fill('standup#1');
      await found(page, /Message Good morning/).waitFor();
      await page.keyboard.press('Enter');
      await page.getByRole('article', { name: 'Message 1' }).getByText('Good morning').waitFor();
      assert.match(page.url(), /\/meetings\/standup#1$/);
    });
  });

  test('why did this agent get nothing: three clicks from Now, with the meeting and the reason', async (t) => {
    await visit(t, async (page, service) => {
      const { instance_id } = await service.member(t, 'retro', {
        agent_ids: ['ben'],
        registration: { instance_name: 'GPU box' },
      });
      await service.patch(instance_id, { is_active: false });
      await service.send('retro', { content: 'Hello' });
      await inThreeClicks(page, [
        () => page.keyboard.press('Control+k'),
        async () => {
          await search(page).fill('ben');
          await found(page, /Agent ben/).click();
        },
      ]);
      const host = page.getByRole('region', { name: 'Hosted by GPU box' });
      await host.getByText('paused', { exact: true }).waitFor();
      await host.getByRole('link', { name: /retro hears nothing: it is paused/ }).waitFor();
      await page.getByText('No deliveries yet').waitFor();
      assert.deepEqual(await seriousIn(page), []);
      await page.goto(`${service.url}/agents/nobody`);
      await page.getByText('No instance hosts this agent').waitFor();
    });
  });

  test('the filters of deliveries are in the address, and a search says when it found nothing', async (t) => {
    await visit(t, async (page, service) => {
      await service.settled(await service.send('standup', { content: 'needle in a haystack' }));
      await service.settled(await service.send('standup', { content: 'hay' }));
      await page.goto(`${service.url}/deliveries`);
      await page.getByText('2 rows').waitFor();
      assert.equal(await page.getByRole('searchbox', { name: 'Text of the message' }).isVisible(), false);
      await page.getByText('More filters').click();
      await page.getByRole('searchbox', { name: 'Text of the message' }).fill('NEEDLE');
      await page.getByText('1 row', { exact: true }).waitFor();
      assert.match(page.url(), /text=NEEDLE/);
      await page.reload();
      await page.getByText('1 row', { exact: true }).waitFor();
      await page.getByRole('combobox', { name: 'Outcome of an attempt' }).selectOption('timeout');
      await page.getByText('No deliveries match').waitFor();
      await page.goto(`${service.url}/deliveries?status_code=200&since=2000-01-01T00:00:00Z&agent_id=anna`);
      await page.getByText('2 rows').waitFor();
      await page.goto(`${service.url}/deliveries?until=2000-01-01T00:00:00Z`);
      await page.getByText('No deliveries match').waitFor();
    });
  });

  test('the search is accessible, works from the keyboard, and Escape closes it without a question', async (t) => {
    await visit(t, async (page) => {
      await page.keyboard.press('Control+k');
      // The field has the focus.
      await page.keyboard.type('Laptop');
      await found(page, /Instance Laptop/).waitFor();
      assert.deepEqual(await seriousIn(page), []);
      await page.keyboard.press('Escape');
      await search(page).waitFor({ state: 'detached' });
      await page.keyboard.press('Control+k');
      await search(page).fill('Failed');
      await found(page, /Failed deliveries/).waitFor();
      await page.keyboard.press('ArrowUp');
      await page.keyboard.press('Enter');
      await page.waitForURL(/\/deliveries\?state=failed/);
    });
  });
});
