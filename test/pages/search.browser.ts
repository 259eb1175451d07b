/** The search of the pages, and the filters of the deliveries. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { AUDIT_ACTIONS } from '../../src/domain/audit.ts';
import { seriousIn } from '../support/axe.ts';
import { useVisitor } from '../support/browser.ts';
import { type Service, startService } from '../support/service.ts';

const visitor = useVisitor();

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

  test('the audit log is filtered by every action that it can have', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/audit?action=service.backup' }, async (page) => {
      const filter = page.getByRole('combobox', { name: 'Action' });
      assert.equal(await filter.inputValue(), 'service.backup');
      const actions = await filter.getByRole('option').allInnerTexts();
      assert.deepEqual(actions.slice(1).toSorted(), [...AUDIT_ACTIONS].toSorted());
    });
  });

  test('a filter behind "More filters" stays in sight while somebody empties it and writes it again', async (t) => {
    await visit(t, async (page, service) => {
      await page.goto(`${service.url}/deliveries?since=2026-01-01T10:30:00.000Z`);
      const since = page.getByLabel('Sent at or after');
      await since.focus();
      // An incomplete time is no filter.
      for (const key of ['ArrowRight', 'Backspace', '0', '5']) await since.press(key);
      assert.match(await since.inputValue(), /^2026-01-05T/);
      await page.waitForURL(/since=2026-01-05T/);
      await page.goto(`${service.url}/deliveries?agent_id=a`);
      const agent = page.getByRole('searchbox', { name: 'Agent id' });
      for (const key of ['End', 'Backspace']) await agent.press(key);
      await page.waitForURL(/deliveries$/);
      await page.keyboard.type('anna');
      assert.equal(await agent.inputValue(), 'anna');
      await page.waitForURL(/agent_id=anna/);
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

  test('a search that has not read all ids says so, and leads to the page that searches on', async (t) => {
    await visit(t, async (page) => {
      const ended = { json: { data: [], next_cursor: 'more', searched_to: 'k' } };
      await page.route('**/api/v1/meetings/?*', (route) => route.fulfill(ended));
      await page.keyboard.press('Control+k');
      await search(page).fill('standup');
      const said = page.getByRole('dialog').locator('.hint[role=status]');
      await said.getByText('Not all meetings were searched.').waitFor();
      assert.equal(await said.getByText('Not all instances').count(), 0);
      await said.getByRole('link', { name: 'Search further' }).click();
      await page.waitForURL(/\/meetings\?q=standup$/);
      await page.getByText('Searched up to the id k.').waitFor();
    });
  });

  test('what is typed right after the key that opens the search is in its field', async (t) => {
    await visit(t, async (page) => {
      // The next key may come at once, so the field must have the focus when this event ends.
      const focused = await page.evaluate(`(async () => {
        document.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true }));
        for (let job = 0; job < 10; job++) await null;
        return document.activeElement?.getAttribute('role');
      })()`);
      assert.equal(focused, 'combobox');
    });
  });

  test('a search of messages that is refused says why, and hides nothing else that was found', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'standup', { agent_ids: ['anna'] });
    await visitor.visit(service.url, { path: '/now', allowed: /422|503|ERR_FAILED/ }, async (page) => {
      await page.getByRole('heading', { name: 'Now', exact: true }).waitFor();
      const said = page.getByRole('dialog').locator('.hint[role=status]');
      await page.keyboard.press('Control+k');
      await search(page).fill('x'.repeat(201));
      await said.getByText(/1 to 200 characters/).waitFor();
      assert.equal(await said.getByText('does not respond').count(), 0);
      await page.route('**/api/v1/messages/**', (route) => route.fulfill({ status: 503, body: 'full' }));
      await search(page).fill(instance_id);
      await found(page, new RegExp(`Instance A machine ${instance_id}`)).waitFor();
      await page.route('**/api/v1/messages/**', (route) => route.abort());
      await search(page).fill('away');
      await said.getByText('The service does not respond.').waitFor();
    });
  });

  test('a key that the list has not loaded yet is shown, and a key that does not exist is said to be missing', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    for (let n = 0; n < 100; n++) await service.createKey({ scopes: ['read'], name: `key ${n}` });
    const { key_id } = await service.createKey({ scopes: ['read'], name: 'the newest' });
    await visitor.visit(service.url, { path: `/keys/${key_id}`, allowed: /404/ }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.keyboard.press('Enter');
      const detail = page.getByRole('region', { name: `Key ${key_id}` });
      await detail.getByRole('heading', { name: 'the newest' }).waitFor();
      await detail.getByRole('button', { name: 'Revoke…' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
      await detail.getByText('revoked', { exact: true }).waitFor();
      await page.goto(`${service.url}/keys/aaaaaaaaaaaa`);
      await page.getByRole('region', { name: 'Key aaaaaaaaaaaa' }).getByRole('alert').waitFor();
    });
  });

  test('a time of another year is shown with its year', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    const { key_id } = await service.createKey({ scopes: ['read'], expires_at: '2099-06-15T12:00:00Z' });
    await visitor.visit(service.url, { path: `/keys/${key_id}` }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.keyboard.press('Enter');
      await page
        .getByRole('region', { name: `Key ${key_id}` })
        .getByText(/^15 Jun 2099 \d\d:/)
        .waitFor();
    });
  });

  test('an action of the search opens its form, once, and a key is found by its id', async (t) => {
    const service = await startService(t);
    const { token, key_id } = await service.endOpenMode();
    await visitor.visit(service.url, { path: '/now', allowed: /401|403|404/ }, async (page) => {
      const signIn = async (with_token: string): Promise<void> => {
        await page.getByLabel('Key', { exact: true }).fill(with_token);
        await page.keyboard.press('Enter');
        await page.getByText('Live', { exact: true }).waitFor();
      };
      await signIn(token);
      for (const [name, dialog] of [
        ['Register an instance', 'Register an instance'],
        ['Begin a meeting', 'A new meeting'],
        ['Make a key', 'Make a key'],
      ] as const) {
        await page.keyboard.press('Control+k');
        await search(page).fill(name);
        await found(page, new RegExp(name)).waitFor();
        await page.keyboard.press('Enter');
        await page.getByRole('dialog', { name: dialog }).waitFor();
        assert.doesNotMatch(page.url(), /new/);
        await page.keyboard.press('Escape');
        await page.getByRole('dialog').waitFor({ state: 'detached' });
      }
      await page.keyboard.press('Control+k');
      await search(page).fill(key_id);
      await found(page, /Key the first/).click();
      await page.getByRole('region', { name: `Key ${key_id}` }).waitFor();
      // With a key that may only read, the page shows no form.
      const reader = await service.createKey({ scopes: ['read'] });
      await page.getByRole('button', { name: 'Sign out' }).click();
      await signIn(reader.token);
      await page.keyboard.press('Control+k');
      await search(page).fill('e');
      await found(page, /Failed deliveries/).waitFor();
      assert.equal(await found(page, /^Do /).count(), 0);
    });
  });
});
