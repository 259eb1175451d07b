/** The page of a meeting with thousands of messages, in a real browser. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Counts } from '@convoke/sdk';
import type { Page } from 'playwright-core';
import { follow, openRequests, useVisitor } from '../support/browser.ts';
import { leastCost } from '../support/least_cost.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

/** How many messages the service takes in one request, at most. */
const BATCH = 500;
/** The page keeps at most this many messages, however long the meeting is. */
const KEPT_MAX = 150;

/** Sends `line 1`, `line 2` and so on. */
async function say(service: Service, meeting_id: string, count: number, from = 1): Promise<void> {
  for (let sent = 0; sent < count; sent += BATCH) {
    const messages = Array.from({ length: Math.min(BATCH, count - sent) }, (_, i) => ({
      meeting_id,
      message: { content: `line ${from + sent + i}` },
    }));
    const answer = await service.post('/api/v1/messages/', { messages });
    assert.equal(answer.status, 200, answer.text);
  }
}

const message = (page: Page, seq: number) => page.getByRole('article', { name: `Message ${seq}`, exact: true });

const log = (page: Page) => page.getByRole('log', { name: 'Messages' });

/** The seqs of the messages in the document. */
const drawn = (page: Page) =>
  log(page)
    .getByRole('article')
    .evaluateAll((articles) => articles.map((article) => Number(article.getAttribute('data-seq'))));

/** Scrolls to the first or the last message in the document. */
const scrollTo = (page: Page, end: 'top' | 'bottom') =>
  log(page).evaluate((box, top) => box.scrollTo(0, top ? -box.scrollHeight : 0), end === 'top');

/** The first visible message, and how far below the top of the log it begins, in pixels. */
const rowsInView = (page: Page) =>
  log(page).evaluate((box) => {
    const { top } = box.getBoundingClientRect();
    const article = [...box.querySelectorAll('article')].find((each) => each.getBoundingClientRect().bottom > top);
    return { seq: Number(article?.getAttribute('data-seq')), px: (article?.getBoundingClientRect().top ?? 0) - top };
  });

