/** Lists that change while a person uses them, in a real browser: mouse and keys open the row that the person chose. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { AuditEntry, Counts, Delivery, Page as ListOf, ServiceNode } from '@convoke/sdk';
import type { Page } from 'playwright-core';
import { follow, openRequests, SLOW_FRAMES, useVisitor } from '../support/browser.ts';
import { startReceiver } from '../support/receiver.ts';
import { type Service, startService } from '../support/service.ts';
import { startTwoNodes } from '../support/two_nodes.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const MESSAGES_PER_S = 25;
const CLICKS = 12;
/** How many messages arrive between the choice of a row and the click. */
const MEANWHILE = 20;

/** Sends messages until the test ends, and counts the accepted messages. */
function talk(t: TestContext, service: Service, meeting_id: string): { sent: number } {
  const talk = { sent: 0 };
  const timer = setInterval(() => {
    service.send(meeting_id, { content: 'More' }).then(
      () => talk.sent++,
      () => clearInterval(timer),
    );
  }, 1000 / MESSAGES_PER_S);
  t.after(() => clearInterval(timer));
  return talk;
}

const linkOf = (page: Page, index: number) => page.locator(`[data-row="${index}"] .row-link`);
const hrefOf = async (page: Page, index: number): Promise<string> =>
  (await linkOf(page, index).getAttribute('href')) as string;
const names = (page: Page) => page.locator('.rows-body .row-link').allInnerTexts();
const rest = (page: Page) => page.mouse.move(60, 60);

