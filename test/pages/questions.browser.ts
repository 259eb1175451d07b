/**
 * Six questions of an operator. Each is answered with at most three clicks from the page Now or from the search. A key
 * that chooses something (Enter, Ctrl-K) counts as a click; typing does not.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Delivery, Page as ListOf } from '@convoke/sdk';
import type { Page } from 'playwright-core';
import { seriousIn } from '../support/axe.ts';
import { useVisitor } from '../support/browser.ts';
import { pushOf, type Receiver } from '../support/receiver.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const CLICKS_MAX = 3;

interface Asked {
  page: Page;
  service: Service;
  /** How many clicks there were so far. */
  clicks: () => Promise<number>;
}

interface Question {
  t: TestContext;
  ready: (service: Service) => Promise<void>;
  /** Whether the search is open when the count begins. */
  from_search?: boolean;
}

/** Answers a question, beginning on the page Now of a service. */
async function answer(
  { t, ready, from_search = false }: Question,
  use: (asked: Asked) => Promise<void>,
): Promise<void> {
  const service = await startService(t);
  await ready(service);
  await visitor.visit(service.url, { path: '/now' }, async (page) => {
    await page.getByRole('heading', { name: 'Now', exact: true }).waitFor();
    if (from_search) await page.keyboard.press('Control+k');
    await page.evaluate(`
      globalThis.clicks = 0;
      addEventListener('pointerdown', () => void globalThis.clicks++, true);
      addEventListener('keydown', ({ key, ctrlKey }) => {
        if (key === 'Enter' || (ctrlKey && key === 'k')) globalThis.clicks++;
      }, true);
    `);
    const clicks = (): Promise<number> => page.evaluate<number>('globalThis.clicks');
    await use({ page, service, clicks });
  });
}

async function inThreeClicks({ clicks }: Asked): Promise<void> {
  const count = await clicks();
  assert.ok(count <= CLICKS_MAX, `${count} clicks`);
}

const search = (page: Page) => page.getByRole('combobox', { name: /part of a message/ });
const found = (page: Page, name: RegExp) => page.getByRole('option', { name });

/** A time as the field of a form takes it. */
const localMinute = (page: Page, at_ms: number): Promise<string> =>
  page.evaluate((ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16), at_ms);

const listed = async (service: Service, query: string): Promise<Delivery[]> =>
  (await service.get<ListOf<Delivery>>(`/api/v1/deliveries/?${query}`)).body.data;

const withStandup =
  (t: TestContext) =>
  async (service: Service): Promise<void> => {
    await service.member(t, 'standup', { agent_ids: ['anna'], registration: { instance_name: 'Laptop' } });
  };

