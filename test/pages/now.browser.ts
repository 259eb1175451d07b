/** The page Now in a real browser: its charts, the machines that fail, and the cost of a tab that nobody uses. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Counts, ServiceHistory } from '@convoke/sdk';
import type { Page, Response } from 'playwright-core';
import { seriousIn } from '../support/axe.ts';
import { useVisitor } from '../support/browser.ts';
import { startReceiver } from '../support/receiver.ts';
import { startService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const chart = (page: Page, name: string) => page.getByRole('region', { name });
const legend = (page: Page, name: string, line: string) =>
  chart(page, name)
    .locator('.legend > div', { has: page.getByText(line, { exact: true }) })
    .locator('dd');

/** Moves the pointer over a chart, from right to left, until its legend has shown a value above 0 for each line. */
async function pointed(page: Page, name: string, lines: readonly string[]): Promise<void> {
  const plot = chart(page, name).locator('.u-over');
  await plot.hover();
  const { x: left, y, width } = (await plot.boundingBox())!;
  const missing = new Set(lines);
  const entries = chart(page, name).locator('.legend > div');
  // Moves pixel by pixel, because a chart of five minutes has as many points as pixels. Each pixel takes few calls of
  // the browser: on a slow machine the chart would move on faster than the pointer.
  for (let x = width - 1; x > 0 && missing.size > 0; x--) {
    await page.mouse.move(left + x, y + 20);
    for (const entry of await entries.allInnerTexts()) {
      const [, line = '', value] = /^(.+?)\s+(\S+)$/.exec(entry.trim()) ?? [];
      if (Number(value) > 0) missing.delete(line);
    }
  }
  assert.deepEqual([...missing], [], 'lines that are 0 everywhere');
}

const isDuration = (text: string): boolean => / (ms|s)$/.test(text);