describe("a meeting's page", { concurrency: 2 }, () => {
  test('holds a bounded part of a live meeting, and follows its end', async (t) => {
    const service = await startService(t);
    for (const agent of ['anna', 'ben', 'cora']) await service.member(t, 'live', { agent_ids: [agent] });
    await say(service, 'live', 500);
    await visitor.visit(service.url, { path: '/meetings/live' }, async (page) => {
      await message(page, 500).waitFor();
      const nodes = async (): Promise<number> => page.locator('*').count();
      let most = 0;
      for (let seq = 501; seq <= 900; seq += 40) {
        await say(service, 'live', 40, seq);
        await message(page, seq + 39).waitFor();
        most = Math.max(most, await nodes());
      }
      const seqs = await drawn(page);
      assert.deepEqual(
        seqs,
        Array.from({ length: KEPT_MAX }, (_, i) => 900 - KEPT_MAX + 1 + i),
      );
      for (const seq of [800, 900])
        await message(page, seq)
          .getByRole('button', { name: /delivered/ })
          .nth(2)
          .waitFor();
      const each = await message(page, 800).evaluate((article) => article.querySelectorAll('*').length);
      const others = (await nodes()) - seqs.length * each;
      assert.ok(most < others * 2 + KEPT_MAX * each * 1.5, `${most} nodes`);
    });
  });

  test('does not move by a pixel while one reads further up, whatever is sent; then the end is a click away', async (t) => {
    const service = await startService(t);
    const { receiver } = await service.member(t, 'busy', { agent_ids: ['anna'] });
    await say(service, 'busy', 400);
    await receiver.count(400);
    await visitor.visit(service.url, { path: '/meetings/busy' }, async (page) => {
      await message(page, 400).waitFor();
      await scrollTo(page, 'top');
      await until(
        'earlier messages',
        () => drawn(page),
        (seqs) => seqs[0]! <= 301,
      );
      const before = await rowsInView(page);
      for (let seq = 401; seq <= 700; seq += 50) {
        await say(service, 'busy', 50, seq);
        await page.getByRole('button', { name: `${seq + 49 - (await drawn(page)).at(-1)!} newer messages` }).waitFor();
        assert.deepEqual(await rowsInView(page), before);
      }
      assert.ok((await drawn(page)).length <= KEPT_MAX);
      await page.getByRole('button', { name: /newer messages/ }).click();
      await message(page, 700).waitFor();
      await service.send('busy', { content: 'followed again' });
      await page.getByText('followed again').waitFor();
    });
  });

  test('scrolls from the end to the first message and back, with marks on every one, and what is read stays in place', async (t) => {
    const service = await startService(t);
    const { receiver } = await service.member(t, 'long', {
      agent_ids: ['anna'],
      registration: { instance_name: 'Laptop' },
    });
    await say(service, 'long', 1200);
    await receiver.count(1200);
    await visitor.visit(service.url, { path: '/meetings/long' }, async (page) => {
      // A request for all deliveries of a meeting would make the service read all of them.
      const boundless: string[] = [];
      page.on('request', (request) => {
        const { pathname, searchParams } = new URL(request.url());
        const is_of_meeting = pathname === '/api/v1/deliveries/' && searchParams.has('meeting_id');
        if (is_of_meeting && !searchParams.has('after_seq')) boundless.push(request.url());
      });
      await page.reload();
      await message(page, 1200).waitFor();
      for (let first = (await drawn(page))[0]!; first > 1;) {
        await scrollTo(page, 'top');
        const before = await rowsInView(page);
        await until(
          `messages before ${first}`,
          async () => (await drawn(page))[0]!,
          (now) => now < first,
        );
        const now = await message(page, before.seq).evaluate((article) => {
          const box = article.closest('[role=log]')!;
          return article.getBoundingClientRect().top - box.getBoundingClientRect().top;
        });
        if (before.px <= 0) assert.equal(now, before.px);
        const seqs = await drawn(page);
        assert.ok(seqs.length <= KEPT_MAX);
        first = seqs[0]!;
      }
      await message(page, 1).getByRole('button', { name: 'Laptop : delivered' }).waitFor();
      for (let last = (await drawn(page)).at(-1)!; last < 1200;) {
        await scrollTo(page, 'bottom');
        await until(
          `messages after ${last}`,
          async () => (await drawn(page)).at(-1)!,
          (now) => now > last,
        );
        last = (await drawn(page)).at(-1)!;
      }
      await message(page, 1200).getByRole('button', { name: 'Laptop : delivered' }).waitFor();
      assert.deepEqual(boundless, []);
    });
  });

  test('has an address for each message, and opens there', async (t) => {
    const service = await startService(t);
    await service.member(t, 'far', { agent_ids: ['anna'], registration: { instance_name: 'Laptop' } });
    await say(service, 'far', 2000);
    const hasFocus = (page: Page, seq: number) =>
      until(
        `message ${seq} to have the focus`,
        () => message(page, seq).evaluate((article) => article.ownerDocument.activeElement === article),
        (has) => has,
      );
    await visitor.visit(service.url, { path: '/meetings/far#777' }, async (page) => {
      await hasFocus(page, 777);
      await message(page, 777).getByRole('button', { name: 'Laptop : delivered' }).waitFor();
      await message(page, 775).getByRole('link', { name: '#775' }).click();
      await hasFocus(page, 775);
      assert.equal(new URL(page.url()).hash, '#775');
      await page.goBack();
      await hasFocus(page, 777);
      await page.getByRole('button', { name: /newer messages/ }).click();
      await message(page, 2000).waitFor();
      assert.equal(new URL(page.url()).hash, '');
      await page.goto(`${service.url}/meetings/far#5000`);
      await page.getByText('Message #5000 is not here').waitFor();
    });
  });

  test('has its messages without a hole after somebody jumps and scrolls while the line is slow', async (t) => {
    const service = await startService(t);
    await say(service, 'far', 500);
    await visitor.visit(service.url, { path: '/meetings/far' }, async (page) => {
      const open = openRequests(page);
      const isQuiet = () =>
        until(
          'all responses',
          () => open().filter((url) => url.includes('/api/v1/') && !url.includes('/events/')),
          (urls) => urls.length === 0,
        );
      await message(page, 500).waitFor();
      await isQuiet();
      const released = Promise.withResolvers<void>();
      // Only the read of the jump: a late event can still make the page read the end of the meeting again.
      const jump = /far\/messages\/\?.*before_seq=11&/;
      await page.route(jump, async (route) => {
        await released.promise;
        await route.continue();
      });
      const asked = page.waitForRequest(jump);
      await follow(page, '/meetings/far#10');
      await asked;
      // Wants the messages before those that are shown, which the jump is about to replace.
      await scrollTo(page, 'top');
      await page.evaluate('new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))');
      const grown = page.waitForResponse(/far\/messages\/\?.*before_seq=.*limit=50/);
      released.resolve();
      await message(page, 10).waitFor();
      // The messages that come before those of the jump.
      assert.equal(new URL((await grown).url()).searchParams.get('before_seq'), '1');
      await (await grown).finished();
      await isQuiet();
      const seqs = await drawn(page);
      assert.deepEqual(
        seqs,
        Array.from(seqs, (_, i) => seqs[0]! + i),
      );
    });
  });

  test('opens on a line that is too slow for a page of large messages: it asks for fewer', async (t) => {
    const service = await startService(t);
    await say(service, 'large', 60);
    await visitor.visit(service.url, { path: '/meetings', allowed: /ERR_FAILED/ }, async (page) => {
      // The test can let time pass at once.
      await page.clock.install();
      await page.goto(`${service.url}/meetings`);
      await page.getByText('Live', { exact: true }).waitFor();
      const limits: number[] = [];
      await page.route('**/large/messages/?*', async (route) => {
        const limit = Number(new URL(route.request().url()).searchParams.get('limit'));
        limits.push(limit);
        // No response arrives whole within the timeout.
        if (limit <= 10) await route.continue();
      });
      await follow(page, '/meetings/large');
      await until(
        'a request',
        () => limits.length,
        (count) => count === 1,
      );
      await page.clock.runFor(10_000);
      await message(page, 60).waitFor();
      assert.deepEqual([limits.slice(0, 2), (await drawn(page)).length], [[50, 10], 10]);
    });
  });

  test('shows the JSON of a message as it was sent, to the digit', async (t) => {
    const service = await startService(t);
    await service.sendText(
      'digits',
      '{"content":"numbers","n":12345678901234567890,"price":1.10,"list":[],"b":{"a":1}}',
    );
    await service.sendText('digits', '{"n":1.0}');
    await visitor.visit(service.url, { path: '/meetings/digits' }, async (page) => {
      await message(page, 1).getByRole('button', { name: 'JSON' }).click();
      assert.equal(
        await page.getByLabel('Message 1 as JSON').innerText(),
        '{\n  "content": "numbers",\n  "n": 12345678901234567890,\n  "price": 1.10,\n  "list": [],\n  "b": {\n    "a": 1\n  }\n}',
      );
      assert.equal(await page.getByLabel('Message 2 as JSON').innerText(), '{\n  "n": 1.0\n}');
    });
  });

  test('a keystroke in the composer costs the same in a meeting of 20,000 messages as in one of 300', async (t) => {
    const service = await startService(t);
    // The messages before the last 300 have no deliveries, because a slow machine would take minutes for them.
    await say(service, 'long', 19_700);
    for (const [meeting_id, from] of [
      ['long', 19_701],
      ['short', 1],
    ] as const) {
      for (const agent of ['anna', 'ben']) await service.member(t, meeting_id, { agent_ids: [agent] });
      await say(service, meeting_id, 300, from);
    }
    // Each delivery that ends is an event, and the page does work for each event.
    await until(
      'all deliveries to end',
      async () => (await service.get<Counts>('/api/v1/counts/')).body.deliveries.pending,
      (pending) => pending === 0,
    );
    /** How many functions a keystroke and a new message call. Counts do not depend on the speed of the machine. */
    const costOf = async (
      meeting_id: string,
      seq: number,
      most: number,
    ): Promise<{ keystroke: number; arrival: number }> => {
      let cost = { keystroke: 0, arrival: 0 };
      await visitor.visit(service.url, { path: `/meetings/${meeting_id}` }, async (page) => {
        const field = page.getByRole('textbox', { name: 'Message', exact: true });
        await field.fill('A');
        await message(page, seq - 1).waitFor();
        const profiler = await page.context().newCDPSession(page);
        await profiler.send('Profiler.enable');
        await profiler.send('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
        const calls = async (): Promise<number> => {
          const { result } = await profiler.send('Profiler.takePreciseCoverage');
          const functions = result
            .filter(({ url }) => url.startsWith(service.url))
            .flatMap((script) => script.functions);
          return functions.reduce((sum, { ranges }) => sum + (ranges[0]?.count ?? 0), 0);
        };
        /** Types a letter, and waits until it is drawn, in one evaluation: so nothing else can happen in between. */
        const type = () =>
          field.evaluate(async (element) => {
            (element as unknown as { value: string }).value += 'x';
            element.dispatchEvent(new Event('input', { bubbles: true }));
            for (let i = 0; i < 20; i++) await Promise.resolve();
          });
        // Other work of the page only adds calls, so the smallest figure is the cost of the keystroke. After the last
        // message the page still loads other parts, so the test waits until it makes no calls.
        const keystroke = await leastCost(most, async () => {
          await until('the page to do nothing', calls, (count) => count === 0);
          await type();
          return calls();
        });
        await say(service, meeting_id, 1, seq);
        // The marks of a message arrive after it, and a slow response would bring them after the count.
        await message(page, seq)
          .getByRole('button', { name: /delivered/ })
          .nth(1)
          .waitFor();
        cost = { keystroke, arrival: await calls() };
      });
      return cost;
    };
    const short = await costOf('short', 301, 0);
    const long = await costOf('long', 20_001, 1.5 * short.keystroke);
    assert.ok(long.keystroke > 0, 'the letter is drawn');
    assert.ok(
      long.keystroke <= 1.5 * short.keystroke,
      `${long.keystroke} calls, and ${short.keystroke} in a short meeting`,
    );
    // The control: an event that draws the messages again costs many times as much.
    assert.ok(long.arrival > 10 * long.keystroke, `${long.arrival} calls when a message arrives`);
  });
});