describe('a question of an operator', { concurrency: 2 }, () => {
  test('which fail, and why: without a click the cause, since when and what to do; in two the words of the machine', async (t) => {
    const ready = async (service: Service): Promise<void> => {
      const behaviour = { status: 500, body: 'out of GPU memory' };
      for (const instance_name of ['GPU box', 'GPU rack'])
        await service.member(t, 'm', { registration: { instance_name }, behaviour });
      await service.member(t, 'm', { registration: { instance_name: 'Laptop' } });
      await service.send('m', { n: 1 });
    };
    await answer({ t, ready }, async (asked) => {
      const { page, clicks } = asked;
      const panel = page.getByRole('region', { name: 'Instances', exact: true });
      const cause = panel.getByRole('region', { name: '2 machines: answered 500' });
      await cause.getByText('2 waiting', { exact: true }).waitFor();
      assert.deepEqual((await cause.getByRole('link').allInnerTexts()).toSorted(), ['GPU box', 'GPU rack']);
      await cause.locator('.failure-advice').waitFor();
      await cause
        .getByText(/since \d\d:\d\d:\d\d/)
        .first()
        .waitFor();
      assert.equal(await panel.getByText('Laptop').count(), 0);
      assert.equal(await clicks(), 0);
      await cause.getByRole('link', { name: 'GPU box' }).click();
      const latest = page.getByRole('region', { name: /^Instance / });
      await latest.getByRole('link', { name: /m #1/ }).click();
      await page.getByText('out of GPU memory').first().waitFor();
      await inThreeClicks(asked);
    });
  });

  test('what happened to this message: by a part of its text, and the reason stands there', async (t) => {
    await answer({ t, ready: withStandup(t) }, async (asked) => {
      const { page, service } = asked;
      await service.send('standup', { content: 'The quarterly report is late' }, ['nobody']);
      await page.getByRole('button', { name: 'Search', exact: false }).first().click();
      await search(page).fill('QUARTERLY report');
      await found(page, /Message.*quarterly report is late.*no one received it/).click();
      await page.getByRole('button', { name: 'Why? No one received message 1' }).click();
      assert.match(page.url(), /\/meetings\/standup#1$/);
      const trace = page.getByRole('group', { name: 'Trace of message 1' });
      await trace.getByText('Laptop').waitFor();
      await trace.getByText('the message is for none of its agents').waitFor();
      await inThreeClicks(asked);
    });
  });

  test('what happened to this message: by its webhook-id', async (t) => {
    await answer({ t, ready: withStandup(t) }, async (asked) => {
      const { page, service } = asked;
      const { delivery_id } = await service.settled(await service.send('standup', { content: 'Good morning' }));
      await page.keyboard.press('Control+k');
      await search(page).fill(delivery_id);
      await found(page, /Message Good morning standup #1/).waitFor();
      await found(page, /Delivery/).click();
      await page.getByText('answered 200').first().waitFor();
      await inThreeClicks(asked);
    });
  });

  test('what happened to this message: by its number in a meeting', async (t) => {
    await answer({ t, ready: withStandup(t) }, async (asked) => {
      const { page, service } = asked;
      await service.settled(await service.send('standup', { content: 'Good morning' }));
      await page.keyboard.press('Control+k');
      await search(page).fill('standup#1');
      await found(page, /Message Good morning/).waitFor();
      await page.keyboard.press('Enter');
      await page.getByRole('article', { name: 'Message 1' }).getByText('Good morning').waitFor();
      assert.match(page.url(), /\/meetings\/standup#1$/);
      await inThreeClicks(asked);
    });
  });

  test('resend what an instance missed since a time: it is counted first, and then sent', async (t) => {
    const ready = async (service: Service): Promise<void> => {
      const registration = { instance_name: 'GPU box' };
      const { receiver } = await service.member(t, 'm', { registration, behaviour: { status: 202 } });
      for (let n = 1; n <= 3; n++) await service.send('m', { n });
      await until(
        'all to fail',
        () => listed(service, 'state=failed'),
        (rows) => rows.length === 3,
      );
      receiver.behaviour = {};
    };
    await answer({ t, ready }, async (asked) => {
      const { page, service } = asked;
      await page.getByRole('link', { name: 'GPU box' }).click();
      await page.getByRole('button', { name: 'Resend failed…' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByText('3 deliveries failed in that time.').waitFor();
      await dialog.getByLabel('Failed since').fill(await localMinute(page, Date.now() + 3_600_000));
      await dialog.getByText('Nothing failed in that time.').waitFor();
      const nothing = dialog.getByRole('button', { name: 'Resend', exact: true });
      assert.equal(await nothing.getAttribute('aria-disabled'), 'true');
      await dialog.getByLabel('Failed since').fill(await localMinute(page, Date.now() - 3_600_000));
      await dialog.getByRole('button', { name: 'Resend 3 deliveries' }).click();
      await page.getByText('3 deliveries will be sent again.').waitFor();
      await inThreeClicks(asked);
      await until(
        'all to be delivered',
        () => listed(service, 'state=delivered'),
        (rows) => rows.length === 3,
      );
    });
  });

  test('why has this agent heard nothing: its page names each meeting and the reason', async (t) => {
    const ready = async (service: Service): Promise<void> => {
      const registration = { instance_name: 'GPU box' };
      const { instance_id } = await service.member(t, 'retro', { agent_ids: ['ben'], registration });
      await service.patch(instance_id, { is_active: false });
      await service.send('retro', { content: 'Hello' });
    };
    await answer({ t, ready }, async (asked) => {
      const { page, service } = asked;
      await page.keyboard.press('Control+k');
      await search(page).fill('ben');
      await found(page, /Agent ben/).click();
      const host = page.getByRole('region', { name: 'Hosted by GPU box' });
      await host.locator('h2 .faint').getByText('paused', { exact: true }).waitFor();
      await host.locator('h2 .mark-off').waitFor();
      await host.getByRole('link', { name: /retro hears nothing: it is paused/ }).waitFor();
      await page.getByText('No deliveries yet').waitFor();
      await inThreeClicks(asked);
      assert.deepEqual(await seriousIn(page), []);
      await page.goto(`${service.url}/agents/nobody`);
      await page.getByText('No instance lists this agent').waitFor();
    });
  });

  test('what wakes this agent: its page names the messages that it hears in each meeting', async (t) => {
    const ready = async (service: Service): Promise<void> => {
      const { instance_id } = await service.member(t, 'open', { agent_ids: ['ben'] });
      for (const wake of ['targeted', 'people']) {
        await service.join(wake, instance_id, ['ben']);
        const limited = await service.request('PATCH', `/api/v1/meetings/${wake}/instances/${instance_id}/`, {
          body: { wake },
        });
        assert.equal(limited.status, 200, limited.text);
      }
    };
    await answer({ t, ready }, async ({ page, service }) => {
      await page.goto(`${service.url}/agents/ben`);
      for (const words of [
        'open hears new messages at once',
        'targeted hears only messages that name it, at once',
        'people hears only messages of people, at once',
      ])
        await page.getByRole('link', { name: words, exact: true }).waitFor();
    });
  });

  test('an agent that only a membership names is found, and its page shows what it was sent', async (t) => {
    const ready = async (service: Service): Promise<void> => {
      const { instance_id } = await service.register({ agent_ids: ['ben'], webhook_url: 'http://127.0.0.1:1/' });
      await service.join('retro', instance_id, ['guest']);
      await service.send('retro', { content: 'Hello' }, ['guest']);
    };
    await answer({ t, ready }, async ({ page }) => {
      await page.keyboard.press('Control+k');
      await search(page).fill('guest');
      await found(page, /Agent guest/).click();
      await page.getByText('No instance lists this agent').waitFor();
      assert.doesNotMatch(await page.getByRole('main').innerText(), /gets no messages/);
      await page.getByRole('main').getByRole('listitem').filter({ hasText: 'retro' }).waitFor();
    });
  });

  test('pause a machine: the page says what is held and what is not queued', async (t) => {
    const ready = async (service: Service): Promise<void> => {
      await service.member(t, 'm', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
    };
    await answer({ t, ready }, async (asked) => {
      const { page, service } = asked;
      await page.getByRole('link', { name: 'Instances', exact: true }).first().click();
      await page
        .getByRole('row', { name: /GPU box/ })
        .getByRole('link')
        .click();
      const detail = page.getByRole('region', { name: 'Instance box' });
      await detail.getByRole('button', { name: 'Pause' }).click();
      await detail.getByText(/^Paused\. Nothing is pending\. New messages are not queued for it\./).waitFor();
      await inThreeClicks(asked);
      assert.equal((await service.instance('box')).webhook_enabled, false);
    });
  });

  test('say it to one agent, and see the answer beneath it: from the search', async (t) => {
    const { promise: answering, resolve } = Promise.withResolvers<Receiver>();
    const ready = async (service: Service): Promise<void> => {
      const behaviour = { status: 200, body: JSON.stringify({ reply: 'I am here' }) };
      const options = { agent_ids: ['anna'], registration: { replies: true }, behaviour };
      resolve((await service.member(t, 'room', options)).receiver);
      await service.member(t, 'room', { agent_ids: ['ben'] });
    };
    await answer({ t, ready, from_search: true }, async (asked) => {
      const { page } = asked;
      await search(page).fill('anna');
      await found(page, /Agent anna/).click();
      await page.getByRole('link', { name: 'Write to it in room' }).click();
      await page.getByRole('button', { name: 'Send to 1 agent' }).waitFor();
      // The field has the focus.
      await page.keyboard.type('Are you there?');
      await page.keyboard.press('Enter');
      await page.getByText('I am here', { exact: true }).waitFor();
      await inThreeClicks(asked);
      assert.match(page.url(), /\/meetings\/room$/);
      const { target_agents, message } = pushOf(await (await answering).next());
      assert.deepEqual([target_agents, message['content']], [['anna'], 'Are you there?']);
    });
  });

  test('control: a click, Enter and Ctrl-K are counted, typing is not', async (t) => {
    await answer({ t, ready: withStandup(t) }, async (asked) => {
      const { page, clicks } = asked;
      await page.keyboard.press('Control+k');
      await page.keyboard.type('Laptop');
      await found(page, /Instance Laptop/).waitFor();
      assert.equal(await clicks(), 1);
      await page.keyboard.press('Enter');
      await page.getByRole('link', { name: 'Meetings' }).click();
      await page.getByRole('link', { name: 'Instances', exact: true }).first().click();
      assert.equal(await clicks(), 4);
      await assert.rejects(inThreeClicks(asked), /4 clicks/);
    });
  });
});