describe('the page Now', { concurrency: 2 }, () => {
  test('draws what happened before it was opened: 5 minutes, an hour and a day, with attempts that failed', async (t) => {
    const clock = new SetClock();
    const service = await startService(t, {}, clock);
    await service.member(t, 'm');
    const ill = await service.member(t, 'm', { behaviour: { status: 500 } });
    for (let i = 0; i < 20; i++) await service.send('m', { i });
    await ill.receiver.count(1);
    const sum = (counts: readonly number[]): number => counts.reduce((all, each) => all + each, 0);
    await until(
      'the service to have counted it',
      async () => (await service.get<ServiceHistory>('/api/v1/history/')).body,
      ({ delivered, failed_attempts }) => sum(delivered) >= 20 && sum(failed_attempts) >= 1,
    );
    // Sets the clock ahead, because the history of a day shows a minute only after its end.
    clock.jump(61_000);
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      for (const span of ['5 min', '1 h', '24 h']) {
        await page.getByRole('radio', { name: span }).check({ force: true });
        const p50 = legend(page, 'Latency, from acceptance to delivery', 'p50');
        await until(`a latency of ${span}`, () => p50.innerText(), isDuration);
        // On the chart of a day all this is newer than the last point, so the legend cannot show it.
        if (span !== '24 h') await pointed(page, 'Throughput per second', ['accepted', 'delivered', 'failed attempts']);
      }
    });
  });

  test('a line has a gap, and no zeros, where the service was not there', async (t) => {
    const service = await startService(t, { port: '0' });
    await service.member(t, 'm');
    await service.send('m', {});
    await visitor.visit(service.url, { path: '/now', allowed: /./ }, async (page) => {
      const accepted = legend(page, 'Throughput per second', 'accepted');
      await until(
        'the first second',
        () => accepted.innerText(),
        (text) => text !== '–',
      );
      await page.route('**/api/v1/history/**', (route) => route.abort());
      const over = chart(page, 'Throughput per second').locator('.u-over');
      const { width } = (await over.boundingBox())!;
      await until(
        'a gap at the right end',
        async () => {
          await over.hover({ position: { x: width / 2, y: 20 } });
          await over.hover({ position: { x: width - 1, y: 20 } });
          return accepted.innerText();
        },
        (text) => text === '–',
      );
    });
  });

  test('says how many machines fail and why, what waits first, and shows the rest on demand', async (t) => {
    const service = await startService(t);
    const { url: ill } = await startReceiver(t, { status: 500, body: 'out of\nGPU memory' });
    const { url: other } = await startReceiver(t, { status: 500, body: 'disk full' });
    const of = async (webhook_url: string, count: number, prefix: string): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const instance_id = `${prefix}-${i}`;
        await service.register({ instance_id, instance_name: instance_id, webhook_url });
        await service.join('m', instance_id, ['a']);
      }
    };
    await of(ill, 49, 'ill');
    await of(other, 1, 'full');
    await of('http://127.0.0.1:1/', 11, 'refusing');
    await service.join('waiting', 'refusing-7', ['a']);
    await service.join('more', 'ill-0', ['a']);
    await service.send('m', {});
    for (let i = 0; i < 3; i++) await service.send('waiting', { i });
    await service.send('more', {});
    await service.member(t, 'well');
    await service.send('well', {});
    await service.register({ instance_id: 'off', webhook_url: 'http://127.0.0.1:1/' });
    await service.patch('off', { is_active: false });
    await until(
      'everything to be tried',
      async () => (await service.get<Counts>('/api/v1/counts/')).body.instances,
      ({ failing, down, up }) => failing + down === 61 && up === 1,
    );
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      const panel = page.getByRole('region', { name: 'Instances', exact: true });
      await panel.getByText('30 of 61 shown').waitFor();
      await panel.getByRole('heading', { name: '50 machines: answered 500' }).waitFor();
      await panel.getByRole('heading', { name: '11 machines: connection refused' }).waitFor();
      await panel.getByText('1 paused').waitFor();
      const answers = panel.getByRole('region', { name: '50 machines: answered 500' }).locator('.answer');
      assert.equal(await answers.first().innerText(), 'One answer: out of GPU memory', 'one example of the group');
      const links = panel.locator('.failures a');
      assert.equal(await links.count(), 30);
      const refusing = panel.getByRole('region', { name: /^11 machines/ }).locator('.failures a');
      assert.equal(await refusing.first().innerText(), 'refusing-7', 'four wait for it, and one for each other');
      await panel.getByRole('button', { name: 'Show 31 more' }).click();
      await panel.getByText('61 of 61 shown').waitFor();
      assert.equal(await links.count(), 61);
      assert.deepEqual(await answers.allInnerTexts(), ['One answer: out of GPU memory', 'Its answer: disk full']);
      const one = panel.getByRole('listitem').filter({ hasText: 'full-0' });
      await one.getByText('disk full').waitFor();
      await one.getByRole('link').click();
      await page.getByText('Its answer: disk full').waitFor();
    });
  });

  test('costs a request a second and few bytes, with 5,000 instances and while messages are sent', async (t) => {
    const service = await startService(t);
    await service.member(t, 'm');
    await service.settled(await service.send('m', {}));
    for (let at = 0; at < 5_000; at += 50)
      await Promise.all(Array.from({ length: 50 }, () => service.register({ webhook_url: 'http://127.0.0.1:1/' })));
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      await page.getByRole('region', { name: 'Instances', exact: true }).getByText('5,000').waitFor();
      // Waits for the live feed first: its response does not end, so it has no size that counts.
      await page.getByText('Live', { exact: true }).waitFor();
      const answers: Response[] = [];
      page.on('response', (response) => answers.push(response));
      const isHistory = (answer: Response): boolean => answer.url().includes('/api/v1/history/');
      // The page requests the history every two seconds.
      const polls = 5;
      const began_ms = performance.now();
      await until(
        'ten seconds of the page',
        () => service.send('m', {}).then(() => answers.filter(isHistory).length),
        (count) => count >= polls,
      );
      // On a slow machine the requests of the history take longer, and the page still asks for the counts in time.
      const seconds = Math.max(2 * polls, Math.ceil((performance.now() - began_ms) / 1000));
      assert.ok(answers.length <= seconds + 2, answers.map((answer) => answer.url()).join('\n'));
      let bytes = 0;
      for (const answer of answers) {
        const { responseBodySize, responseHeadersSize } = await answer.request().sizes();
        bytes += responseBodySize + responseHeadersSize;
      }
      assert.ok(bytes / seconds <= 3_000, `${bytes} bytes in ${seconds} s`);
    });
  });

  test('leads to a machine, whose page says how its last day went', async (t) => {
    // No step of ten minutes ends while the test counts.
    const clock = new SetClock();
    clock.jump(600_000 - (Date.now() % 600_000));
    const service = await startService(t, {}, clock);
    const { instance_id, receiver } = await service.member(t, 'm', { behaviour: { status: 202 } });
    await service.settled(await service.send('m', {}));
    receiver.behaviour = { status: 200 };
    for (let i = 0; i < 3; i++) await service.settled(await service.send('m', { i }));
    await visitor.visit(service.url, { path: `/instances/${instance_id}` }, async (page) => {
      await page.getByText(/^75 % of 4 attempts succeeded, since /).waitFor();
      assert.equal(await legend(page, 'Attempts in 10 minutes', 'succeeded').innerText(), '3');
      assert.equal(await legend(page, 'Attempts in 10 minutes', 'failed').innerText(), '1');
      await until('a latency', () => legend(page, 'Latency of its deliveries', 'p95').innerText(), isDuration);
    });
    const untried = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
    await visitor.visit(service.url, { path: `/instances/${untried.instance_id}` }, async (page) => {
      await page.getByText(/^No attempts since /).waitFor();
    });
  });

  test('leads to a machine, whose page says when its last day cannot be read again, until it can', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'm');
    await service.settled(await service.send('m', {}));
    await visitor.visit(service.url, { path: '/docs/', allowed: /500/ }, async (page) => {
      await page.clock.install();
      await page.goto(`${service.url}/instances/${instance_id}`);
      await page.getByText(/^100 % of 1 attempt succeeded/).waitFor();
      const history = '**/api/v1/instances/*/history/';
      const problem = { code: 'internal_error', detail: 'The store failed.' };
      await page.route(history, (route) => route.fulfill({ status: 500, json: problem }));
      await page.clock.runFor(20_000);
      const said = page.getByRole('alert').filter({ hasText: 'Not up to date: The store failed.' });
      await said.waitFor();
      await page.getByText(/^100 % of 1 attempt succeeded/).waitFor();
      await page.unroute(history);
      await page.clock.runFor(20_000);
      await said.waitFor({ state: 'detached' });
    });
  });

  test('lists what happened before it was opened, and to the next person only what they may see', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await service.member(t, 'secret-plans', { registration: { instance_id: 'laptop' } });
    await service.settled(await service.send('secret-plans', { content: 'hello' }));
    const other = await service.createKey({ scopes: ['read'], meeting_ids: ['another'], name: 'of another meeting' });
    await visitor.visit(service.url, { path: '/now', allowed: /401|403/ }, async (page) => {
      const signIn = async (with_token: string): Promise<void> => {
        await page.getByLabel('Key', { exact: true }).fill(with_token);
        await page.getByRole('button', { name: 'Sign in' }).click();
      };
      const list = page.getByRole('region', { name: 'Just now' });
      await signIn(token);
      await list.getByText('secret-plans #1 to laptop delivered').waitFor();
      await page.reload();
      await list.getByText('secret-plans #1 to laptop delivered').waitFor();
      await page.getByRole('button', { name: 'Sign out' }).click();
      await signIn(other.token);
      await list.getByText('Nothing yet.').waitFor();
      assert.equal(await list.getByText('secret-plans').count(), 0);
    });
  });

  test('lists what happened before it was opened also when the first read fails', async (t) => {
    const service = await startService(t);
    await service.member(t, 'm', { registration: { instance_id: 'box' } });
    await service.settled(await service.send('m', {}));
    await visitor.visit(service.url, { path: '/docs/', allowed: /503/ }, async (page) => {
      const read = '**/api/v1/deliveries/?limit=60';
      await page.route(read, (route) => route.fulfill({ status: 503, body: 'away' }));
      const refused = page.waitForResponse((response) => response.status() === 503);
      await page.goto(`${service.url}/now`);
      await refused;
      const list = page.getByRole('region', { name: 'Just now' });
      await page.getByText('Live', { exact: true }).waitFor();
      await list.locator('.skeleton').waitFor();
      assert.equal(await list.getByText('Nothing yet').count(), 0);
      await page.unroute(read);
      await list.getByText('m #1 to box delivered').waitFor();
    });
  });

  test('says why its charts cannot be read, until they can', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/docs/', allowed: /500/ }, async (page) => {
      const problem = {
        type: 'about:blank',
        title: 'Error',
        status: 500,
        code: 'internal',
        detail: 'The store failed.',
      };
      const history = '**/api/v1/history/**';
      await page.route(history, (route) => route.fulfill({ status: 500, json: problem }));
      await page.goto(`${service.url}/now`);
      const said = page.getByRole('alert').filter({ hasText: 'The charts cannot be read: The store failed.' });
      await said.waitFor();
      await page.unroute(history);
      await said.waitFor({ state: 'detached' });
    });
  });

  test('shows the whole labels of a chart that has no data yet', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/docs/', allowed: /500/ }, async (page) => {
      await page.route('**/api/v1/history/**', (route) => route.fulfill({ status: 500, body: 'away' }));
      await page.goto(`${service.url}/now`);
      const plot = chart(page, 'Throughput per second').locator('.plot');
      await plot.locator('.u-over').waitFor();
      const [whole, over] = [await plot.boundingBox(), await plot.locator('.u-over').boundingBox()];
      // A label of 11 px has its middle at its line, and "0" is at the lower edge of the lines.
      const left_px = whole!.y + whole!.height - over!.y - over!.height;
      assert.ok(left_px >= 6, `${left_px} px are left for the lower half of a label`);
    });
  });

  test('a chart without values has no label but 0 on its scale', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/docs/' }, async (page) => {
      await page.addInitScript(`
        globalThis.labels = new Map();
        const { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
          const title = this.canvas.closest('section')?.querySelector('h2').textContent;
          labels.set(title, [...(labels.get(title) ?? []), text]);
          fillText.call(this, text, ...place);
        };
      `);
      await page.goto(`${service.url}/now`);
      const scale = async (title: string): Promise<string[]> => {
        const drawn = await page.evaluate<string[]>(`labels.get(${JSON.stringify(title)}) ?? []`);
        return [...new Set(drawn.filter((label) => label !== '' && !/^\d\d:\d\d/.test(label)))];
      };
      // The counts are there, and are 0.
      await until(
        'a scale of counts',
        () => scale('Throughput per second'),
        (labels) => labels.includes('1.0'),
      );
      assert.deepEqual(await scale('Latency, from acceptance to delivery'), ['0']);
    });
  });

  test('a time that the keyboard selects on a chart keeps its values while the chart goes on', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room');
    await service.settled(await service.send('room', {}));
    await until(
      'the history to have the second of the message',
      async () => (await service.get<ServiceHistory>('/api/v1/history/')).body.accepted,
      (accepted) => accepted.includes(1),
    );
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      const chart = page.getByRole('region', { name: 'Throughput per second' });
      const plot = chart.getByRole('slider');
      const accepted = chart.locator('.legend > div').filter({ hasText: 'accepted' }).locator('dd');
      await plot.focus();
      // It begins at the latest second, and this key stays there.
      await plot.press('ArrowRight');
      await until(
        'the second of the message',
        async () => {
          const value = await accepted.innerText();
          if (value !== '1.0') await plot.press('ArrowLeft');
          return value;
        },
        (value) => value === '1.0',
      );
      const [at, selected] = [await plot.getAttribute('aria-valuetext'), await plot.getAttribute('aria-valuenow')];
      // The second moves to the left as soon as the chart has later ones.
      await until(
        'later seconds',
        () => plot.getAttribute('aria-valuenow'),
        (now) => Number(now) < Number(selected),
      );
      assert.deepEqual([await plot.getAttribute('aria-valuetext'), await accepted.innerText()], [at, '1.0']);
    });
  });

  test('a range of a chart, dragged over or selected with the keyboard, leads to the deliveries of that range', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room');
    await service.settled(await service.send('room', {}));
    await visitor.visit(service.url, { path: '/now' }, async (page) => {
      const plot = page.getByRole('slider', { name: 'Throughput per second: select a range' });
      /** The range of time by which the list of deliveries is filtered: its length in seconds, and its end. */
      const range = async (): Promise<{ seconds: number; ends_ms: number }> => {
        await page.getByRole('heading', { name: 'Deliveries', level: 1 }).waitFor();
        await page.getByLabel('Sent at or after').waitFor();
        const { searchParams } = new URL(page.url());
        const [since, ends_ms] = ['since', 'until'].map((name) => Date.parse(searchParams.get(name) ?? ''));
        return { seconds: (ends_ms! - since!) / 1000, ends_ms: ends_ms! };
      };
      await plot.waitFor();
      const { x, y, width, height } = (await plot.locator('.u-over').boundingBox())!;
      await page.mouse.move(x + width / 4, y + height / 2);
      await page.mouse.down();
      await page.mouse.move(x + (3 * width) / 4, y + height / 2, { steps: 4 });
      await page.mouse.up();
      const dragged = await range();
      assert.ok(dragged.seconds > 100 && dragged.seconds < 200, `half of five minutes: ${dragged.seconds} s`);

      await page.goBack();
      await plot.focus();
      for (let i = 0; i < 3; i++) await page.keyboard.press('Shift+PageUp');
      await page.keyboard.press('Shift+ArrowRight');
      assert.match((await plot.getAttribute('aria-valuetext')) ?? '', / to /);
      assert.deepEqual(await seriousIn(page), []);
      await page.keyboard.press('Enter');
      const typed = await range();
      assert.equal(typed.seconds, 29);
      assert.ok(typed.ends_ms > dragged.ends_ms);
    });
  });
});