describe('lists', { concurrency: 2 }, () => {
  test('at 25 messages a second each of 12 clicks opens the delivery that was aimed at', async (t) => {
    const service = await startService(t);
    await service.member(t, 'busy');
    await visitor.visit(service.url, { path: '/deliveries' }, async (page) => {
      const talked = talk(t, service, 'busy');
      const more = (what: string): Promise<number> => {
        const before = talked.sent;
        return until(
          what,
          () => talked.sent,
          (sent) => sent >= before + MEANWHILE,
        );
      };
      await linkOf(page, 10).waitFor();
      const opened: string[] = [];
      const aimed: string[] = [];
      for (let click = 0; click < CLICKS; click++) {
        await rest(page);
        // The control: while nobody points at the list, it moves.
        const first = await hrefOf(page, 0);
        await until(
          'the list to move',
          () => hrefOf(page, 0),
          (href) => href !== first,
        );
        const list = await page.locator('.rows-body').boundingBox();
        assert.ok(list !== null);
        await page.mouse.move(list.x + list.width / 2, list.y + 100);
        // Reads all this in one evaluation, because between two evaluations the list may move.
        const { href, x, y } = await page.locator('.rows-body').evaluate((body, index) => {
          const row = body.querySelector(`[data-row="${index}"]`);
          const { left, top, width, height } = (row ?? body).getBoundingClientRect();
          const href = row?.querySelector('a')?.getAttribute('href') ?? '';
          return { href, x: left + width / 2, y: top + height / 2 };
        }, click % 8);
        aimed.push(href);
        await page.mouse.move(x, y, { steps: 5 });
        await more('more messages while somebody aims');
        await page.mouse.down();
        await page.mouse.up();
        opened.push(
          await until(
            'a delivery to open',
            () => new URL(page.url()).pathname,
            (path) => path !== opened.at(-1) && path !== '/deliveries',
          ),
        );
      }
      assert.deepEqual(opened, aimed);
    });
  });

  test('the latest events of the page Now and the latest deliveries of an instance stay under the pointer too', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'busy');
    await service.settled(await service.send('busy', {}));
    for (const path of ['/now', `/instances/${instance_id}`]) {
      await visitor.visit(service.url, { path }, async (page) => {
        const list = page.locator(path === '/now' ? '.activity' : '.short-list');
        const links = list.getByRole('link');
        const hrefs = () => links.evaluateAll((found) => found.map((link) => link.getAttribute('href')));
        await rest(page);
        await page.getByText('Live', { exact: true }).first().waitFor();
        await links.first().waitFor();
        // The control: while nobody points at the list, it moves.
        const before = (await hrefs()).length;
        await service.send('busy', {});
        await until(
          'the list to move',
          () => hrefs(),
          (found) => found.length > before || path !== '/now',
        );
        await links.first().hover();
        const held = await hrefs();
        const { delivery_id } = (await service.deliveriesOf(await service.send('busy', {})))[0]!;
        if (path === '/now') await page.getByText(/^\d+ new$/).waitFor();
        assert.deepEqual(await hrefs(), held);
        await rest(page);
        await until(
          'it to go on',
          () => hrefs(),
          (found) => found.includes(`/deliveries/${delivery_id}`),
        );
      });
    }
  });

  test('what arrives while a list is held is counted, and shown on a click; a pause holds it without a mouse', async (t) => {
    const service = await startService(t);
    await service.member(t, 'quiet');
    await service.settled(await service.send('quiet', {}));
    await visitor.visit(service.url, { path: '/deliveries' }, async (page) => {
      await linkOf(page, 0).waitFor();
      await rest(page);
      await page.getByRole('button', { name: 'Pause the list' }).click();
      await rest(page);
      const first = await hrefOf(page, 0);
      for (let i = 0; i < 3; i++) await service.send('quiet', {});
      const news = page.getByRole('button', { name: '3 new ↑' });
      await news.waitFor();
      assert.equal(await hrefOf(page, 0), first);
      await news.click();
      await linkOf(page, 3).waitFor();
      assert.equal(await hrefOf(page, 3), first);
      // A row that changes stays in its place and shows the change, also while the list does not move.
      const receiver = await startReceiver(t, { status: 500 });
      await service.register({ instance_id: 'other', webhook_url: receiver.url });
      await service.join('quiet', 'other', ['a']);
      await page.getByRole('button', { name: 'Resume the list' }).click();
      await rest(page);
      await service.send('quiet', {});
      await page.locator('[data-row="5"]').waitFor();
      await page.locator('.rows-body .row').filter({ hasText: 'answered 500' }).waitFor();
    });
  });

  test('a refresh of a filtered list whose row is gone asks for one page, and keeps what was found beyond it', async (t) => {
    const service = await startService(t);
    await service.member(t, 'm', {});
    const sent = await service.send('m', {});
    await service.settled(sent);
    const [row] = await service.deliveriesOf(sent);
    const foundIn = (meeting_id: string, created_at: string) => ({
      ...row,
      delivery_id: meeting_id,
      meeting_id,
      created_at,
      state: 'failed',
      reason: 'exhausted',
    });
    let newest = [foundIn('newer', '2025-06-01T00:00:00.000Z')];
    const asked: number[] = [];
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      // As with ten million rows: each page ends before it is full.
      await page.route('**/api/v1/deliveries/?*', (route) => {
        const cursor = Number(new URL(route.request().url()).searchParams.get('cursor') ?? 0);
        asked.push(cursor);
        const data = [newest, [foundIn('older', '2024-06-01T00:00:00.000Z')]][cursor] ?? [];
        const next_cursor = cursor < 20 ? String(cursor + 1) : null;
        return route.fulfill({ json: { data, next_cursor, searched_to: `${2025 - cursor}-01-01T00:00:00.000Z` } });
      });
      await page.goto(`${service.url}/deliveries?state=failed&instance_id=${row!.instance_id}`);
      const gone = page.getByText('newer', { exact: true });
      await gone.waitFor();
      await page.getByText('Live', { exact: true }).waitFor();
      const kept = page.getByText('older', { exact: true });
      if ((await kept.count()) === 0) await page.getByRole('button', { name: 'Search further' }).click();
      await kept.waitFor();
      newest = [];
      await service.send('m', {});
      await gone.waitFor({ state: 'detached' });
      assert.equal(await kept.count(), 1);
      assert.deepEqual(
        // A list that reads on without end asks for all twenty pages.
        asked.filter((cursor) => cursor > 5),
        [],
      );
    });
  });

  test('an audit log that is searched does not repeat the search by itself', async (t) => {
    const service = await startService(t);
    await service.register({ instance_id: 'box', webhook_url: 'http://127.0.0.1:1/' });
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      let asked = 0;
      const isOfLog = (url: string): boolean => url.includes('/api/v1/audit/');
      page.on('request', (request) => (asked += Number(isOfLog(request.url()))));
      const open = openRequests(page);
      await page.clock.install();
      const readLater = async (path: string): Promise<number> => {
        await page.goto(service.url + path);
        await linkOf(page, 0).waitFor();
        await page.getByText('Live', { exact: true }).waitFor();
        await page.clock.runFor(1_000);
        // A page tries a request again whose response is not there in time.
        await until('the response to the last read', open, (urls) => !urls.some(isOfLog));
        asked = 0;
        await page.clock.runFor(30_000);
        return asked;
      };
      assert.equal(await readLater('/audit?action=instance.register'), 0);
      // The control: a log that is found at once is read again.
      assert.ok((await readLater('/audit')) > 0);
    });
  });

  test('a list that loads its last page when something changes reads itself again, also when more was asked for', async (t) => {
    const service = await startService(t);
    await service.member(t, 'm', {});
    const sent = await service.send('m', {});
    await service.settled(sent);
    const [row] = await service.deliveriesOf(sent);
    let meeting_id = 'before';
    const last = Promise.withResolvers<void>();
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      await page.route('**/api/v1/deliveries/?*', async (route) => {
        const is_first = !new URL(route.request().url()).searchParams.has('cursor');
        if (!is_first) await last.promise;
        const first = { data: [{ ...row, meeting_id }], next_cursor: '1', searched_to: '2026-01-01T00:00:00.000Z' };
        return route.fulfill({ json: is_first ? first : { data: [], next_cursor: null } });
      });
      const more = page.waitForRequest(/deliveries\/\?.*cursor=1/);
      await page.goto(`${service.url}/deliveries?state=delivered&instance_id=${row!.instance_id}`);
      await page.getByText('Live', { exact: true }).waitFor();
      await page.getByText('before', { exact: true }).waitFor();
      await more;
      await page.getByRole('button', { name: 'Search further' }).click();
      meeting_id = 'after';
      // The tab of the list has the connection, so it knows each event before the other tab does.
      const elsewhere = await page.context().newPage();
      await elsewhere.goto(`${service.url}/now`);
      await elsewhere.getByText('Live', { exact: true }).waitFor();
      await service.member(t, 'news');
      await service.send('news', {});
      await elsewhere.locator('.activity').getByText('news').first().waitFor();
      await page.evaluate('new Promise((resolve) => setTimeout(resolve, 1000))');
      last.resolve();
      await page.getByText('after', { exact: true }).waitFor();
    });
  });

  test('meetings keep their order while messages arrive, until somebody sorts them again', async (t) => {
    const service = await startService(t);
    for (const meeting_id of ['first', 'second', 'third']) {
      await service.member(t, meeting_id);
      await service.send(meeting_id, {});
    }
    await visitor.visit(service.url, { path: '/meetings' }, async (page) => {
      await linkOf(page, 2).waitFor();
      await rest(page);
      assert.deepEqual(await names(page), ['Open third', 'Open second', 'Open first']);
      await service.send('first', {});
      await page
        .getByRole('row', { name: /Open first/ })
        .getByRole('cell', { name: '2', exact: true })
        .waitFor();
      assert.deepEqual(await names(page), ['Open third', 'Open second', 'Open first']);
      await page.getByRole('button', { name: 'Sort again' }).click();
      await page.locator('[data-row="0"]', { hasText: 'first' }).waitFor();
      assert.deepEqual(await names(page), ['Open first', 'Open third', 'Open second']);
    });
  });

  test('a list is sorted by the column that one clicks, and the order is part of the address', async (t) => {
    const service = await startService(t);
    for (const [meeting_id, messages] of [
      ['a', 2],
      ['b', 12],
      ['c', 1],
    ] as const) {
      await service.member(t, meeting_id);
      for (let i = 0; i < messages; i++) await service.send(meeting_id, {});
    }
    await visitor.visit(service.url, { path: '/meetings' }, async (page) => {
      const head = page.getByRole('columnheader', { name: 'Messages' });
      const ordered = (expected: string[]) =>
        until(
          'the order',
          () => names(page),
          (found) => found.join() === expected.map((name) => `Open ${name}`).join(),
        );
      await head.getByRole('button').click();
      await ordered(['b', 'a', 'c']);
      assert.equal(await head.getAttribute('aria-sort'), 'descending');
      await page.reload();
      await ordered(['b', 'a', 'c']);
      await head.getByRole('button').click();
      await ordered(['c', 'a', 'b']);
      await head.getByRole('button').click();
      await page.waitForURL(({ search }) => search === '');
    });
  });

  test('nodes are sorted by the column that one clicks, in both directions', async (t) => {
    const [first] = await startTwoNodes(t);
    const { data } = (await first.get<{ data: ServiceNode[] }>('/api/v1/nodes/')).body;
    const sorted = data
      .toSorted((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at))
      .map(({ node_id }) => `Open ${node_id}, up`);
    await visitor.visit(first.url, { path: '/nodes' }, async (page) => {
      const head = page.getByRole('columnheader', { name: 'Started' });
      const ordered = (expected: string[]) =>
        until(
          'the order',
          () => names(page),
          (found) => found.join() === expected.join(),
        );
      await head.getByRole('button').click();
      await ordered(sorted.toReversed());
      assert.equal(await head.getAttribute('aria-sort'), 'descending');
      await head.getByRole('button').click();
      await ordered(sorted);
      assert.equal(await head.getAttribute('aria-sort'), 'ascending');
    });
  });

  test('an address with a node that does not exist says so', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/nodes/none' }, async (page) => {
      await page.getByRole('region', { name: 'Node none' }).getByText('There is no such node').waitFor();
    });
  });

  test('instances that are down or paused are those that Now counts as down or paused', async (t) => {
    const service = await startService(t);
    const { url: webhook_url } = await startReceiver(t, { status: 500 });
    for (const instance_id of ['ill-and-off', 'ill-and-paused', 'ill']) {
      await service.register({ instance_id, instance_name: instance_id, webhook_url });
      // It fails once in each meeting, and is down after five failures.
      for (const meeting_id of ['1', '2', '3', '4', '5']) await service.join(meeting_id, instance_id, ['a']);
    }
    for (const meeting_id of ['1', '2', '3', '4', '5']) await service.send(meeting_id, {});
    await until(
      'all to be down',
      async () => (await service.get<Counts>('/api/v1/counts/')).body.instances,
      ({ down }) => down === 3,
    );
    await service.patch('ill-and-paused', { webhook_enabled: false });
    await service.patch('ill-and-off', { is_active: false });
    await visitor.visit(service.url, { path: '/instances?health=down' }, async (page) => {
      await page.getByText('1 row', { exact: true }).waitFor();
      assert.deepEqual(await names(page), ['Open ill']);
      await page.getByRole('radio', { name: 'All' }).check({ force: true });
      await page.getByText('3 rows', { exact: true }).waitFor();
      await page.getByRole('radio', { name: 'Paused' }).check({ force: true });
      await page.getByText('2 rows', { exact: true }).waitFor();
      assert.deepEqual(await names(page), ['Open ill-and-off', 'Open ill-and-paused']);
      await page.goto(`${service.url}/now`);
      await page.getByRole('link', { name: '2 paused' }).click();
      await page.getByText('2 rows', { exact: true }).waitFor();
    });
  });

  test('deliveries and the audit log are sorted by the column that one clicks, and the head says among how many rows', async (t) => {
    const service = await startService(t);
    for (const instance_id of ['beta', 'alpha', 'gamma']) {
      await service.member(t, 'room', { registration: { instance_id, instance_name: instance_id } });
    }
    await service.send('room', { content: 'hello' });
    const cells = (page: Page, at: number) =>
      page.locator(`.rows-body .row [role=cell]:nth-child(${at})`).allInnerTexts();
    const ordered = (page: Page, at: number, expected: string) =>
      until(
        `the order ${expected}`,
        async () => (await cells(page, at)).join(),
        (found) => found === expected,
      );
    await visitor.visit(service.url, { path: '/deliveries' }, async (page) => {
      await page.getByRole('button', { name: 'Instance', exact: true }).click();
      await ordered(page, 2, 'alpha,beta,gamma');
      await page.getByRole('button', { name: 'Instance', exact: true }).click();
      await ordered(page, 2, 'gamma,beta,alpha');
      for (const head of ['State', 'Meeting', 'Attempts', 'Took', 'Sent']) {
        const title = await page.getByRole('button', { name: head, exact: true }).getAttribute('title');
        assert.equal(title, `Sort by ${head}`);
      }
      await page.goto(`${service.url}/audit?action=instance.register`);
      await page.getByRole('button', { name: 'What', exact: true }).click();
      await ordered(page, 2, 'alpha,beta,gamma');
    });
  });

  test('a search is sorted among the rows that it has found, and is not continued for it', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room');
    // Sends more messages than the first page of a list has.
    for (let n = 0; n < 120; n++) await service.send('room', { content: 'hello' });
    await visitor.visit(service.url, { path: '/deliveries?text=hello' }, async (page) => {
      await page.getByRole('button', { name: 'Sent', exact: true }).click();
      await page.getByText('sorted among themselves').waitFor();
      const title = await page.getByRole('button', { name: 'Sent', exact: true }).getAttribute('title');
      assert.equal(title, 'Sort the first 100 rows by Sent');
    });
  });

  test('the deliveries of an agent with two hosts are a search, which is not made again with every event', async (t) => {
    const service = await startService(t);
    const host = (instance_name: string) =>
      service.register({ instance_name, agent_ids: ['ben'], webhook_url: 'http://127.0.0.1:1/' });
    await host('first');
    await host('second');
    await visitor.visit(service.url, {}, async (page) => {
      // The page also reads from time to time.
      await page.evaluate('window.setInterval = () => 0');
      let searched = 0;
      page.on('request', (request) => (searched += Number(request.url().includes('/deliveries/?agent_id=ben'))));
      await page.getByText('Live', { exact: true }).waitFor();
      await follow(page, '/agents/ben');
      await page.getByText('No deliveries yet').waitFor();
      // The page reads its hosts again after the same event.
      for (const name of ['third', 'fourth']) {
        await host(name);
        await page.getByRole('region', { name: `Hosted by ${name}` }).waitFor();
      }
      assert.equal(searched, 1);
    });
  });

  test('a list whose next page fails goes on when the service has responded again', async (t) => {
    const service = await startService(t);
    const { instance_id, receiver } = await service.member(t, 'room');
    // More messages and entries than the first page of a list has.
    for (let n = 0; n < 120; n++) await service.settled(await service.send('room', { content: 'hello' }));
    for (let n = 0; n < 110; n++) await service.patch(instance_id, { instance_name: `Box ${n}` });
    await visitor.visit(service.url, { path: '/meetings', allowed: /500/ }, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      const next = /\/api\/v1\/(deliveries|audit)\/\?.*cursor=/;
      const problem = { code: 'internal_error', detail: 'The cause is in the log.' };
      const exact = { exact: true };
      const fail = async (): Promise<void> => {
        receiver.behaviour = { status: 500 };
        await service.send('room', { content: 'hello' });
      };
      for (const [path, there, change] of [
        ['/deliveries', page.getByText('120 rows', exact), () => service.patch(instance_id, { timeout_s: 6 })],
        ['/audit/1', page.getByRole('region', { name: 'Entry 1', ...exact }).getByText('Hash before', exact), fail],
      ] as const) {
        await page.route(next, (route) => route.fulfill({ status: 500, json: problem }));
        await follow(page, path);
        await linkOf(page, 0).waitFor();
        await page.keyboard.press('End');
        await page.getByText('The cause is in the log.').first().waitFor();
        await page.unroute(next);
        // The page reads the list again after this, and finds no further row in it.
        await change();
        await there.waitFor();
      }
    });
  });

  test('a list that could not be read again is read again without an event, and on a click', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'room');
    await visitor.visit(service.url, { path: '/instances', allowed: /50[02]/ }, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      await linkOf(page, 0).waitFor();
      const instances = '**/api/v1/instances/?*';
      const rename = (instance_name: string) => service.patch(instance_id, { instance_name });
      const problem = page.locator('.list-foot').getByRole('alert');
      await page.route(instances, (route) => route.fulfill({ status: 502, body: 'Bad Gateway' }));
      await rename('Second');
      await problem.getByText('The service does not respond').waitFor();
      await page.unroute(instances);
      await page.getByRole('row', { name: 'Second' }).waitFor();
      await problem.waitFor({ state: 'detached' });

      const failure = { code: 'internal_error', detail: 'The cause is in the log.' };
      await page.route(instances, (route) => route.fulfill({ status: 500, json: failure }));
      await rename('Third');
      await problem.getByText('The cause is in the log.').waitFor();
      await page.unroute(instances);
      await page.getByRole('button', { name: 'Try again' }).click();
      await page.getByRole('row', { name: 'Third' }).waitFor();
    });
  });

  test('the filters by time show the whole time, also where it has AM or PM', async (t) => {
    const service = await startService(t);
    const path = '/deliveries?since=2026-11-26T22:45:00.000Z';
    await visitor.visit(service.url, { path, locale: 'en-US' }, async (page) => {
      const field = page.getByLabel('Sent at or after');
      await field.waitFor();
      const widths = await field.evaluate((input) => {
        const { width } = input.getBoundingClientRect();
        input.style.width = 'max-content';
        return [width, input.getBoundingClientRect().width];
      });
      assert.ok(widths[0]! >= widths[1]!, widths.join(' of '));
    });
  });

  test('a list whose next page is empty is searched further on a click, from where the last page ended', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'room', { behaviour: { status: 202 } });
    for (let n = 1; n <= 3; n++) await service.attempted(await service.send('room', { n }));
    const { data } = (await service.get<ListOf<Delivery>>(`/api/v1/deliveries/?instance_id=${instance_id}`)).body;
    const searched_to = data.at(-1)!.created_at;
    /** The pages by their cursor: between the first two rows and the last row are many rows of other states. */
    const pages: Record<string, object> = {
      first: { data: data.slice(0, 2), next_cursor: 'second' },
      second: { data: [], next_cursor: 'third', searched_to },
      third: { data: [], next_cursor: 'fourth', searched_to },
      fourth: { data: data.slice(2), next_cursor: null },
    };
    await visitor.visit(service.url, {}, async (page) => {
      const asked: string[] = [];
      await page.route('**/api/v1/deliveries/?*', async (route) => {
        const cursor = new URL(route.request().url()).searchParams.get('cursor') ?? 'first';
        await route.fulfill({ json: pages[cursor] });
        asked.push(cursor);
      });
      const askedFor = (cursor: string, times: number): Promise<unknown> =>
        until(
          `request ${times} for the page ${cursor}`,
          () => asked.filter((each) => each === cursor).length,
          (count) => count >= times,
        );
      await page.goto(`${service.url}/deliveries?state=failed`);
      await linkOf(page, 1).waitFor();
      const further = page.getByRole('button', { name: 'Search further' });
      await page.getByText(/^Searched back to/).waitFor();
      await further.click();
      await askedFor('third', 1);
      // An event makes the page read the list again from its beginning.
      const read = asked.filter((each) => each === 'first').length;
      await service.send('room', { n: 4 });
      await askedFor('first', read + 1);
      await further.click();
      await linkOf(page, 2).waitFor();
      await further.waitFor({ state: 'detached' });
      assert.deepEqual(
        asked.filter((each) => each !== 'first'),
        ['second', 'third', 'fourth'],
      );
    });
  });

  test('the audit log says how far it was searched, and looks behind empty pages for the entry in the address', async (t) => {
    const service = await startService(t);
    await service.register({ webhook_url: 'http://127.0.0.1:9/' });
    const { data } = (await service.get<ListOf<AuditEntry>>('/api/v1/audit/?action=instance.register')).body;
    /** The pages by their cursor: many entries of other actions are before the only one. */
    const pages: Record<string, object> = {
      first: { data: [], next_cursor: 'second', searched_to: '2026-01-02T00:00:00.000Z' },
      second: { data: [], next_cursor: 'third', searched_to: '2026-01-01T00:00:00.000Z' },
      third: { data, next_cursor: null },
    };
    await visitor.visit(service.url, {}, async (page) => {
      await page.route('**/api/v1/audit/?*', (route) => {
        const cursor = new URL(route.request().url()).searchParams.get('cursor') ?? 'first';
        return route.fulfill({ json: pages[cursor] });
      });
      const query = '?action=instance.register';
      await page.goto(`${service.url}/audit${query}`);
      const further = page.getByRole('button', { name: 'Search further' });
      await further.waitFor();
      assert.equal(await page.getByText('No entries match').count(), 0);
      await page.goto(`${service.url}/audit/${data[0]!.seq}${query}`);
      await page
        .getByRole('region', { name: `Entry ${data[0]!.seq}`, exact: true })
        .getByText('Hash before', { exact: true })
        .waitFor();
      await further.waitFor({ state: 'detached' });
    });
  });

  test('a search for instances or meetings that ends early says how far it came, and searches further on a click', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'room');
    for (const [list, id] of [
      ['instances', instance_id],
      ['meetings', 'room'],
    ] as const) {
      const { data } = (await service.get<ListOf<object>>(`/api/v1/${list}/`)).body;
      /** The pages by their cursor: many rows that do not match are before and after the only one that does. */
      const pages: Record<string, object> = {
        first: { data: [], next_cursor: 'second', searched_to: 'a<b' },
        second: { data, next_cursor: 'third', searched_to: 'sz' },
        third: { data: [], next_cursor: null },
      };
      await visitor.visit(service.url, {}, async (page) => {
        const asked: string[] = [];
        await page.route(`**/api/v1/${list}/?*`, async (route) => {
          const cursor = new URL(route.request().url()).searchParams.get('cursor') ?? 'first';
          asked.push(cursor);
          await route.fulfill({ json: pages[cursor] });
        });
        await page.goto(`${service.url}/${list}?q=o`);
        const further = page.getByRole('button', { name: 'Search further' });
        await page.getByText('Searched up to the id a<b.').waitFor();
        assert.equal(await page.getByText(/match$/).count(), 0);
        await further.click();
        await linkOf(page, 0).waitFor();
        assert.match((await linkOf(page, 0).getAttribute('href')) ?? '', new RegExp(id));
        await further.waitFor({ state: 'detached' });
        assert.deepEqual([...new Set(asked)], ['first', 'second', 'third']);
      });
    }
  });

  test('the keys work as soon as a view is there, before the page has drawn a frame', async (t) => {
    const service = await startService(t);
    await service.member(t, 'keys', { registration: { instance_id: 'alpha' } });
    await visitor.visit(service.url, { path: '/favicon.svg' }, async (page) => {
      await page.addInitScript(SLOW_FRAMES);
      await page.goto(`${service.url}/instances`);
      await page.getByRole('heading', { name: 'Instances', exact: true }).waitFor();
      await page.keyboard.press('?');
      assert.equal(await page.getByRole('dialog', { name: 'Keyboard' }).count(), 1);
      await page.keyboard.press('Escape');
      await linkOf(page, 0).waitFor();
      await page.keyboard.press('j');
      await page.keyboard.press('Enter');
      const item = page.getByRole('region', { name: 'Instance alpha' });
      await item.waitFor();
      assert.equal(await item.evaluate((section) => section === section.ownerDocument.activeElement), true);
    });
  });

  test('a focus that moves as a dialog closes stays where it is', async (t) => {
    const service = await startService(t);
    await service.member(t, 'keys', { registration: { instance_id: 'alpha' } });
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      await linkOf(page, 0).waitFor();
      await page.keyboard.press('?');
      const dialog = page.getByRole('dialog', { name: 'Keyboard' });
      await dialog.waitFor();
      // The browser closes the dialog at once, and says so a frame later.
      await page.evaluate(
        `document.querySelector('dialog[open]').close(), document.querySelector('main a[href*="/instances/"]').focus()`,
      );
      await dialog.waitFor({ state: 'detached' });
      assert.equal(await linkOf(page, 0).evaluate((link) => link === link.ownerDocument.activeElement), true);
    });
  });

  test('j, k, the arrows and Enter work after a load, after g i and after leaving the filter; the actions are two Tabs from the row', async (t) => {
    const service = await startService(t);
    for (const instance_id of ['alpha', 'beta', 'gamma']) {
      await service.member(t, 'keys', { registration: { instance_id, instance_name: instance_id } });
    }
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      const { keyboard } = page;
      const focused = (index: number) => page.locator(`[data-row="${index}"] .row-link:focus`).waitFor();
      const opened = (id: string) => page.getByRole('region', { name: `Instance ${id}` }).waitFor();
      await linkOf(page, 2).waitFor();
      await keyboard.press('j');
      await focused(0);
      await keyboard.press('ArrowDown');
      await focused(1);
      await keyboard.press('k');
      await focused(0);
      await keyboard.press('j');
      await keyboard.press('Enter');
      await opened('beta');
      await page.getByRole('button', { name: 'Test the webhook' }).waitFor();
      await keyboard.press('Tab');
      await keyboard.press('Tab');
      assert.equal(
        await page.getByRole('button', { name: 'Test the webhook' }).evaluate((button) => button.matches(':focus')),
        true,
      );
      await keyboard.press('Escape');
      await focused(1);
      // Opens the list from another view with a click, so that no element has the focus.
      await page.getByRole('link', { name: 'Deliveries', exact: true }).click();
      await page.getByRole('heading', { name: 'Deliveries', level: 1 }).waitFor();
      await keyboard.type('gi');
      await linkOf(page, 2).waitFor();
      await keyboard.press('ArrowDown');
      await focused(0);
      await keyboard.press('/');
      await keyboard.type('a');
      await keyboard.press('Escape');
      await linkOf(page, 2).waitFor();
      await keyboard.press('Enter');
      await opened('alpha');
    });
  });
});
