/** The pages in a real browser: what people do on them, and what must never happen on them. */
import assert from 'node:assert/strict';
import { readdir, stat } from 'node:fs/promises';
import { describe, test, type TestContext } from 'node:test';
import type { OpenSession, Page as ListOf, SentMessage, ServiceNode, Session } from '@convoke/sdk';
import type { Page } from 'playwright-core';
import { BACKOFF_MAX_MS } from '../../src/domain/delivery.ts';
import { seriousIn } from '../support/axe.ts';
import { follow, useVisitor } from '../support/browser.ts';
import { startDemo } from '../support/demo_page.ts';
import { pushOf, startReceiver } from '../support/receiver.ts';
import { messagesPath, type Service, startService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

/** Starts a service that tries nothing again while a test runs, however slow the machine is. */
async function start(t: TestContext, clock?: SetClock): Promise<{ service: Service; url: string }> {
  const service = await startService(t, { retry_schedule: '24h,24h,24h' }, clock);
  return { service, url: service.url };
}

const row = (page: Page, name: string | RegExp) => page.getByRole('row', { name });
const main = (page: Page) => page.getByRole('main');

// The tests mostly wait for pages, so several run at the same time. Each has its own service and browser context.
describe('the pages', { concurrency: 3 }, () => {
  test('a message written on the page arrives at a real machine, and the marks beside it say how', async (t) => {
    const { service, url } = await start(t);
    const anna = await service.member(t, 'standup', { agent_ids: ['anna'], registration: { instance_name: 'Laptop' } });
    const ben = await service.member(t, 'standup', { agent_ids: ['ben'], behaviour: { status: 500 } });
    await visitor.visit(url, { path: '/meetings' }, async (page) => {
      await row(page, /Open standup/)
        .getByRole('link')
        .click();
      const message = page.getByRole('textbox', { name: 'Message' });
      await message.fill('Good morning\neverybody');
      await page.getByRole('button', { name: 'Send to everybody' }).click();
      const { message: heard } = pushOf(await anna.receiver.next());
      assert.equal(heard['content'], 'Good morning\neverybody');

      const said = page.getByRole('article', { name: 'Message 1' });
      await said.getByText('Good morning everybody').waitFor();
      const mark = said.getByRole('button', { name: 'Laptop : delivered' });
      await mark.click();
      await said.getByText('answered 200').waitFor();
      const bad = said.getByRole('button', { name: /^A machine : pending/ });
      await bad.click();
      await said.getByText('answered 500').waitFor();
      const detail = said.getByRole('group', { name: 'Delivery to A machine' });
      await detail.getByText(/waiting for its next attempt/).waitFor();

      await page.getByRole('group', { name: 'To' }).getByRole('button', { name: 'anna', exact: true }).click();
      await message.fill('Only you');
      await message.press('Enter');
      assert.deepEqual(pushOf(await anna.receiver.next()).target_agents, ['anna']);
      const second = page.getByRole('article', { name: 'Message 2' });
      await second.getByText('to anna').waitFor();
      await second.getByRole('button', { name: 'Laptop : delivered' }).waitFor();
      assert.equal(await second.getByRole('button', { name: /A machine/ }).count(), 0);
      assert.equal(ben.receiver.requests.length, 1);
    });
  });

  test('the sender of a message is shown, and the message that it answers is a click away, and back', async (t) => {
    const { service, url } = await start(t);
    const path = messagesPath('threads');
    const say = async (content: string, fields: object): Promise<string> => {
      const answer = await service.post<SentMessage>(path, { message: { content }, ...fields });
      assert.equal(answer.status, 201, answer.text);
      return answer.body.message_id;
    };
    const asked = await say('What is left?', {});
    for (let i = 0; i < 40; i++) await say(`Line ${i}`, { from_agent: 'ben' });
    await say('Three things', { from_agent: 'anna', in_reply_to: asked });
    await visitor.visit(url, { path: '/meetings/threads' }, async (page) => {
      const answer = page.getByRole('article', { name: 'Message 42' });
      await answer.getByText('anna', { exact: true }).waitFor();
      await answer.getByText('agent', { exact: true }).waitFor();
      await answer.getByText('What is left?').waitFor();
      const question = page.getByRole('article', { name: 'Message 1', exact: true });
      const isSeen = (article: typeof question) =>
        article.evaluate((element) => {
          const { top, bottom } = element.getBoundingClientRect();
          const { activeElement, documentElement } = element.ownerDocument;
          return activeElement === element && top >= 0 && bottom <= documentElement.clientHeight;
        });
      await answer.getByRole('button', { name: '#1' }).click();
      assert.equal(await isSeen(question), true);
      await question.getByRole('button', { name: '#42 anna' }).click();
      assert.equal(await isSeen(answer), true);
      assert.equal(await isSeen(question), false);
    });
  });

  test('a message shows its trace: what led to it, what answers it, and which agents it woke', async (t) => {
    const { service, url } = await start(t);
    const { instance_id } = await service.member(t, 'traced', { agent_ids: ['ben'] });
    const say = async (content: string, fields: object): Promise<SentMessage> => {
      const traced = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' };
      const body = { message: { content }, ...fields };
      const answer = await service.post<SentMessage>(messagesPath('traced'), body, traced);
      assert.equal(answer.status, 201, answer.text);
      return answer.body;
    };
    const asked = await say('Why?', {});
    const answer = await say('So', { from_agent: 'anna', in_reply_to: asked.message_id });
    await say('I see', { from_agent: 'ben', in_reply_to: answer.message_id });
    await service.settled(answer);
    await visitor.visit(url, { path: '/meetings/traced' }, async (page) => {
      await page.getByRole('button', { name: 'Trace message 2' }).click();
      const trace = page.getByRole('group', { name: 'Trace of message 2' });
      await trace.getByText('{"content":"Why?"}').waitFor();
      await trace.getByText('{"content":"I see"}').waitFor();
      await trace.getByRole('link', { name: instance_id }).waitFor();
      await trace.getByText('delivered').waitFor();
      await trace.getByText('4bf92f3577b34da6a3ce929d0e0e4736').waitFor();
    });
  });

  test('the composer shows who will get the message: at once, later, or not at all', async (t) => {
    const clock = new SetClock();
    const { service, url } = await start(t, clock);
    const member = (agent: string, instance_name: string) =>
      service.member(t, 'ears', { agent_ids: [agent], registration: { instance_name } });
    const { instance_id: off } = await member('anna', 'Laptop');
    const { receiver } = await member('ben', 'GPU box');
    await visitor.visit(url, { path: '/meetings/ears' }, async (page) => {
      const composer = page.getByRole('form', { name: 'Send a message' });
      await composer.getByText(/^(Laptop, GPU box|GPU box, Laptop) will hear it$/).waitFor();
      await service.patch(off, { webhook_enabled: false });
      await composer.getByText('Laptop will not hear it: paused').waitFor();
      await composer.getByText('GPU box will hear it', { exact: true }).waitFor();
      receiver.behaviour = { status: 204 };
      // Five failures in a row make an instance down. After each further failure it is left alone for longer, at last
      // for minutes: so long the test may take.
      const sent = await service.send('ears', {});
      const { delivery_id } = await service.attempted(sent);
      for (let attempts = 2; attempts <= 10; attempts++) {
        clock.jump(2 * BACKOFF_MAX_MS);
        await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
        await service.attempted(sent, attempts);
      }
      // The page may have read while the clock jumped. It reads again after every change of an instance.
      await service.patch(off, { timeout_s: 9 });
      await composer.getByText('GPU box will hear it when up again').waitFor();
      await composer.getByRole('button', { name: 'anna' }).click();
      await composer.getByText('GPU box').waitFor({ state: 'detached' });
      await service.leave('ears', off);
      await composer.getByRole('button', { name: 'anna (not in this meeting)' }).click();
      await composer.getByText('GPU box').waitFor();
    });
  });

  test('the composer names no paused instance that hosts none of the chosen agents', async (t) => {
    const { service, url } = await start(t);
    const member = (agent: string, instance_name: string) =>
      service.member(t, 'ears', { agent_ids: [agent], registration: { instance_name } });
    const { instance_id: off } = await member('anna', 'Laptop');
    await member('ben', 'GPU box');
    await service.patch(off, { webhook_enabled: false });
    await visitor.visit(url, { path: '/meetings/ears' }, async (page) => {
      const composer = page.getByRole('form', { name: 'Send a message' });
      await composer.getByText('Laptop will not hear it: paused').waitFor();
      await composer.getByRole('button', { name: 'ben' }).click();
      // The text of the composer about the previous choice disappears first.
      await composer.getByText('Laptop').waitFor({ state: 'detached' });
      await composer.getByText('GPU box will hear it', { exact: true }).waitFor();
      assert.equal(await composer.getByText('Laptop').count(), 0);
    });
  });

  test('a machine that connects by itself is shown as waiting, then as connected: since when, from where, with what', async (t) => {
    const { service, url } = await start(t);
    const machine = { instance_id: 'laptop', instance_name: 'Laptop', agent_ids: ['anna'], transport: 'pull' };
    assert.equal((await service.post('/api/v1/instances/register/', machine)).status, 201);
    await service.join('far', 'laptop', ['anna']);
    await visitor.visit(url, { path: '/instances' }, async (page) => {
      await row(page, 'Laptop').getByText('not connected').waitFor();
      await page.goto(`${url}/meetings/far`);
      const composer = page.getByRole('form', { name: 'Send a message' });
      await composer.getByText('Laptop will hear it when connected').waitFor();
      await page.goto(`${url}/instances/laptop`);
      const detail = page.getByRole('region', { name: 'Instance laptop' });
      await detail.getByText('waiting for connection').waitFor();
      assert.equal(await detail.getByRole('button', { name: 'Test the webhook' }).count(), 0);
      // The machine pulls until the test has seen everything, however long that takes.
      const seen = new AbortController();
      const pull = async (): Promise<void> => {
        while (!seen.signal.aborted) {
          const headers = { 'user-agent': 'somebody/1.2' };
          const pulled = await service.post('/api/v1/instances/laptop/pull/', { wait_s: 1 }, headers);
          assert.equal(pulled.status, 200);
        }
      };
      const see = async (): Promise<void> => {
        await detail.getByText('connected', { exact: true }).waitFor();
        await detail.getByText('somebody/1.2').waitFor();
        await detail.getByText('127.0.0.1').waitFor();
        await page.goto(`${url}/meetings/far`);
        await composer.getByText('Laptop will hear it', { exact: true }).waitFor();
      };
      await Promise.all([pull(), see().finally(() => seen.abort())]);
    });
  });

  test('a meeting shows what the loop guard stopped there, and lets it through', async (t) => {
    const { service, url } = await start(t);
    const { receiver } = await service.member(t, 'echo', { agent_ids: ['anna'] });
    await service.send('echo', {});
    await service.request('PATCH', '/api/v1/meetings/echo/', { body: { hop_limit: 1 } });
    for (const content of ['one', 'two'])
      await service.post(messagesPath('echo'), { message: { content }, from_agent: 'ben' });
    await visitor.visit(url, { path: '/meetings/echo' }, async (page) => {
      const guard = page.getByRole('group', { name: 'Loop guard' });
      await guard.getByText('more than 1 message of agents in a row').waitFor();
      await guard.getByRole('button', { name: 'Raise the limit to 2' }).click();
      await guard.getByText('more than 2 messages of agents in a row').waitFor();
      await guard.getByRole('button', { name: 'Let the last one through' }).click();
      await guard.waitFor({ state: 'detached' });
      await receiver.count(3);
    });
  });

  test('a meeting is paused there, and resumed or emptied', async (t) => {
    const { service, url } = await start(t);
    const { receiver } = await service.member(t, 'loud', { agent_ids: ['anna'] });
    await visitor.visit(url, { path: '/meetings/loud' }, async (page) => {
      await page.getByRole('button', { name: 'Pause', exact: true }).click();
      const pause = page.getByRole('group', { name: 'Pause' });
      await pause.getByText('This meeting is paused: nothing is pushed, and nothing waits.').waitFor();
      await service.send('loud', { content: 'dropped' });
      await pause.getByText('1 delivery waits').waitFor();
      await pause.getByRole('button', { name: 'Drop pending…' }).click();
      const dialog = page.getByRole('dialog', { name: 'Drop pending deliveries?' });
      await dialog.getByText('1 delivery waits. Dropped ones are cancelled and stay on record.').waitFor();
      await page.reload();
      await page.route('**/deliveries/drop/', async (route) => {
        const counted = { deliveries: 9, up_to: null, dry_run: true, done: true, at_least: true };
        if ('dry_run' in (route.request().postDataJSON() as object)) await route.fulfill({ json: counted });
        else await route.continue();
      });
      await pause.getByRole('button', { name: 'Drop pending…' }).click();
      await dialog.getByText('At least 9 deliveries wait.').waitFor();
      await dialog.getByRole('button', { name: 'Drop', exact: true }).click();
      await pause.getByText('nothing waits').waitFor();
      await service.send('loud', { content: 'heard' });
      await pause.getByRole('button', { name: 'Resume' }).click();
      assert.equal(pushOf(await receiver.next()).message['content'], 'heard');
      await pause.waitFor({ state: 'detached' });
    });
  });

  test('are there in a browser whose language is no language tag', async (t) => {
    const { service, url } = await start(t);
    await service.member(t, 'standup');
    await visitor.visit(url, { has_locale: false }, async (page) => {
      await main(page).getByRole('heading', { name: 'Throughput per second' }).waitFor();
      await main(page).locator('.plot canvas').first().waitFor();
      // The control: the language of this browser is no valid language tag.
      const elsewhere = await page.context().newPage();
      await assert.rejects(
        elsewhere.evaluate(() => Intl.getCanonicalLocales(navigator.language)),
        /language tag/,
      );
    });
  });

  test('a message goes out as the JSON that was written, to the digit; what is no JSON is refused with a reason', async (t) => {
    const { service, url } = await start(t);
    const { receiver } = await service.member(t, 'exact');
    await visitor.visit(url, { path: '/meetings/exact' }, async (page) => {
      const composer = page.getByRole('form', { name: 'Send a message' });
      await composer.getByRole('radio', { name: 'JSON' }).check({ force: true });
      const message = page.getByRole('textbox', { name: 'Message' });
      await message.fill('{"n": ');
      await composer.getByRole('button', { name: 'Send to everybody' }).click();
      await composer.getByText('Not valid JSON').waitFor();
      await message.fill('{"n": 12345678901234567890}');
      await message.press('Control+Enter');
      assert.match((await receiver.next()).text, /12345678901234567890/);
    });
  });

  test('a failing instance is diagnosed, stage by stage and with advice, and recovered', async (t) => {
    const { service, url } = await start(t);
    const { instance_id, receiver } = await service.member(t, 'sick', {
      registration: { instance_name: 'GPU box' },
      behaviour: { status: 204 },
    });
    const sent = await service.send('sick', { content: 'hello' });
    await service.settled(sent);
    await visitor.visit(url, { path: '/now' }, async (page) => {
      await page.getByRole('region', { name: 'Instances' }).getByText('answered 204').waitFor();
      await page.getByRole('link', { name: 'GPU box' }).click();
      const detail = page.getByRole('region', { name: `Instance ${instance_id}` });
      await detail.getByText(/Answered 204/).waitFor();

      await detail.getByRole('button', { name: 'Test the webhook' }).click();
      const result = detail.getByRole('group', { name: 'Result of the test' });
      await result.getByText('only 200 counts as delivered').waitFor();
      assert.deepEqual(
        (await result.getByRole('listitem').allInnerTexts()).map((text) => text.split('\n')[0]),
        ['Connect', 'Request', 'Response'],
      );

      receiver.behaviour = { status: 200 };
      await detail.getByRole('button', { name: 'Resend failed…' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Resend' }).click();
      await page.getByText('1 delivery will be sent again.').waitFor();
      await detail.getByText('up', { exact: true }).waitFor();
      assert.equal((await service.settled(sent)).state, 'delivered');
      await detail.getByRole('link', { name: /#1\s*delivered/ }).waitFor();
    });
  });

  test('an instance that connects by itself is registered: the dialog has the command, and shows when it connects', async (t) => {
    const { service, url } = await start(t);
    await visitor.visit(url, { path: '/instances' }, async (page) => {
      await page.getByRole('button', { name: 'Register' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('radio', { name: 'It connects by itself' }).check();
      await dialog.getByLabel('Instance id').fill('laptop');
      await dialog.getByLabel('Agents').fill('anna, ben');
      assert.equal(await dialog.getByLabel('Webhook URL').count(), 0);
      await dialog.getByRole('button', { name: 'Register' }).click();
      await dialog.getByText('waiting for connection').waitFor();
      const command = String(await dialog.locator('.snippet pre').textContent());
      const wanted = `npx convoke connect --instance laptop --name laptop --agent anna --agent ben`;
      assert.ok(command.startsWith(wanted) && command.endsWith(`--url ${url}`), command);
      const pulled = service.post('/api/v1/instances/laptop/pull/', { wait_s: 1 });
      await dialog.getByText('connected', { exact: true }).waitFor();
      assert.equal((await pulled).status, 200);
      await dialog.getByRole('button', { name: 'Show the instance' }).click();
      await page.getByRole('region', { name: 'Instance laptop' }).waitFor();
    });
  });

  test('an answer leads to the message that it answers, also when that is not loaded yet', async (t) => {
    const { service, url } = await start(t);
    const path = messagesPath('long');
    const say = async (content: string, fields: object = {}): Promise<string> => {
      const answer = await service.post<SentMessage>(path, { message: { content }, ...fields });
      assert.equal(answer.status, 201, answer.text);
      return answer.body.message_id;
    };
    const asked = await say('What is left?');
    for (let i = 0; i < 120; i++) await say(`Line ${i}`);
    await say('Three things', { from_agent: 'anna', in_reply_to: asked });
    await visitor.visit(url, { path: '/meetings/long' }, async (page) => {
      const answer = page.getByRole('article', { name: 'Message 122' });
      const question = page.getByRole('article', { name: 'Message 1', exact: true });
      await answer.waitFor();
      assert.equal(await question.count(), 0);
      await answer.getByRole('button', { name: 'an earlier message' }).click();
      await question.getByText('What is left?').waitFor();
      await until(
        'the question to have the focus',
        () => question.evaluate((element) => element.ownerDocument.activeElement === element),
        (has) => has,
      );
      await page.getByRole('button', { name: /newer messages/ }).click();
      await answer.waitFor();
    });
  });

  test('an instance is registered, joins, is switched off, gets a new secret, leaves and is deleted', async (t) => {
    const { service, url } = await start(t);
    const receiver = await startReceiver(t);
    await visitor.visit(url, { path: '/instances', allowed: /422/ }, async (page) => {
      await page.getByText('No instances yet').waitFor();
      await page.getByRole('button', { name: 'Register' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Instance id').fill('mine');
      await dialog.getByLabel('Agents').fill('a, b');
      await dialog.getByLabel('Webhook URL').fill('http://169.254.169.254/');
      await dialog.getByRole('button', { name: 'Register' }).click();
      await dialog.getByRole('alert').waitFor();
      await dialog.getByLabel('Webhook URL').fill(receiver.url);
      await dialog.getByRole('button', { name: 'Register' }).click();
      await dialog.getByText(/^whsec_/).waitFor();
      await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
      const detail = page.getByRole('region', { name: 'Instance mine' });

      await detail.getByRole('button', { name: 'Join a meeting' }).click();
      await dialog.getByLabel('Meeting id').fill('room');
      await dialog.getByRole('button', { name: 'Join', exact: true }).click();
      await dialog.waitFor({ state: 'detached' });
      await service.send('room', { content: 'hello' });
      assert.deepEqual(pushOf(await receiver.next()).target_agents, ['a', 'b']);

      await detail.getByRole('button', { name: 'Pause' }).click();
      await detail.getByText(/^Paused\. Nothing is pending\. New messages are not queued for it\./).waitFor();
      assert.equal((await service.instance('mine')).webhook_enabled, false);

      await detail.getByRole('button', { name: 'Rotate the secret…' }).click();
      await dialog.getByRole('button', { name: 'Rotate', exact: true }).click();
      await dialog.getByText(/^whsec_/).waitFor();
      await dialog.getByText('every push carries two signatures').waitFor();
      await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
      await detail.getByRole('button', { name: 'Rotate the secret…' }).click();
      await dialog.getByLabel('The old secret ends').selectOption('0');
      await dialog.getByRole('button', { name: 'Rotate', exact: true }).click();
      await dialog.getByText('From now on only this secret signs.').waitFor();
      await dialog.getByRole('button', { name: 'I’ve saved it' }).click();

      await detail.getByRole('button', { name: 'Leave room' }).click();
      await detail.getByText(/^left/).waitFor();

      await detail.getByRole('button', { name: 'Delete…' }).click();
      await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
      await page.getByText('No instances yet').waitFor();
      assert.equal((await service.get('/api/v1/instances/mine/')).status, 404);
    });
  });

  test('filters are part of the address: they narrow the list, survive a reload, and can be cleared', async (t) => {
    const { service, url } = await start(t);
    const good = await service.member(t, 'one');
    const bad = await service.member(t, 'two', { behaviour: { status: 202 } });
    await service.settled(await service.send('one', { content: '1' }));
    await service.settled(await service.send('two', { content: '2' }));
    await visitor.visit(url, { path: '/deliveries' }, async (page) => {
      const rows = main(page).getByRole('rowgroup').nth(1).getByRole('row');
      await rows.nth(1).waitFor();
      await page.getByRole('radio', { name: 'Failed' }).check({ force: true });
      await rows.nth(1).waitFor({ state: 'detached' });
      assert.match(await rows.innerText(), new RegExp(bad.instance_id));
      assert.match(page.url(), /state=failed/);
      await page.reload();
      await rows.first().waitFor();
      assert.equal(await rows.count(), 1);
      await page.getByRole('searchbox', { name: 'Instance id' }).fill(good.instance_id);
      await page.getByText('No deliveries match').waitFor();
      await page.getByRole('button', { name: 'Clear the filter' }).click();
      await rows.nth(1).waitFor();
      assert.equal(new URL(page.url()).search, '');

      await rows.filter({ hasText: bad.instance_id }).getByRole('link').click();
      const detail = page.getByRole('region', { name: /^Delivery / });
      await detail.getByText('the receiver responded with a 2xx status that is not 200').waitFor();
      bad.receiver.behaviour = {};
      await detail.getByRole('button', { name: 'Retry now' }).click();
      await detail.getByText('delivered', { exact: true }).waitFor();
      await detail.getByRole('list').getByRole('listitem').nth(1).waitFor();
    });
  });

  /** Presses Tab until an element has the focus. */
  async function tabTo(page: Page, selector: string): Promise<void> {
    for (let presses = 0; presses < 60; presses++) {
      if ((await page.locator(`${selector}:focus`).count()) > 0) return;
      await page.keyboard.press('Tab');
    }
    assert.fail(`${selector} cannot be reached with Tab`);
  }

  test('everything can be reached with the keyboard alone', async (t) => {
    const { service, url } = await start(t);
    const { receiver } = await service.member(t, 'keys', { registration: { instance_id: 'alpha' } });
    await service.member(t, 'keys', { registration: { instance_id: 'beta' } });
    await visitor.visit(url, { path: '/now' }, async (page) => {
      const { keyboard } = page;
      await page.getByRole('heading', { name: 'Now', level: 1 }).waitFor();
      await keyboard.press('?');
      await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
      await keyboard.press('Escape');
      await page.getByRole('dialog').waitFor({ state: 'detached' });

      await keyboard.type('gi');
      await row(page, /alpha/).waitFor();
      await keyboard.press('/');
      await keyboard.type('bet');
      await row(page, /alpha/).waitFor({ state: 'detached' });
      await keyboard.press('Escape');
      await keyboard.press('Tab');
      // Tab first reaches the filter of health and the button after it, and then the rows.
      await tabTo(page, '.row-link');
      await keyboard.press('Enter');
      await page.getByRole('region', { name: 'Instance beta' }).waitFor();
      await keyboard.press('Escape');
      await page.getByRole('region', { name: 'Instance beta' }).waitFor({ state: 'detached' });

      await keyboard.type('gm');
      await row(page, /Open keys/).waitFor();
      await tabTo(page, '.row-link');
      await keyboard.press('Enter');
      await page.getByRole('textbox', { name: 'Message' }).waitFor();
      await tabTo(page, 'textarea');
      await keyboard.type('by hand, g d is no shortcut here');
      await keyboard.press('Enter');
      assert.equal(pushOf(await receiver.next()).message['content'], 'by hand, g d is no shortcut here');

      await keyboard.press('Escape');
      await keyboard.type('gd');
      await row(page, /to beta/).waitFor();
      await tabTo(page, '.row-link');
      await keyboard.press('j');
      await page.locator('[data-row="1"] .row-link:focus').waitFor();
    });
  });

  const HOSTILE = `<img src=x onerror="window.hacked=1">"'><script>window.hacked=1</script><svg onload=window.hacked=1> \u202Eevil {{7*7}} javascript:window.hacked=1`;

  test('hostile text in every field is shown as text', async (t) => {
    const { service, url } = await start(t);
    const text = HOSTILE.slice(0, 190);
    const receiver = await startReceiver(t, { status: 500, body: HOSTILE });
    const instance = await service.register({
      instance_id: text,
      instance_name: text,
      agent_ids: [text],
      webhook_url: receiver.url,
    });
    await service.join(text, text, [text]);
    const sent = await service.send(text, { from: HOSTILE, content: HOSTILE, [HOSTILE]: HOSTILE }, [text]);
    const { delivery_id } = await service.attempted(sent);
    const hacked = (page: Page) => page.evaluate('window.hacked');
    const id = encodeURIComponent(text);
    await visitor.visit(url, { path: `/meetings/${id}` }, async (page) => {
      const message = page.getByRole('article', { name: 'Message 1' });
      await message.getByText(HOSTILE).first().waitFor();
      await message.getByRole('button', { name: /JSON/ }).click();
      await message.getByRole('button', { name: /pending/ }).click();
      await message.getByLabel("The receiver's response").getByText(HOSTILE).waitFor();
      for (const path of [`/instances/${id}`, `/deliveries/${delivery_id}`, '/now', '/start', '/audit', '/instances']) {
        await page.goto(url + path);
        await main(page).getByText(text.slice(0, 40)).first().waitFor();
      }
      await page.goto(`${url}/instances?q=${id}`);
      assert.equal(await page.getByRole('searchbox').first().inputValue(), text);
      assert.equal(await hacked(page), undefined);
      assert.equal(await page.locator('img, script:not([src]), a[href^="javascript:"]').count(), 0);
    });
    assert.equal(instance.instance_name, text);
  });

  test('control: the hostile text does its harm where it is taken for markup', async (t) => {
    const { url } = await start(t);
    await visitor.visit(url, { path: '/now', allowed: /./ }, async (page) => {
      const bare = await page.context().newPage();
      await bare.setContent(HOSTILE);
      await bare.waitForFunction('window.hacked === 1');
      // The policy of the page refuses this, so no script can turn text into markup.
      const markup = page.evaluate(`document.body.innerHTML = ${JSON.stringify(HOSTILE)}`);
      await assert.rejects(markup, /requires 'TrustedHTML'/);
    });
  });

  const VIEWS = ['/now', '/meetings', '/instances', '/deliveries', '/keys', '/audit', '/nodes', '/start'];

  /** Starts a service with data for every page. */
  async function lively(t: TestContext): Promise<{ service: Service; url: string; views: string[] }> {
    const { service, url } = await start(t);
    await service.member(t, 'room', { registration: { instance_id: 'good', instance_name: 'A good machine' } });
    const instance_name = 'A machine with a name that goes on and on, as names do when nobody stops them';
    const bad = { instance_id: 'bad', instance_name };
    await service.member(t, 'room', { registration: bad, behaviour: { status: 500, body: 'x'.repeat(500) } });
    const content = `A long word, ${'m'.repeat(300)}, and a link: https://example.com/${'path/'.repeat(40)}`;
    await service.send('room', { from: 'good', content });
    const sent = await service.send('room', { from: 'bad', content: 'Short.' }, ['a']);
    const [delivery] = await service.deliveriesOf(sent);
    const details = ['/meetings/room', '/instances/bad', `/deliveries/${delivery?.delivery_id}`, '/agents/a'];
    return { service, url, views: [...VIEWS, ...details] };
  }

  /** Opens a view without loading the page again. */
  async function show(page: Page, path: string): Promise<void> {
    await follow(page, path);
    await page.locator('h1').waitFor({ state: 'attached' });
    await page.locator('.skeleton').first().waitFor({ state: 'detached' });
  }

  /** A zoom of 200 % halves the size of a window. So 720 is a laptop with this zoom, and 960 a large screen. */
  const SCREENS = [
    [360, 800],
    [390, 844],
    [720, 450],
    [768, 1024],
    [960, 540],
    [1024, 768],
    [1440, 900],
    [1920, 1080],
    [2560, 1440],
  ] as const;

  test('nothing is cut off or scrolls sideways, from a phone to a wide screen and at 200 % zoom', async (t) => {
    const { service, url, views } = await lively(t);
    await service.patch('good', { is_active: false });
    const wrong: string[] = [];
    for (const [width, height] of SCREENS) {
      await visitor.visit(url, { path: '/now', viewport: { width, height } }, async (page) => {
        for (const path of views) {
          await show(page, path);
          for (const found of await page.evaluate<string[]>(BADLY_LAID_OUT)) wrong.push(`${width} ${path}: ${found}`);
        }
      });
    }
    assert.deepEqual(wrong, []);
  });

  test('on a phone everything to press is as large as a finger, and a low window leaves room to read', async (t) => {
    const { url, views } = await lively(t);
    await visitor.visit(url, { path: '/now', viewport: { width: 390, height: 844 } }, async (page) => {
      const small: string[] = [];
      for (const path of views) {
        await show(page, path);
        const found = await page.evaluate<
          string[]
        >(`[...document.querySelectorAll('.button, .bare, .chip, .mark-button, .choice-option, .rows-body .row, .input')]
          .filter((element) => element.offsetParent !== null && element.getBoundingClientRect().height < 38)
          .map((element) => element.className + ' ' + element.textContent)`);
        for (const each of found) small.push(`${path}: ${each}`);
      }
      assert.deepEqual(small, []);
    });
    await visitor.visit(url, { path: '/meetings/room', viewport: { width: 720, height: 450 } }, async (page) => {
      await page.getByRole('article').first().waitFor();
      const box = await page.getByRole('log', { name: 'Messages' }).boundingBox();
      assert.ok(box !== null && box.height >= 160, `the conversation has ${box?.height} px`);
    });
  });

  test('a tab is named after what it shows, the sign-in field has the focus, and the frame says who is signed in', async (t) => {
    const { service, url } = await start(t);
    const { token } = await service.endOpenMode();
    await service.member(t, 'room', { registration: { instance_id: 'inside' } });
    await visitor.visit(url, { path: '/instances/inside' }, async (page) => {
      await page.getByLabel('Key', { exact: true }).waitFor();
      await page.keyboard.type(token);
      await page.keyboard.press('Enter');
      const titled = (expected: string) =>
        until(
          'the title',
          () => page.title(),
          (title) => title === expected,
        );
      await titled('Instance inside · Convoke');
      await page.getByRole('link', { name: 'Close the instance' }).click();
      await titled('Instances · Convoke');
      const { version } = (await service.get<Session>('/api/v1/session/')).body;
      await page.getByText(`Convoke ${version}`).waitFor();
      await page.getByText('the first', { exact: true }).waitFor();
    });
  });

  test('the name of the environment stands in the head and in the title, before and after signing in', async (t) => {
    const service = await startService(t, { environment: 'staging' });
    const { token } = await service.endOpenMode();
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      const titled = (expected: string) =>
        until(
          'the title',
          () => page.title(),
          (title) => title === expected,
        );
      await page.getByRole('heading', { name: 'Convoke staging' }).waitFor();
      await titled('Sign in · staging · Convoke');
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.keyboard.press('Enter');
      await page.getByRole('link', { name: 'Convoke staging' }).waitFor();
      await titled('Instances · staging · Convoke');
    });
  });

  test('the longest name of an environment is shown whole', async (t) => {
    const environment = 'production, eu-central-1';
    const service = await startService(t, { environment });
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      const name = page.getByRole('link', { name: 'Convoke' }).getByText(environment);
      assert.ok(await name.evaluate((element) => element.scrollWidth <= element.clientWidth));
    });
  });

  test('the name of a fact stands beside the first line of its value', async (t) => {
    const { service, url } = await start(t);
    const agent_ids = Array.from({ length: 30 }, (_, i) => `an-agent-with-a-long-name-${i}`);
    const { instance_id } = await service.member(t, 'room', { agent_ids });
    await visitor.visit(url, { path: `/instances/${instance_id}` }, async (page) => {
      const fact = page.locator('.facts > div').filter({ hasText: 'Agents' });
      const [name, first] = [await fact.locator('dt').boundingBox(), await fact.locator('.tag').first().boundingBox()];
      const middleOf = ({ y = 0, height = 0 } = {}): number => y + height / 2;
      assert.ok(Math.abs(middleOf(name ?? {}) - middleOf(first ?? {})) < 5);
    });
  });

  test('a key that may only read sees no button that it may not press', async (t) => {
    const { service, url } = await start(t);
    await service.endOpenMode();
    const reader = await service.createKey({ scopes: ['read'], name: 'reader' });
    const { instance_id } = await service.member(t, 'room', { behaviour: { status: 500 } });
    const { delivery_id } = await service.attempted(await service.send('room', { content: 'hello' }));
    /** Buttons that change nothing: they copy, open, filter, hold a list, or sign out. */
    const reads = /^(Copy|JSON|Trace|Pause the list|Keyboard|Sign out|Earlier|A machine|Sort|More|Search|Why)/;
    const places = [
      '/now',
      '/meetings',
      '/meetings/room',
      '/instances',
      `/instances/${instance_id}`,
      '/deliveries',
      `/deliveries/${delivery_id}`,
      '/start',
    ];
    await visitor.visit(url, { path: '/now' }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(reader.token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('read-only').waitFor();
      for (const path of places) {
        await show(page, path);
        if (path === '/meetings/room') {
          await page.locator('.meeting-members > summary').click();
          await page.getByText('Your key is read-only; sending needs the send scope.').waitFor();
        }
        const names = await page
          .locator('.frame button:visible, .frame [role=switch]')
          .evaluateAll((buttons) =>
            buttons.filter((button) => !button.matches('.sort, .more')).map((button) => button.textContent ?? ''),
          );
        assert.deepEqual(
          names.map((name) => name.trim()).filter((name) => !reads.test(name)),
          [],
          path,
        );
      }
    });
  });

  test('control: what is cut off or scrolls sideways is found', async (t) => {
    const { url } = await start(t);
    await visitor.visit(url, { path: '/instances' }, async (page) => {
      await page.getByRole('heading', { level: 1 }).waitFor();
      assert.deepEqual(await page.evaluate(BADLY_LAID_OUT), []);
      await page.evaluate(`{
        const main = document.querySelector('main');
        const add = (name, className, text) => {
          const element = document.createElement(name);
          element.className = className;
          if (name === 'input') element.placeholder = text;
          else element.textContent = text;
          main.append(element);
          return element;
        };
        add('input', 'input', 'A placeholder that has no room').style.width = '60px';
        add('button', 'button', 'A button').style.cssText = 'width: 20px; overflow: hidden; white-space: nowrap; padding: 0';
        add('div', '', 'm'.repeat(900)).style.cssText = 'overflow-x: auto; width: 300px; white-space: nowrap';
      }`);
      assert.equal((await page.evaluate<string[]>(BADLY_LAID_OUT)).length, 3);
    });
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    test(`axe finds nothing serious on any page, ${colorScheme}`, async (t) => {
      const { url, views } = await lively(t);
      await visitor.visit(url, { path: '/now', colorScheme }, async (page) => {
        for (const path of views) {
          await show(page, path);
          const found = await seriousIn(page);
          assert.deepEqual(found, [], path);
        }
      });
    });
  }

  test('the theme follows the system until another one is chosen, and that is remembered', async (t) => {
    const { url } = await start(t);
    const ground = (page: Page) => page.evaluate<string>('getComputedStyle(document.documentElement).backgroundColor');
    await visitor.visit(url, { path: '/start', colorScheme: 'dark' }, async (page) => {
      await page.getByRole('heading', { level: 1 }).waitFor();
      const dark = await ground(page);
      await page.getByRole('radio', { name: 'Light' }).check({ force: true });
      const light = await ground(page);
      assert.notEqual(light, dark);
      await page.reload();
      await page.getByRole('heading', { level: 1 }).waitFor();
      assert.equal(await ground(page), light);
      await page.getByRole('radio', { name: 'Auto' }).check({ force: true });
      assert.equal(await ground(page), dark);
      await page.emulateMedia({ colorScheme: 'light' });
      assert.equal(await ground(page), light);
    });
  });

  test('of 10,000 rows only those in sight are in the document, and the last one is a key away', async (t) => {
    const { service, url } = await start(t);
    const receiver = await startReceiver(t);
    await receiver.down();
    const ids = Array.from({ length: 100 }, (_, i) => `machine-${i}`);
    await Promise.all(
      ids.map(async (instance_id) => {
        await service.register({ instance_id, webhook_url: receiver.url });
        await service.join('crowd', instance_id, ['a']);
      }),
    );
    for (let i = 0; i < 100; i++) await service.send('crowd', { content: `${i}` });
    await visitor.visit(url, { path: '/deliveries' }, async (page) => {
      const rows = page.locator('[data-row]');
      await rows.first().waitFor();
      await rows.first().getByRole('link').focus();
      const last = page.locator('[data-row="9999"]');
      while (!(await last.isVisible())) await page.keyboard.press('End');
      await last.getByText('#1', { exact: true }).waitFor();
      assert.ok((await rows.count()) < 80);
      await page.keyboard.press('Home');
      await page.locator('[data-row="0"]').getByText('#100', { exact: true }).waitFor();
    });
  });

  test('an empty registry begins with a guide, and each step ticks itself off', async (t) => {
    const { service, url } = await start(t);
    await visitor.visit(url, {}, async (page) => {
      await page.getByRole('heading', { name: 'Start here' }).waitFor();
      await page.getByText(/^npx convoke connect /).waitFor();
      const steps = main(page).getByRole('listitem');
      const done = (name: string) => steps.filter({ hasText: name }).getByText('(done)').waitFor({ state: 'attached' });
      assert.equal(await page.getByText('(done)').count(), 0);
      const { instance_id } = await service.member(t, 'standup-42');
      assert.ok(instance_id);
      await done('Connect a machine');
      await page.getByRole('radio', { name: 'Webhook: curl' }).check({ force: true });
      await page.getByText(`${url}/api/v1/instances/register/`).waitFor();
      await done('Register an instance');
      await done('Let it join a meeting');
      await page.getByRole('link', { name: 'in the meeting itself' }).click();
      await page.getByRole('textbox', { name: 'Message' }).fill('hello');
      await page.getByRole('button', { name: 'Send to everybody' }).click();
      await page
        .getByRole('article')
        .getByRole('button', { name: /delivered/ })
        .waitFor();
      await page.goBack();
      await done('Say something there');
      await done('See it arrive');
    });
  });

  test('the guide starts two agents that talk, when there is no instance yet, and removes them again', async (t) => {
    const { service, url } = await start(t);
    await visitor.visit(url, { path: '/start' }, async (page) => {
      await startDemo(page);
      await page.getByRole('button', { name: 'Stop the demo' }).click();
      await page.getByRole('button', { name: 'Start the demo' }).waitFor();
      assert.deepEqual((await service.get<{ data: unknown[] }>('/api/v1/instances/')).body.data, []);
    });
  });

  test('an agent is invited into a meeting by a link, and the page at the link says what to do, without a script too', async (t) => {
    const { service, url } = await start(t);
    await service.member(t, 'standup');
    let link = '';
    await visitor.visit(url, { path: '/meetings/standup' }, async (page) => {
      await page.locator('.meeting-members > summary').click();
      await page.getByRole('button', { name: 'Invite an agent' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Agents').fill('<i>anna</i>, ben');
      await dialog.getByRole('button', { name: 'Make the link' }).click();
      link = await dialog.getByLabel('the link', { exact: true }).innerText();
      assert.equal(new URL(link).origin, url);
    });
    for (const javaScriptEnabled of [true, false]) {
      await visitor.visit(url, { path: new URL(link).pathname, javaScriptEnabled }, async (page) => {
        await page.getByText('<i>anna</i>, ben').waitFor();
        assert.equal(await page.getByLabel('The command').innerText(), `npx convoke connect ${link}`);
        if (javaScriptEnabled) assert.deepEqual(await seriousIn(page), []);
      });
    }
    await service.post('/api/v1/invites/redeem/', { secret: link.split('/').at(-1) });
    await visitor.visit(url, { path: new URL(link).pathname, allowed: /410/ }, async (page) => {
      await page.getByText(/It was redeemed at/).waitFor();
      assert.equal(await page.getByLabel('The command').isVisible(), false);
    });
  });

  test('the nodes are shown with what each holds', async (t) => {
    const { service, url } = await start(t);
    await service.untilItDelivers();
    const { body } = await service.get<{ data: ServiceNode[] }>('/api/v1/nodes/');
    const [node] = body.data;
    assert.ok(node !== undefined);
    await visitor.visit(url, { path: '/nodes' }, async (page) => {
      await row(page, /64 of 64/)
        .getByRole('link')
        .click();
      const detail = page.getByRole('region', { name: `Node ${node.node_id}` });
      await detail.getByText(node.address).waitFor();
      // On SQLite, which has a single node, no link leads to this view, but its address opens it.
      const { features } = (await service.get<Session>('/api/v1/session/')).body;
      assert.equal(await page.getByRole('link', { name: 'Nodes', exact: true }).count(), features.cluster ? 1 : 0);
    });
  });

  test('when keys are required one signs in with a key, sees what it may see, and signs out', async (t) => {
    const { service, url } = await start(t);
    const { token } = await service.endOpenMode();
    const reader = await service.createKey({ scopes: ['read'], name: 'reader' });
    await service.member(t, 'secret-room', { registration: { instance_id: 'inside' } });
    await visitor.visit(url, { path: '/instances', allowed: /401/ }, async (page) => {
      const key = page.getByLabel('Key', { exact: true });
      await key.fill(`${token.slice(0, -1)}${token.endsWith('x') ? 'y' : 'x'}`);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('alert').waitFor();
      await key.fill(token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      // The page shows the view that the person wanted.
      await row(page, /inside/).waitFor();
      await page.getByRole('link', { name: 'Keys', exact: true }).click();
      await row(page, /reader/).waitFor();
      // The page shows a session of somebody else, and ends it. The session of this browser continues.
      const headers = { authorization: `Bearer ${reader.token}` };
      const other = (await service.request<Session>('POST', '/api/v1/session/', { headers })).body;
      assert.equal(other.state, 'signed_in');
      await page.getByRole('button', { name: 'Sessions' }).click();
      const sessions = page.getByRole('dialog').getByRole('list', { name: 'Sessions' });
      await sessions.getByText('this one').waitFor();
      await sessions
        .getByRole('listitem')
        .filter({ hasText: reader.key_id })
        .getByRole('button', { name: /^End the session/ })
        .click();
      await sessions.getByText(reader.key_id).waitFor({ state: 'detached' });
      const left = (await service.get<ListOf<OpenSession>>('/api/v1/sessions/')).body.data;
      assert.deepEqual(
        left.map(({ key_id }) => key_id),
        [token.slice(4, 16)],
      );
      await page.goto(`${url}/meetings/secret-room`);
      await page.getByRole('textbox', { name: 'Message' }).fill('signed in');
      await page.getByRole('button', { name: 'Send to everybody' }).click();
      await page.getByRole('article').getByText('signed in').waitFor();
      await page.getByRole('button', { name: 'Sign out' }).click();
      await key.waitFor();
      await page.reload();
      await key.fill(reader.token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('article').getByText('signed in').waitFor();
      assert.equal(await page.getByRole('link', { name: 'Keys', exact: true }).count(), 0);
    });
  });

  /** Compressed, as the service sends it. */
  const BYTES_MAX = 150 * 1024;

  test('the built pages are less than 150 KB in all, compressed', async () => {
    const dist = new URL('../../web/dist/', import.meta.url);
    let bytes = 0;
    for (const entry of await readdir(dist, { recursive: true, withFileTypes: true })) {
      if (entry.name.endsWith('.br')) bytes += (await stat(`${entry.parentPath}/${entry.name}`)).size;
    }
    assert.ok(bytes > 20_000, 'the pages are built');
    assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
  });
});

/**
 * Finds elements that a page cuts off or that scroll sideways. Names and ids may end in an ellipsis, because they can
 * have any length. Numbers, times, column headings, buttons, tags and placeholders must be shown completely.
 */
const BADLY_LAID_OUT = `(() => {
  const wrong = [];
  const nameOf = (element) => element.tagName.toLowerCase() + '.' + element.className + ' ' + JSON.stringify(element.textContent.slice(0, 40));
  const root = document.documentElement;
  const main = document.querySelector('main');
  if (root.clientWidth > 720 && main.clientHeight !== root.clientHeight) wrong.push('the frame is ' + main.clientHeight + ' px high');
  if (root.scrollWidth > root.clientWidth) wrong.push('the page is ' + root.scrollWidth + ' px wide');
  for (const element of document.querySelectorAll('main *')) {
    if (element.clientWidth === 0 || element.closest('svg, .plot, .unseen') !== null) continue;
    const is_wide = element.scrollWidth > element.clientWidth + 1;
    if (is_wide && /auto|scroll/.test(getComputedStyle(element).overflowX)) wrong.push('scrolls: ' + nameOf(element));
    if (is_wide && element.matches('.cell.number, [role=columnheader], .button, .choice-option span, .tag:not(bdi), .figure *, .state, dt'))
      wrong.push('cut off: ' + nameOf(element));
    if (element.matches('input[placeholder]')) {
      const css = getComputedStyle(element);
      const pen = document.createElement('canvas').getContext('2d');
      pen.font = css.font;
      const room = element.clientWidth - parseFloat(css.paddingLeft) - parseFloat(css.paddingRight);
      if (pen.measureText(element.placeholder).width > room) wrong.push('cut off: the placeholder ' + element.placeholder);
    }
  }
  return wrong;
})()`;
