/** The composer in a real browser: a message goes to the agents that a person chose, and to nobody else. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Message, Page as ListOf } from '@convoke/sdk';
import type { Locator, Page } from 'playwright-core';
import { useVisitor } from '../support/browser.ts';
import { messagesPath, type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const form = (page: Page) => page.getByRole('form', { name: 'Send a message' });
const text = (page: Page) => page.getByRole('textbox', { name: 'Message' });
const recipient = (page: Page, name: string) =>
  page.getByRole('group', { name: 'To' }).getByRole('button', { name, exact: true });
const absent = (page: Page, name: string) =>
  form(page).getByRole('alert').getByText(`${name} is not in this meeting, so nothing is sent.`);

const sent = async (service: Service, meeting_id: string): Promise<Message[]> =>
  (await service.get<ListOf<Message>>(messagesPath(meeting_id))).body.data;

const isEmpty = (page: Page): Promise<string> =>
  until(
    'the box to be empty',
    () => text(page).inputValue(),
    (found) => found === '',
  );

/** Presses Enter in the text, and waits for a request that this would send. */
async function pressEnter(page: Page): Promise<void> {
  await text(page).press('Enter');
  await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
}

describe('a message for chosen agents', { concurrency: 2 }, () => {
  for (const [what, ids] of [
    ['many agents', Array.from({ length: 101 }, (_, n) => `agent-${n}`)],
    ['agents with long ids', Array.from({ length: 50 }, (_, n) => `${'é'.repeat(45)}-${n}`)],
  ] as const) {
    test(`says who will hear it for the first agents, where the service is not asked about all: ${what}`, async (t) => {
      const service = await startService(t);
      await service.member(t, 'room', { agent_ids: [...ids], registration: { instance_name: 'Box' } });
      const draft = { text: 'Hello', form: 'text', targets: ids, begun: null };
      const drafts = JSON.stringify([[JSON.stringify([null, 'room']), draft]]);
      await visitor.visit(service.url, { path: '/favicon.svg' }, async (page) => {
        await page.evaluate(`sessionStorage.setItem('convoke.drafts', ${JSON.stringify(drafts)})`);
        await page.goto(`${service.url}/meetings/room`);
        await form(page).getByText('Box will hear it').waitFor();
        await form(page)
          .getByText(new RegExp(`This is about the first \\d+ of the ${ids.length} chosen agents`))
          .waitFor();
      });
    });
  }

  test('is not sent while one of them is not in the meeting, also after a reload, until the person takes that agent out', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'room', { agent_ids: ['anna'] });
    await service.member(t, 'room', { agent_ids: ['ben'] });
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      const asked: string[] = [];
      page.on('request', (request) => request.method() === 'POST' && asked.push(request.url()));
      await recipient(page, 'anna').click();
      await text(page).fill('for anna only');
      await service.leave('room', instance_id);
      await absent(page, 'anna').waitFor();
      await pressEnter(page);
      await page.reload();
      await absent(page, 'anna').waitFor();
      await pressEnter(page);
      await page.getByRole('button', { name: 'Send to 1 agent' }).click({ force: true });
      assert.deepEqual(asked, []);

      // It goes out when the agent is back.
      await service.join('room', instance_id, ['anna']);
      await form(page).getByRole('alert').waitFor({ state: 'detached' });
      await text(page).press('Enter');
      await isEmpty(page);
      await service.leave('room', instance_id);
      await text(page).fill('for everybody');
      await recipient(page, 'anna (not in this meeting)').click();
      await page.getByRole('button', { name: 'Send to everybody' }).click();
      await isEmpty(page);
    });
    const targets = (await sent(service, 'room')).map(({ target_agents }) => target_agents);
    assert.deepEqual(targets, [['anna'], null]);
  });

  test('is not sent to everybody when a link names an agent that is not in the meeting', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { agent_ids: ['ben'] });
    await visitor.visit(service.url, { path: '/meetings/room?to=ghost' }, async (page) => {
      await text(page).fill('for the ghost only');
      await absent(page, 'ghost').waitFor();
      await pressEnter(page);
      assert.deepEqual(await sent(service, 'room'), []);
    });
  });

  test('is the same message when its response is lost and the agent leaves before it is sent again', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'room', { agent_ids: ['anna'] });
    await service.member(t, 'room', { agent_ids: ['ben'] });
    await visitor.visit(service.url, { path: '/meetings/room', allowed: /ERR_FAILED/ }, async (page) => {
      await page.route('**/meetings/room/messages/', async (route) => {
        if (route.request().method() === 'POST') await route.fetch();
        await (route.request().method() === 'POST' ? route.abort() : route.continue());
      });
      await recipient(page, 'anna').click();
      await text(page).fill('for anna only');
      await text(page).press('Enter');
      await form(page).getByRole('alert').getByText('Send it again').waitFor();
      await service.leave('room', instance_id);
      await recipient(page, 'anna (not in this meeting)').waitFor();
      await page.unroute('**/meetings/room/messages/');
      await text(page).press('Enter');
      await isEmpty(page);
    });
    const targets = (await sent(service, 'room')).map(({ target_agents }) => target_agents);
    assert.deepEqual(targets, [['anna']]);
  });
});

describe('Enter for an input method', () => {
  /** Presses Enter as browsers report it while a word is confirmed; in Safari the composition has ended by then. */
  async function confirmWord(field: Locator): Promise<void> {
    for (const how of [{ isComposing: true }, { keyCode: 229 }])
      await field.dispatchEvent('keydown', { key: 'Enter', ...how });
    await field.evaluate((element) => new Promise((resolve) => element.ownerDocument.defaultView?.setTimeout(resolve)));
  }

  test('confirms a word: it sends no message, chooses no agent, and opens nothing that the search found', async (t) => {
    const service = await startService(t);
    const agent_ids = Array.from({ length: 20 }, (_, n) => `agent-${n}`);
    await service.member(t, 'room', { agent_ids });
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      const agent = page.getByRole('combobox', { name: 'Add an agent' });
      await agent.fill('agent-17');
      await confirmWord(agent);
      assert.equal(await recipient(page, 'agent-17').count(), 0);
      await agent.press('Enter');
      await recipient(page, 'agent-17').waitFor();

      await text(page).fill('日本');
      await confirmWord(text(page));
      assert.deepEqual(await sent(service, 'room'), []);
      await text(page).press('Enter');
      await isEmpty(page);

      await page.keyboard.press('Control+k');
      const search = page.getByRole('dialog', { name: 'Search' });
      await search.getByRole('combobox').fill('Failed');
      await search.getByRole('option', { name: 'Failed deliveries' }).waitFor();
      await confirmWord(search.getByRole('combobox'));
      assert.equal(new URL(page.url()).pathname, '/meetings/room');
      await search.getByRole('combobox').press('Enter');
      await page.waitForURL('**/deliveries?state=failed');
    });
  });
});
