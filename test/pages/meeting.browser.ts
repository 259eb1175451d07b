/** The parts of the page of a meeting beside the messages: members, composer, and the session of the reader. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Delivery, MessageTrace, Page as ListOf } from '@convoke/sdk';
import type { Page } from 'playwright-core';
import { seriousIn } from '../support/axe.ts';
import { follow, holdBack, stretchTimers, useVisitor } from '../support/browser.ts';
import { startReceiver } from '../support/receiver.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const composer = (page: Page) => page.getByRole('form', { name: 'Send a message' });
const text = (page: Page) => page.getByRole('textbox', { name: 'Message' });

/** Registers instances in a meeting, each with another agent. */
async function crowd(service: Service, webhook_url: string, meeting_id: string, count: number): Promise<void> {
  const ids = Array.from({ length: count }, (_, i) => String(i).padStart(4, '0'));
  for (let at = 0; at < count; at += 50) {
    await Promise.all(
      ids.slice(at, at + 50).map(async (id) => {
        const instance = { instance_id: `machine-${id}`, instance_name: `Machine ${id}`, agent_ids: [`agent-${id}`] };
        await service.register({ ...instance, webhook_url });
        await service.join(meeting_id, instance.instance_id, instance.agent_ids);
      }),
    );
  }
}

describe("a meeting's page", { concurrency: 2 }, () => {
  test('says what each member gets, changes it, and is accessible while it does', async (t) => {
    const service = await startService(t);
    const registration = { instance_id: 'gpu', instance_name: 'GPU box' };
    await service.member(t, 'ruled', { agent_ids: ['anna'], registration });
    for (const colorScheme of ['light', 'dark'] as const) {
      await visitor.visit(service.url, { path: '/meetings/ruled', colorScheme, allowed: /422/ }, async (page) => {
        await page.locator('.meeting-members > summary').click();
        await page.getByRole('button', { name: /change what GPU box gets/ }).click();
        const dialog = page.getByRole('dialog', { name: 'What GPU box gets' });
        await dialog.getByRole('radio', { name: 'Only what people say' }).check({ force: true });
        await dialog.getByRole('radio', { name: 'Only the newest' }).check({ force: true });
        const age = dialog.getByLabel('Not older than, in seconds');
        await age.fill('soon');
        await dialog.getByRole('button', { name: 'Save' }).click();
        await dialog.getByRole('alert').getByText('max_age_s').waitFor();
        await age.fill('90');
        assert.deepEqual(await seriousIn(page), []);
        const is_cut = await dialog.evaluate((element) => element.scrollWidth > element.clientWidth);
        assert.equal(is_cut, false);
        await dialog.getByRole('button', { name: 'Save' }).click();
        await dialog.waitFor({ state: 'detached' });
        const words = 'Gets what people say, after being away the newest, nothing older than 90 s';
        await page.getByRole('button', { name: words }).waitFor();
        for (const width of [390, 768, 1440]) {
          await page.setViewportSize({ width, height: 900 });
          const members = page.getByRole('list').filter({ has: page.getByRole('link', { name: 'GPU box' }) });
          const is_wide = await members.first().evaluate((element) => element.scrollWidth > element.clientWidth);
          assert.equal(is_wide, false, `the members at ${width} px`);
        }
        assert.deepEqual(await seriousIn(page), []);
      });
      const { body } = await service.get<{ data: object[] }>('/api/v1/meetings/ruled/instances/');
      const [{ wake, catch_up, max_age_s } = {}] = body.data as { [name: string]: unknown }[];
      assert.deepEqual([wake, catch_up, max_age_s], ['people', 'latest', 90]);
      await service.post('/api/v1/instances/join-meeting/', {
        instance_id: 'gpu',
        meeting_id: 'ruled',
        agent_ids: ['anna'],
        wake: 'all',
        catch_up: 'all',
        max_age_s: 0,
      });
    }
  });

  test('reads its members again when they change, and not with every message', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_name: 'Box' } });
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      await page.locator('.meeting-members').getByText('1 instance').waitFor();
      // The first success changes the health of the member.
      await service.settled(await service.send('room', { content: 'First' }));
      await page.getByText('First', { exact: true }).waitFor();
      let asked = 0;
      page.on('request', (request) => (asked += Number(request.url().includes('/meetings/room/instances/'))));
      const readsInASecond = async (): Promise<number> => {
        asked = 0;
        await page.evaluate('new Promise((resolve) => setTimeout(resolve, 1000))');
        return asked;
      };
      await until('a second without a read of the members', readsInASecond, (reads) => reads === 0);
      for (const content of ['Second', 'Third', 'Fourth']) {
        await service.settled(await service.send('room', { content }));
        await page.getByText(content, { exact: true }).waitFor();
      }
      await page.evaluate('new Promise((resolve) => setTimeout(resolve, 1000))');
      assert.equal(asked, 0);
      await service.member(t, 'room');
      await page.locator('.meeting-members').getByText('2 instances').waitFor();
    });
  });

  test('a change of what a member gets does not bring back a member that leaves meanwhile', async (t) => {
    const service = await startService(t);
    const registration = { instance_id: 'gpu', instance_name: 'GPU box' };
    await service.member(t, 'ruled', { agent_ids: ['anna'], registration });
    await visitor.visit(service.url, { path: '/meetings/ruled', allowed: /404/ }, async (page) => {
      await page.locator('.meeting-members > summary').click();
      await page.getByRole('button', { name: /change what GPU box gets/ }).click();
      const dialog = page.getByRole('dialog', { name: 'What GPU box gets' });
      await dialog.getByRole('radio', { name: 'Only what people say' }).check({ force: true });
      // The member leaves when the request for the change is already on its way.
      await page.route(/\/(join-meeting|instances\/gpu)\/$/, async (route) => {
        await service.post('/api/v1/instances/leave-meeting/', { instance_id: 'gpu', meeting_id: 'ruled' });
        await route.continue();
      });
      const answered = page.waitForResponse((response) => response.request().method() !== 'GET');
      await dialog.getByRole('button', { name: 'Save' }).click();
      await answered;
    });
    const { body } = await service.get<{ data: object[] }>('/api/v1/meetings/ruled/instances/');
    assert.deepEqual(body.data, []);
  });

  test('says that a message may never arrive, where it waits and the rules of a membership leave out what waited', async (t) => {
    const service = await startService(t);
    const pulling = (instance_id: string) => ({ instance_id, instance_name: instance_id, transport: 'pull' });
    for (const [id, rules] of Object.entries({
      patient: {},
      newest: { catch_up: 'latest' },
      both: { catch_up: 'latest', max_age_s: 60 },
      quiet: { wake: 'targeted' },
    })) {
      assert.equal(
        (await service.post('/api/v1/instances/register/', { ...pulling(id), agent_ids: [id] })).status,
        201,
      );
      const join = { instance_id: id, meeting_id: 'away', agent_ids: [id], ...rules };
      assert.equal((await service.post('/api/v1/instances/join-meeting/', join)).status, 201);
    }
    await visitor.visit(service.url, { path: '/meetings/away' }, async (page) => {
      const hears = (words: string) => composer(page).getByText(words, { exact: true }).waitFor();
      await hears('patient will hear it when connected');
      await hears('newest will hear it when connected, unless a newer message comes first');
      await hears('both will hear it when connected, unless a newer message comes first or it is too old by then');
      await hears('quiet will not be woken: it is in the history');
    });
  });

  test('says nothing about a message whose reader has left before it arrived', async (t) => {
    const service = await startService(t);
    for (const content of ['one', 'two', 'three']) await service.send('room', { content });
    await visitor.visit(service.url, { path: '/meetings' }, async (page) => {
      const asked = Promise.withResolvers<void>();
      const left = Promise.withResolvers<void>();
      let read = 0;
      await page.route('**/meetings/room/messages/**', async (route) => {
        asked.resolve();
        await left.promise;
        await route.continue();
      });
      page.on('requestfinished', (request) => {
        if (request.url().includes('/meetings/room/messages/')) read++;
      });
      await follow(page, '/meetings/room#2');
      await asked.promise;
      await page.getByRole('navigation').getByRole('link', { name: 'Instances' }).click();
      await page.getByRole('heading', { name: 'Instances', exact: true }).waitFor();
      left.resolve();
      // The messages up to the second, and the messages after it.
      await until(
        'both answers',
        () => read,
        (count) => count === 2,
      );
      await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
      assert.equal(await page.getByText('is not here').count(), 0);
      // The control: a reader who stays is told.
      await follow(page, '/meetings/room#99');
      await page.getByText('Message #99 is not here').waitFor();
    });
  });

  test('opens the message in its address also when the service did not respond at first', async (t) => {
    const service = await startService(t);
    for (let n = 1; n <= 70; n++) await service.send('room', { content: `number ${n}` });
    await visitor.visit(service.url, { path: '/meetings', allowed: /ERR_FAILED/ }, async (page) => {
      const messages = '**/meetings/room/messages/**';
      await page.getByText('Live', { exact: true }).waitFor();
      await page.route(messages, (route) => route.abort());
      await follow(page, '/meetings/room#5');
      const log = page.getByRole('log');
      await log.getByRole('alert').getByText('The service does not respond').waitFor();
      // The page goes on by itself.
      await page.unroute(messages);
      const fifth = page.getByRole('article', { name: 'Message 5', exact: true });
      await until(
        'the focus on the message',
        () => fifth.evaluate((found) => found === found.ownerDocument.activeElement),
        (is_focused) => is_focused,
      );

      // A jump that fails says so where the reader is, and the next one works.
      await page.route(messages, (route) => route.abort());
      await follow(page, '/meetings/room#70');
      await page.locator('.notice').getByText('the service does not respond').waitFor();
      await page.unroute(messages);
      await follow(page, '/meetings/room#69');
      await page.getByRole('article', { name: 'Message 69', exact: true }).waitFor();
    });
  });

  test('does not move back to a delivery that somebody has opened and left, when that is tried again', async (t) => {
    const service = await startService(t, { retry_schedule: '1h' });
    await service.member(t, 'room', { agent_ids: ['a'], behaviour: { status: 500 } });
    const sent = await service.send('room', { content: 'Hello' });
    const { delivery_id } = await service.attempted(sent);
    for (let i = 0; i < 20; i++) await service.send('room', { content: `Line ${i}` }, ['nobody']);
    await visitor.visit(service.url, { path: '/meetings/room#1' }, async (page) => {
      const first = page.getByRole('article', { name: 'Message 1', exact: true });
      await first.getByRole('button', { name: /pending/ }).click();
      await first.locator('.attempt').waitFor();
      const log = page.getByRole('log', { name: 'Messages' });
      await log.evaluate((box) => (box.scrollTop = 0));
      await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
      await service.attempted(sent, 2);
      await first.locator('.attempt').nth(1).waitFor();
      await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))');
      assert.equal(await log.evaluate((box) => box.scrollTop), 0);
    });
  });

  test('does not move when somebody sorts or filters the list beside it', async (t) => {
    const service = await startService(t);
    for (let n = 1; n <= 70; n++) await service.send('room', { content: `number ${n}` });
    await visitor.visit(service.url, { path: '/meetings/room#5' }, async (page) => {
      const fifth = page.getByRole('article', { name: 'Message 5', exact: true });
      await fifth.waitFor();
      await page.getByRole('columnheader').getByRole('button', { name: 'Meeting' }).click();
      await page.waitForURL(/sort=Meeting/);
      assert.equal(new URL(page.url()).hash, '#5');
      await page.getByRole('searchbox', { name: 'Filter by id' }).fill('ro');
      await page.waitForURL(/q=ro/);
      assert.equal(new URL(page.url()).hash, '#5');
      await fifth.waitFor();
    });
  });

  test('says of a message whose deliveries are no longer kept that it went out, and not that no one received it', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
    await service.member(t, 'room', { registration: { instance_id: 'old', instance_name: 'Old laptop' } });
    await service.send('room', { content: 'all gone' });
    await service.send('room', { content: 'one gone' });
    await service.send('room', { content: 'for nobody' }, ['ghost']);
    await visitor.visit(service.url, { path: '/meetings' }, async (page) => {
      // Responds as the service does when a retention is over, which takes a minute at least.
      const isKept = ({ seq, instance_id }: Delivery): boolean => seq === 2 && instance_id === 'box';
      await page.route('**/api/v1/deliveries/?*', async (route) => {
        const response = await route.fetch();
        const list = (await response.json()) as ListOf<Delivery>;
        await route.fulfill({ response, json: { ...list, data: list.data.filter(isKept) } });
      });
      await page.route('**/api/v1/messages/*/*', async (route) => {
        const response = await route.fetch();
        const trace = (await response.json()) as MessageTrace;
        await route.fulfill({ response, json: { ...trace, deliveries: trace.deliveries.filter(isKept) } });
      });
      await follow(page, '/meetings/room');
      const [gone, part, nobody] = [1, 2, 3].map((seq) => page.getByRole('article', { name: `Message ${seq}` }));
      await gone!.getByText('It went to 2 instances. Its deliveries are no longer kept.').waitFor();
      await part!.getByRole('button', { name: /^GPU box/ }).waitFor();
      await part!.getByText('1 more is no longer kept').waitFor();
      await nobody!.getByText('No one received it').waitFor();
      assert.equal(await page.getByText('No one received it').count(), 1);
      for (const [message, listed] of [
        [gone!, 0],
        [part!, 1],
      ] as const) {
        await message.getByRole('button', { name: /^Trace/ }).click();
        const trace = message.getByRole('group', { name: /^Trace/ });
        await trace.getByText('It went to 2 instances. Deliveries that are missing here are no longer kept.').waitFor();
        await trace.getByText(`Not known: only ${listed} of its 2 deliveries are listed.`).waitFor();
        assert.equal(await trace.getByText('would hear it').count(), 0);
      }
    });
  });

  test('says in the trace of a message to 60 machines that all of them got it', async (t) => {
    const service = await startService(t);
    const { url } = await startReceiver(t);
    await crowd(service, url, 'room', 60);
    await service.send('room', { content: 'to all' });
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      await page.getByRole('button', { name: 'Trace message 1' }).click();
      await page.getByText('Every instance of the meeting got it.').waitFor();
      assert.equal(await page.getByText('would hear it').count(), 0);
    });
  });

  test('writes the date beside the time of a message when its day is over', async (t) => {
    const service = await startService(t);
    const sent = await service.send('room', { content: 'late' });
    const [day] = sent.accepted_at.split('T');
    await visitor.visit(service.url, { path: '/meetings', timezoneId: 'UTC' }, async (page) => {
      // A slow machine has a minute to load the page before the day is over.
      await page.clock.install({ time: `${day}T23:59:00Z` });
      await page.goto(`${service.url}/meetings/room`);
      const time = page.getByRole('article').getByRole('time');
      await time.waitFor();
      assert.match(await time.innerText(), /^\d\d:\d\d:\d\d$/);
      await page.clock.runFor(65_000);
      await until(
        'a date',
        () => time.innerText(),
        // On the last day of a year the next day has a year too.
        (words) => /^\d+ [A-Z][a-z]+( \d{4})? \d\d:\d\d:\d\d$/.test(words),
      );
    });
  });

  test('keeps a draft: in another meeting, after a reload, and until the same key signs in again, and says why it asks', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    const key = await service.createKey({ scopes: ['admin'], name: 'mine' });
    for (const meeting_id of ['one', 'two']) await service.send(meeting_id, { content: 'hello' });
    await visitor.visit(service.url, { path: '/meetings/one', allowed: /401/ }, async (page) => {
      const signIn = async (with_token: string): Promise<void> => {
        await page.getByLabel('Key', { exact: true }).fill(with_token);
        await page.getByRole('button', { name: 'Sign in' }).click();
      };
      await signIn(key.token);
      await text(page).fill('not sent yet');
      await page.getByRole('link', { name: 'Open two' }).click();
      await page.getByRole('region', { name: 'Meeting two' }).waitFor();
      assert.equal(await text(page).inputValue(), '');
      await page.goBack();
      await page.getByRole('region', { name: 'Meeting one' }).waitFor();
      assert.equal(await text(page).inputValue(), 'not sent yet');
      await page.reload();
      await text(page).waitFor();
      assert.equal(await text(page).inputValue(), 'not sent yet');

      const { key_id } = key;
      const rotated = await service.post<{ token: string }>(`/api/v1/keys/${key_id}/rotate/`, { overlap_seconds: 0 });
      assert.equal(rotated.status, 200, rotated.text);
      await page
        .getByRole('alert')
        .getByText(/You were signed out/)
        .waitFor();
      await signIn(token);
      await text(page).waitFor();
      assert.equal(await text(page).inputValue(), '');
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByLabel('Key', { exact: true }).waitFor();
      assert.equal(await page.getByRole('alert').count(), 0);
      await signIn(rotated.body.token);
      await text(page).waitFor();
      assert.equal(await text(page).inputValue(), 'not sent yet');

      assert.equal((await service.request('DELETE', `/api/v1/keys/${key_id}/`)).status, 204);
      await page.getByRole('alert').getByText('your key was revoked').waitFor();
      assert.equal(new URL(page.url()).pathname, '/meetings/one');
    });
  });

  test('says nothing to the next person about a message of somebody who has signed out meanwhile', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await service.member(t, 'one');
    await visitor.visit(service.url, { path: '/meetings/one', allowed: /401/ }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await stretchTimers(page);
      await text(page).fill('and bye');
      const { held, release } = await holdBack(page, '**/api/v1/meetings/one/messages/', 'POST');
      await text(page).press('Enter');
      await held;
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByLabel('Key', { exact: true }).waitFor();
      const answered = page.waitForEvent('requestfinished', (request) => request.url().includes('/messages/'));
      release();
      await answered;
      await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
      assert.equal(await page.locator('.notice').count(), 0);
    });
  });

  test('of somebody who signs out says no reason, also to requests under way', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await service.send('one', { content: 'hello' });
    await visitor.visit(service.url, { path: '/meetings/one', allowed: /401/ }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await text(page).waitFor();
      await stretchTimers(page);
      await page.evaluate(`
        globalThis.alerts_seen = [];
        new MutationObserver(() => {
          for (const alert of document.querySelectorAll('[role=alert]')) alerts_seen.push(alert.textContent);
        }).observe(document.body, { childList: true, subtree: true, characterData: true });
      `);

      // The session has ended, the page does not know yet, and one of its requests is refused.
      const { held, release } = await holdBack(page, '**/api/v1/session/');
      await page.getByRole('button', { name: 'Sign out' }).click();
      await held;
      const refused = page.waitForResponse((response) => response.status() === 401);
      await page.getByRole('navigation').getByRole('link', { name: 'Instances' }).click();
      await (await refused).finished();
      release();

      await page.getByLabel('Key', { exact: true }).waitFor();
      const seen = await page.evaluate<string[]>('alerts_seen');
      assert.deepEqual(
        seen.filter((words) => /signed out|asks for a key/.test(words)),
        [],
      );
    });
  });

  test('draws of 2,000 members only those that are looked for, and takes any of their agents as a recipient', async (t) => {
    const service = await startService(t);
    const receiver = await startReceiver(t);
    await crowd(service, receiver.url, 'crowd', 2000);
    await service.send('crowd', { content: 'hello' });
    await visitor.visit(service.url, { path: '/meetings/crowd' }, async (page) => {
      await page.getByText('2,000 instances').waitFor();
      await page.getByRole('article').getByText('of 2000 delivered').waitFor();
      await page.locator('.meeting-members > summary').click();
      await page.getByText('These are the first 50 of 2,000.').waitFor();
      const elements = await page.locator('*').count();
      assert.ok(elements < 3000, `${elements} elements`);
      await page.getByRole('searchbox', { name: 'Filter the members' }).fill('agent-1234');
      await page.getByRole('link', { name: 'Machine 1234' }).waitFor();
      await page.locator('.meeting-members > summary').click();

      const add = composer(page).getByRole('combobox', { name: 'Add an agent' });
      await add.fill('agent-0777');
      await add.press('Enter');
      await add.fill('1999');
      await add.press('Enter');
      await composer(page).getByRole('button', { name: 'agent-1999' }).click();
      await text(page).fill('to one of 2,000');
      await composer(page).getByRole('button', { name: 'Send to 1 agent' }).click();
      await page.getByText('to agent-0777').waitFor();
    });
  });

  test('has 55 agents in one line, and room for the conversation at 200 % zoom', async (t) => {
    const service = await startService(t);
    const receiver = await startReceiver(t);
    await crowd(service, receiver.url, 'zoomed', 55);
    for (let i = 0; i < 20; i++) await service.send('zoomed', { content: `line ${i}` });
    // This is a window of 1440 × 900 that is zoomed to 200 %.
    await visitor.visit(
      service.url,
      { path: '/meetings/zoomed', viewport: { width: 720, height: 450 } },
      async (page) => {
        await composer(page).getByRole('combobox', { name: 'Add an agent' }).waitFor();
        const heightOf = async (locator: ReturnType<Page['locator']>) => (await locator.boundingBox())?.height ?? 0;
        assert.ok((await heightOf(composer(page).getByRole('group', { name: 'To' }))) <= 36);
        const height = await heightOf(page.getByRole('log', { name: 'Messages' }));
        assert.ok(height >= 220, `${height} px`);
        await text(page).fill('still room to write');
        await composer(page).getByRole('button', { name: 'Send to everybody' }).click();
        await page.getByRole('article').getByText('still room to write').waitFor();
      },
    );
  });

  test('folds a long message, and shows all of it on a click', async (t) => {
    const service = await startService(t);
    const lines = Array.from({ length: 400 }, (_, i) => `line ${i}.`);
    await service.send('folded', { content: lines.join('\n') });
    await service.send('folded', { content: 'x'.repeat(5000) });
    await service.send('folded', { content: 'short' });
    await visitor.visit(service.url, { path: '/meetings/folded' }, async (page) => {
      const article = (seq: number) => page.getByRole('article', { name: `Message ${seq}` });
      await article(1).getByText('line 13.').waitFor();
      for (const seq of [1, 2]) {
        const box = await article(seq).boundingBox();
        assert.ok((box?.height ?? Infinity) < 450, `${box?.height} px`);
      }
      assert.equal(await article(1).getByText('line 399.').count(), 0);
      await article(1)
        .getByRole('button', { name: /^Show all/ })
        .click();
      await article(1).getByText('line 399.').waitFor();
      assert.equal(
        await article(3)
          .getByRole('button', { name: /^Show all/ })
          .count(),
        0,
      );
    });
  });

  test('gives the agents of a member and the tag of a speaker their room beside a long name', async (t) => {
    const service = await startService(t);
    const instance_name =
      'A machine with a name that goes on and on, as names do when nobody stops them, or so they say';
    const agent = 'an-agent-whose-name-is-very-long-because-somebody-liked-it-so';
    await service.member(t, 'names', { agent_ids: [agent, 'b'], registration: { instance_id: 'long', instance_name } });
    const { instance_id } = await service.member(t, 'names', { registration: { instance_name: 'A build runner' } });
    await service.request('PATCH', `/api/v1/meetings/names/instances/${instance_id}/`, { body: { wake: 'people' } });
    const message = { message: { content: 'hi' }, from_agent: agent, target_agents: [agent, 'b', 'c', 'd'] };
    await service.post('/api/v1/meetings/names/messages/', message);
    for (const width of [390, 768, 1024, 1440]) {
      await visitor.visit(service.url, { path: '/meetings/names', viewport: { width, height: 900 } }, async (page) => {
        await page.locator('.meeting-members > summary').click();
        const widthOf = async (locator: ReturnType<Page['locator']>) => (await locator.boundingBox())?.width ?? 0;
        const tags = await widthOf(page.locator('.member .tag').getByText(agent));
        assert.ok(tags >= 120, `${tags} px at ${width}`);
        const hidden_px = await page.locator('.meeting-members').evaluate((box) => box.scrollWidth - box.clientWidth);
        assert.equal(hidden_px, 0, `beside the members at ${width}`);
        const tag = page.getByRole('article').getByText('agent', { exact: true });
        const is_whole = await tag.evaluate((element) => element.scrollWidth <= element.clientWidth);
        assert.ok(is_whole, `the tag at ${width}`);
      });
    }
  });

  test('has no link to another host at an address that looks like one', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '//other.example/meetings', allowed: /404/ }, async (page) => {
      await page.getByText('There is no page at this address').waitFor();
      const hosts = await page
        .locator('a')
        .evaluateAll((links) => [...new Set(links.map((link) => (link as unknown as URL).host))]);
      assert.deepEqual(hosts, [new URL(service.url).host]);
    });
  });

  test('is not there at a mistyped address, which says so in words', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/meetngs/standup', allowed: /404/ }, async (page) => {
      await page.getByText('There is no page at this address').waitFor();
      await page.getByRole('link', { name: 'See what happens now' }).click();
      await until(
        'the page Now',
        () => new URL(page.url()).pathname,
        (path) => path === '/now',
      );
    });
  });
});
