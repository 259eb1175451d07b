/** What the pages show while messages are sent and while something fails, in a real browser: it is right and new. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { AuditEntry, Message, OpenSession, Page as ListOf } from '@convoke/sdk';
import type { Page } from 'playwright-core';
import { holdBack, openRequests, OTHER_MACHINE, useVisitor } from '../support/browser.ts';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { freePort } from '../support/free_port.ts';
import { membersPath, messagesPath, type Service, startService } from '../support/service.ts';
import { startTraffic } from '../support/traffic.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const MESSAGES_PER_S = 50;
const API_MS = 900;

/** A service behind a proxy, at the address of the proxy. */
async function startBehindProxy(t: TestContext): Promise<{ service: Service; proxy: CuttingProxy; url: string }> {
  const service = await startService(t);
  const proxy = await CuttingProxy.start(Number(new URL(service.url).port));
  t.after(() => proxy.close());
  return { service, proxy, url: `http://127.0.0.1:${proxy.port}` };
}

/** The width of some seconds on a chart of five minutes, in pixels. */
const SECONDS_PX = 12;
/** The space that the chart leaves at its right end. */
const MARGIN_PX = 26;

/** A piece of a line on a chart, and the pixels up to the next piece, or to the end of the chart. */
interface Run {
  length: number;
  blank_after: number;
}

/** Finds the pieces of the lines of latency: the columns of the canvas that have a colour of these lines. */
function runsOf(page: Page): Promise<Run[]> {
  return page.evaluate<Run[]>(`(() => {
    const canvas = document.querySelectorAll('.chart canvas')[1];
    // The page has not drawn the chart yet.
    if (canvas === undefined) return [];
    const { width, height } = canvas;
    const sample = document.createElement('canvas').getContext('2d');
    const colours = ['--chart-1', '--chart-2'].map((name) => {
      sample.fillStyle = getComputedStyle(canvas).getPropertyValue(name);
      sample.fillRect(0, 0, 1, 1);
      return sample.getImageData(0, 0, 1, 1).data;
    });
    const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
    const has = (x) => {
      for (let y = 0; y < height; y++) {
        const at = (y * width + x) * 4;
        if (data[at + 3] < 128) continue;
        if (colours.some((colour) => [0, 1, 2].every((i) => Math.abs(data[at + i] - colour[i]) < 40))) return true;
      }
      return false;
    };
    const runs = [];
    for (let x = 0; x < width; x++) {
      const last = runs.at(-1);
      if (!has(x)) { if (last) last.blank_after++; }
      else if (!last || last.blank_after > 0) runs.push({ length: 1, blank_after: 0 });
      else last.length++;
    }
    return runs;
  })()`);
}

const colourOf = (page: Page): Promise<string> =>
  page.evaluate<string>("getComputedStyle(document.querySelector('.figure dd')).color");

describe('the pages under traffic', () => {
  test('an API that needs longer than the pause between two events still fills a page, and the page stays up to date', async (t) => {
    const { service, proxy, url } = await startBehindProxy(t);
    await service.member(t, 'busy', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
    const failing = { instance_id: 'other', instance_name: 'Old laptop' };
    const { receiver } = await service.member(t, 'busy', { registration: failing, behaviour: { status: 204 } });
    const traffic = startTraffic(t, service, 'busy', MESSAGES_PER_S);
    await visitor.visit(url, { path: '/now' }, async (page) => {
      // Bytes are late in both directions.
      proxy.delayOf = () => API_MS / 2;
      const failures = page.getByRole('region', { name: 'Instances' });
      await failures.getByText('Old laptop').waitFor();
      receiver.behaviour = { status: 500 };
      await service.patch('other', { instance_name: 'New laptop' });
      await failures.getByText('New laptop').waitFor();

      await page.goto(`${url}/instances/box`);
      const detail = page.getByRole('region', { name: 'Instance box' });
      await detail.getByRole('heading', { name: 'GPU box' }).waitFor();
      await detail.getByText('up', { exact: true }).waitFor();
      const before = traffic.accepted;
      for (const instance_name of ['Second name', 'Third name']) {
        await service.patch('box', { instance_name });
        await detail.getByRole('heading', { name: instance_name }).waitFor();
      }
      assert.ok(traffic.accepted > before, 'messages arrived meanwhile');
    });
  });
});

describe('changes without an attempt', () => {
  test('a pause of the meeting, a drop and a recovery show on each page of a delivery', async (t) => {
    const service = await startService(t);
    // Its machine never connects, so no attempt makes the pages read again.
    const registration = { instance_id: 'box', transport: 'pull' as const };
    await service.member(t, 'room', { registration });
    const { delivery_id } = (await service.deliveriesOf(await service.send('room', { content: 'hello' })))[0]!;
    await visitor.visit(service.url, { path: '/deliveries' }, async (list) => {
      const open = async (path: string): Promise<Page> => {
        const page = await list.context().newPage();
        await page.goto(service.url + path);
        return page;
      };
      const places = [
        list.getByRole('row', { name: /Open the delivery of room #1/ }),
        (await open(`/deliveries/${delivery_id}`)).locator('.status-line'),
        (await open('/instances/box')).locator('.short-list'),
        (await open('/meetings/room')).getByRole('article'),
      ];
      const show = async (words: string): Promise<void> => {
        for (const place of places) await place.getByText(words).first().waitFor({ state: 'attached' });
      };
      await show('waiting for its machine to connect');
      const paused = await service.request('PATCH', '/api/v1/meetings/room/', { body: { paused: true } });
      assert.equal(paused.status, 200, paused.text);
      await show('its meeting is paused');
      const dropped = await service.post('/api/v1/deliveries/drop/', { instance_id: 'box' });
      assert.equal(dropped.status, 200, dropped.text);
      await show('cancelled');
      const recovered = await service.post('/api/v1/instances/box/recover/', { delivery_ids: [delivery_id] });
      assert.equal(recovered.status, 200, recovered.text);
      await show('its meeting is paused');
    });
  });

  test('a change of an instance shows in the answer to "Why?" and in a trace', async (t) => {
    const service = await startService(t);
    const registration = { instance_id: 'box', transport: 'pull' as const };
    await service.member(t, 'room', { registration });
    await service.send('room', { content: 'heard' });
    await service.patch('box', { is_active: false });
    await service.send('room', { content: 'not heard' });
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      const [heard, lost] = [1, 2].map((seq) => page.getByRole('article', { name: `Message ${seq}` }));
      await lost!.getByRole('button', { name: /^Why/ }).click();
      await heard!.getByRole('button', { name: /^Trace/ }).click();
      const why = lost!.getByRole('group', { name: 'Trace of message 2' });
      const trace = heard!.getByRole('group', { name: 'Trace of message 1' });
      await why.getByText('it is paused', { exact: true }).waitFor();
      await trace.getByText('waiting: box is paused').waitFor();
      await service.patch('box', { is_active: true });
      const later = 'it joined or was resumed after the message, and would hear it later: its machine is not connected';
      await why.getByText(later).waitFor();
      await trace.getByText('waiting for its machine to connect').waitFor();
    });
  });

  test('a trace does not blame the loop guard for a member that has no delivery', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'early' } });
    const says = async (from_agent: string): Promise<void> => {
      const sent = await service.post('/api/v1/meetings/room/messages/', { message: { content: 'Hello' }, from_agent });
      assert.equal(sent.status, 201, sent.text);
    };
    await says('x');
    const limited = await service.request('PATCH', '/api/v1/meetings/room/', { body: { hop_limit: 1 } });
    assert.equal(limited.status, 200, limited.text);
    for (const from_agent of ['y', 'z']) await says(from_agent);
    await service.member(t, 'room', { registration: { instance_id: 'late' } });
    const { data } = (await service.get<{ data: { why: string }[] }>('/api/v1/meetings/room/explain/?from_agent=x'))
      .body;
    assert.deepEqual(
      data.map(({ why }) => why),
      ['hop_limit', 'hop_limit'],
      'control: a message that is sent now would be stopped',
    );
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      const first = page.getByRole('article', { name: 'Message 1' });
      await first.getByRole('button', { name: /^Trace/ }).click();
      const trace = first.getByRole('group', { name: 'Trace of message 1' });
      await trace.getByText('it joined or was resumed after the message', { exact: true }).waitFor();
      assert.doesNotMatch(await trace.innerText(), /loop guard|The reasons are those of now/);
      await service.patch('late', { is_active: false });
      await trace.getByText('it is paused', { exact: true }).waitFor();
      await trace.getByText(/The reasons are those of now/).waitFor();
    });
  });

  test('the words of a proxy that responds in place of the service are not shown', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    await visitor.visit(service.url, { path: '/meetings', allowed: /502|413/ }, async (page) => {
      const proxy = '**/api/v1/instances/?**';
      let refused = 0;
      await page.route(proxy, (route) => {
        refused++;
        return route.fulfill({ status: 502, contentType: 'text/html', body: 'Bad Gateway' });
      });
      await page.goto(`${service.url}/instances`);
      const main = page.getByRole('main');
      await main.getByText('The service does not respond').waitFor();
      assert.doesNotMatch(await main.innerText(), /base_url/);
      // The page goes on by itself, also without an event: it asks again when the feed begins, but not only then.
      await page.getByText('Live', { exact: true }).waitFor();
      await until(
        'further requests',
        () => refused,
        (count) => count >= 3,
      );
      await page.unroute(proxy);
      await page.getByRole('row', { name: /box/ }).waitFor();
      // The control: a refusal of a proxy is no silence of the service.
      await page.route('**/api/v1/instances/box/', (route) =>
        route.fulfill({ status: 413, contentType: 'text/html', body: 'Too large' }),
      );
      await page.goto(`${service.url}/instances/box`);
      await main.getByText('responded 413').waitFor();
    });
  });

  test('a part of a page that cannot be read says so, and is there when it can', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    await service.member(t, 'room', { behaviour: { status: 503 } });
    const sent = await service.send('room', { content: 'hello' });
    await until(
      'an attempt at each',
      () => service.deliveriesOf(sent),
      (deliveries) => deliveries.every(({ attempt_count }) => attempt_count > 0),
    );
    await visitor.visit(service.url, { path: '/meetings', allowed: /500/ }, async (page) => {
      for (const [path, request, part] of [
        ['/now', '**/api/v1/counts/', page.getByRole('region', { name: 'Instances' })],
        ['/now', '**/api/v1/instances/?**', page.getByRole('region', { name: 'Instances' })],
        ['/instances/box', '**/api/v1/instances/box/history/', page.getByRole('region', { name: 'Instance box' })],
        ['/meetings/room', '**/api/v1/meetings/room/instances/**', page.locator('.meeting-members')],
      ] as const) {
        const problem = { code: 'internal_error', detail: 'The cause is in the log.' };
        await page.route(request, (route) => route.fulfill({ status: 500, json: problem }));
        await page.goto(service.url + path);
        if (path === '/meetings/room') await part.locator('summary').click();
        await part.getByRole('alert').getByText('The cause is in the log.').waitFor();
        await page.unroute(request);
        // A page that asks from time to time may have succeeded already.
        await page.evaluate("document.querySelectorAll('[role=alert] button').forEach((button) => button.click())");
        await part.getByRole('alert').waitFor({ state: 'detached' });
      }
      await page.locator('.meeting-members').getByText('2 instances').waitFor();
    });
  });

  test('an item that cannot be read again says so, keeps what it shows, and is up to date by itself when it can', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'room');
    await visitor.visit(service.url, { path: `/instances/${instance_id}`, allowed: /502/ }, async (page) => {
      const item = page.getByRole('region', { name: `Instance ${instance_id}` });
      const data = item.getByText('Instance id', { exact: true });
      await data.waitFor();
      await page.getByText('Live', { exact: true }).waitFor();
      const request = `**/api/v1/instances/${instance_id}/`;
      await page.route(request, (route) =>
        route.fulfill({ status: 502, contentType: 'text/html', body: 'Bad Gateway' }),
      );
      await service.send('room', {});
      const alert = item.getByRole('alert').getByText('Not up to date: the service does not respond.');
      await alert.waitFor();
      await data.waitFor();
      await page.unroute(request);
      await alert.waitFor({ state: 'detached' });
    });
  });

  test('a view that was left asks for nothing more, also when something changed while it was asking', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      await page.clock.install();
      await page.goto(`${service.url}/instances`);
      await page.getByText('Live', { exact: true }).waitFor();
      const asked = Promise.withResolvers<void>();
      const left = Promise.withResolvers<void>();
      let count = 0;
      await page.route('**/api/v1/instances/?**', async (route) => {
        count++;
        asked.resolve();
        await left.promise;
        await route.continue();
      });
      await service.patch('box', { instance_name: 'Second' });
      await page.clock.runFor(2_000);
      await asked.promise;
      // The title of the tab asks after the same events.
      const noticed = page.waitForRequest('**/api/v1/counts/');
      await service.patch('box', { instance_name: 'Third' });
      await noticed;
      await page.clock.runFor(2_000);
      await page.getByRole('link', { name: 'Deliveries', exact: true }).click();
      await page.getByRole('heading', { name: 'Deliveries', exact: true }).waitFor();
      const before = count;
      const answered = page.waitForEvent('requestfinished', (request) => request.url().includes('/instances/?'));
      left.resolve();
      await answered;
      await page.clock.runFor(2_000);
      assert.equal(count, before);
    });
  });

  test('an instance that somebody deletes is not shown as if it was still there', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
    await visitor.visit(service.url, { path: '/instances/box', allowed: /404/ }, async (page) => {
      const detail = page.getByRole('region', { name: 'Instance box' });
      await detail.getByRole('button', { name: 'Pause', exact: true }).waitFor();
      const gone = detail.getByRole('alert').filter({ hasText: 'That did not work' });
      // The control: a 404 of a proxy says nothing about the instance.
      const path = '**/api/v1/instances/box/';
      await page.getByText('Live', { exact: true }).waitFor();
      await page.route(path, (route) => route.fulfill({ status: 404, body: 'no such host' }));
      const refused = page.waitForResponse(path);
      await service.patch('box', { instance_name: 'Second name' });
      await (await refused).finished();
      await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
      assert.equal(await detail.getByRole('button', { name: 'Pause', exact: true }).count(), 1);
      await page.unroute(path);
      const deleted = await service.request('DELETE', '/api/v1/instances/box/');
      assert.equal(deleted.status, 204, deleted.text);
      await gone.waitFor();
      assert.equal(await detail.getByRole('button', { name: 'Pause', exact: true }).count(), 0);
      await page.getByRole('link', { name: 'Deliveries', exact: true }).click();
      await page.goBack();
      await gone.waitFor();
    });
  });

  test('the audit log shows new entries, also those of changes without an event', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/audit' }, async (page) => {
      await page.clock.install();
      await page.goto(`${service.url}/audit`);
      await page.getByText('Live', { exact: true }).waitFor();
      const { invite_id } = (
        await service.post<{ invite_id: string }>('/api/v1/invites/', { meeting_ids: ['room'], agent_ids: ['anna'] })
      ).body;
      await page.clock.runFor(15_000);
      await page
        .getByRole('row', { name: /invite\.create/ })
        .getByText(invite_id)
        .waitFor();
    });
  });

  test('the keys show what another admin does to them, also beside the list', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    const { key_id } = await service.createKey({ scopes: ['read'], name: 'reader' });
    await visitor.visit(service.url, { path: '/keys', allowed: /401/ }, async (page) => {
      await page.clock.install();
      await page.goto(`${service.url}/keys/${key_id}`);
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.keyboard.press('Enter');
      await page.getByText('Live', { exact: true }).waitFor();
      await page.getByRole('button', { name: 'Revoke…' }).waitFor();
      assert.equal((await service.request('DELETE', `/api/v1/keys/${key_id}/`)).status, 204);
      await page.clock.runFor(15_000);
      await page
        .getByRole('row', { name: /reader/ })
        .getByText('revoked')
        .waitFor();
      await page
        .getByRole('region', { name: `Key ${key_id}` })
        .getByText('revoked', { exact: true })
        .waitFor();
      assert.equal(await page.getByRole('button', { name: 'Revoke…' }).count(), 0);
    });
  });

  test('an entry of the audit log has an address, however far back it is', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    for (let n = 0; n < 110; n++) await service.patch('box', { instance_name: `Box ${n}` });
    await visitor.visit(service.url, { path: '/audit/1' }, async (page) => {
      const entry = page.getByRole('region', { name: 'Entry 1', exact: true });
      await entry.getByText('service.start').first().waitFor();
      await page.goto(`${service.url}/audit/999999`);
      await page.getByRole('region', { name: 'Entry 999999' }).getByText('There is no such entry').waitFor();
    });
  });

  test('a change of a membership shows on the page of its instance and in the composer', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', {
      agent_ids: ['anna', 'ben'],
      registration: { instance_id: 'box', instance_name: 'Box' },
    });
    await visitor.visit(service.url, { path: '/instances/box' }, async (page) => {
      const membership = page.getByRole('listitem').filter({ has: page.getByRole('link', { name: 'room' }) });
      await membership.getByText('anna').waitFor();
      const meeting = await page.context().newPage();
      await meeting.goto(`${service.url}/meetings/room`);
      const hearers = meeting.getByRole('form', { name: 'Send a message' });
      await hearers.getByText('Box will hear it').waitFor();
      const changes = { agent_ids: ['ben'], wake: 'targeted' };
      const changed = await service.request('PATCH', `${membersPath('room')}box/`, { body: changes });
      assert.equal(changed.status, 200, changed.text);
      await membership.getByText('anna').waitFor({ state: 'detached' });
      await hearers.getByText('Box will not be woken: it is in the history').waitFor();
    });
  });
});

/** The beginning of a response that says that a message was stored. */
const STORED = /^HTTP\/1\.1 201 [^]*"deliveries_queued"/;

describe('a message that nobody received', () => {
  test('delays no other message while the page asks why', async (t) => {
    const service = await startService(t);
    await service.send('room', { content: 'first' });
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      const text = page.getByRole('textbox', { name: 'Message' });
      const { held, release } = await holdBack(page, '**/explain/**');
      await text.fill('second');
      await text.press('Enter');
      // The composer asks the same before a message is sent, so a held question alone does not show that one was sent.
      await until(
        'the box to be empty',
        () => text.inputValue(),
        (found) => found === '',
      );
      await held;
      await text.fill('third');
      await text.press('Enter');
      await page.getByRole('log').getByText('third').waitFor();
      release();
    });
  });
});

describe('a message whose response is lost', () => {
  test('is stored once, however often and after whatever reload somebody sends it, until they change it', async (t) => {
    const { service, proxy, url } = await startBehindProxy(t);
    await service.member(t, 'room', { agent_ids: ['anna'] });
    const contents = async (): Promise<unknown[]> => {
      const { data } = (await service.get<ListOf<Message>>(messagesPath('room'))).body;
      return data.map(({ message }) => message['content'] ?? message['n']);
    };
    const options = { path: '/meetings/room', allowed: /Failed to load resource/ };
    await visitor.visit(url, options, async (page) => {
      const text = page.getByRole('textbox', { name: 'Message' });
      const refusal = page.getByRole('form', { name: 'Send a message' }).getByRole('alert');
      const loseOne = async (words: string): Promise<void> => {
        proxy.onAnswer = (bytes) => (STORED.test(bytes.toString('latin1')) ? 'cut' : 'pass');
        await text.fill(words);
        await text.press('Control+Enter');
        await refusal.waitFor();
        proxy.onAnswer = () => 'pass';
      };
      const sendAgain = async (): Promise<void> => {
        await text.press('Control+Enter');
        await until(
          'the box to be empty',
          () => text.inputValue(),
          (found) => found === '',
        );
      };
      await page.getByText('Live', { exact: true }).waitFor();
      await page.getByRole('button', { name: 'anna', exact: true }).click();
      await loseOne('first');
      assert.deepEqual(await contents(), ['first']);
      await sendAgain();
      assert.deepEqual(await contents(), ['first']);

      await loseOne('second');
      await refusal.getByText(/not known whether .* was sent\. Send it again: it will not be sent twice\.$/).waitFor();
      await page.reload();
      await page.getByRole('button', { name: 'Send to 1 agent' }).waitFor();
      await sendAgain();
      assert.deepEqual(await contents(), ['first', 'second']);

      await loseOne('third');
      await text.fill('third, changed');
      await refusal.getByText(/It has changed since then, so it is another message now\.$/).waitFor();
      await sendAgain();
      assert.deepEqual(await contents(), ['first', 'second', 'third', 'third, changed']);

      // The control: the same text, sent after a success, is another message.
      await text.fill('third, changed');
      await sendAgain();
      assert.equal((await contents()).length, 5);
      await page.getByRole('radio', { name: 'JSON' }).check({ force: true });
      await loseOne('{"n": 6}');
      await sendAgain();
      assert.deepEqual((await contents()).slice(5), [6]);
    });
  });
});

/** Chromium opens six connections to a host. */
const CONNECTIONS = 6;
const TABS = 7;
/** A file of the pages that does not follow the feed, because it is no view. */
const NO_VIEW = '/favicon.svg';

/** The pages that have a connection of the live feed. */
class FeedConnections {
  readonly #open = new Map<object, Page>();

  /** Opens an address in a new tab of the browser of a page. */
  async open(beside: Page, url: string): Promise<Page> {
    const page = await beside.context().newPage();
    page.on('request', (request) => {
      if (new URL(request.url()).pathname === '/api/v1/events/') this.#open.set(request, page);
    });
    const end = (request: object): boolean => this.#open.delete(request);
    page.on('requestfailed', end);
    page.on('requestfinished', end);
    page.on('close', () => this.#open.forEach((owner, request) => owner === page && end(request)));
    await page.goto(url);
    return page;
  }

  get holders(): Page[] {
    return [...this.#open.values()];
  }

  /** Waits until exactly one page has a connection. */
  async holder(): Promise<Page> {
    const read = (): Page[] => this.holders;
    const [page] = await until('one connection of the feed', read, (pages) => pages.length === 1);
    return page as Page;
  }
}

describe('a page whose session was ended', () => {
  test('asks for the feed no more, so it adds nothing to the audit log, and follows it again after a sign-in', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    const refusals = async (): Promise<number> => {
      const query = 'action=authenticate&limit=500';
      return (await service.get<ListOf<AuditEntry>>(`/api/v1/audit/?${query}`)).body.data.length;
    };
    await visitor.visit(service.url, { path: '/instances', allowed: /401/ }, async (page) => {
      // The test can let time pass at once.
      await page.clock.install();
      await page.goto(`${service.url}/instances`);
      const unanswered = openRequests(page);
      const signIn = async (): Promise<void> => {
        await page.getByLabel('Key', { exact: true }).fill(token);
        await page.keyboard.press('Enter');
        await page.getByText('Live', { exact: true }).waitFor();
      };
      await signIn();
      const [open] = (await service.get<ListOf<OpenSession>>('/api/v1/sessions/')).body.data;
      const ended = await service.request('DELETE', `/api/v1/sessions/${open!.session_id}/`);
      assert.equal(ended.status, 204);
      await page.getByRole('alert').getByText('your session has ended').waitFor();
      const asked: string[] = [];
      page.on('request', (request) => asked.push(new URL(request.url()).pathname));
      // The service may still refuse what the page asked before.
      await until(
        'every answer',
        () => unanswered().length,
        (count) => count === 0,
      );
      const before = await refusals();
      await page.clock.runFor(10 * 60_000);
      assert.deepEqual(asked, []);
      assert.equal(await refusals(), before);
      await signIn();
      await service.register({ instance_id: 'box', instance_name: 'GPU box', webhook_url: 'http://127.0.0.1:1/' });
      await page.getByRole('row', { name: 'GPU box' }).waitFor();
    });
  });
});

/** Makes a page believe that it is hidden: Chromium without a screen never hides a page. */
const setHidden = (page: Page, is_hidden: boolean): Promise<void> =>
  page.evaluate(`{
    // When the test does not hide the page, the browser decides: a page that closes is hidden.
    if (${is_hidden}) Object.defineProperty(document, 'hidden', { configurable: true, value: true });
    else delete document.hidden;
    document.dispatchEvent(new Event('visibilitychange'));
  }`);

describe('a service that goes away', () => {
  test('is missed: since when, with values that are grey, and a mark in the title, until it is back', async (t) => {
    const service = await startService(t, { port: String(await freePort()) });
    const { url } = service;
    await service.member(t, 'busy', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
    startTraffic(t, service, 'busy', MESSAGES_PER_S);
    await visitor.visit(url, { path: '/now', allowed: /Failed to load resource/ }, async (page) => {
      const banner = page.getByRole('alert').getByText(/Not connected since \d\d:\d\d:\d\d; values are stale$/);
      // The page changes the title after it has drawn the rest.
      const titled = (title: string): Promise<string> =>
        until(
          `the title ${title}`,
          () => page.title(),
          (found) => found === title,
        );
      await page.getByText('Live', { exact: true }).waitFor();
      const colour = await colourOf(page);
      assert.equal(await banner.count(), 0);
      await titled('Now · Convoke');

      await service.stop();
      await banner.waitFor();
      await titled('(not connected) Now · Convoke');
      assert.notEqual(await colourOf(page), colour);

      await service.restart({});
      await service.patch('box', { instance_name: 'Renamed' });
      await banner.waitFor({ state: 'detached' });
      await titled('Now · Convoke');
      assert.equal(await colourOf(page), colour);
      await page.getByRole('link', { name: 'Instances', exact: true }).click();
      await page.getByRole('row', { name: 'Renamed' }).waitFor();
    });
  });

  test('leaves a gap in the lines of the charts, also where a line joins single values', async (t) => {
    const service = await startService(t, { port: String(await freePort()) });
    const { url } = service;
    await service.member(t, 'busy');
    startTraffic(t, service, 'busy', MESSAGES_PER_S);
    const allowed = /Failed to load resource|willReadFrequently/;
    await visitor.visit(url, { path: '/now', allowed }, async (page) => {
      const read = (): Promise<Run[]> => runsOf(page);
      const longest = (runs: Run[]): number => Math.max(0, ...runs.map(({ length }) => length));
      const widest = (runs: Run[]): number => Math.max(0, ...runs.slice(0, -1).map(({ blank_after }) => blank_after));
      const before = await until('a line', read, (runs) => longest(runs) > SECONDS_PX);
      assert.ok(widest(before) < SECONDS_PX, 'it has no gap');
      await service.stop();
      await until('a line that ends', read, (runs) => (runs.at(-1)?.blank_after ?? 0) > MARGIN_PX + 2 * SECONDS_PX);
      await service.restart({});
      await until('a line with a gap', read, (runs) => widest(runs) > SECONDS_PX);
    });
  });
});

/** Whether the icon of the tab has a mark. Throws when the browser does not accept the icon as an image. */
const hasMark = (page: Page): Promise<boolean> =>
  page.evaluate<boolean>(`(async () => {
    const image = new Image();
    image.src = document.querySelector('link[rel=icon]').href;
    await image.decode();
    return image.naturalWidth > 0 && !image.src.endsWith('/favicon.svg');
  })()`);

describe('the title and the icon of a tab', () => {
  test('say how many machines are down, also while the tab is hidden, and that they are up again', async (t) => {
    const service = await startService(t);
    const { instance_id, receiver } = await service.member(t, 'room', { behaviour: { status: 204 } });
    const { instance_id: paused } = await service.member(t, 'room', { behaviour: { status: 204 } });
    await visitor.visit(service.url, { path: '/meetings' }, async (page) => {
      const titled = (title: string): Promise<string> =>
        until(
          `the title ${title}`,
          () => page.title(),
          (found) => found === title,
        );
      const marked = (is_marked: boolean): Promise<boolean> =>
        until(
          `an icon ${is_marked ? 'with' : 'without'} a mark`,
          () => hasMark(page),
          (found) => found === is_marked,
        );
      await titled('Meetings · Convoke');
      await marked(false);
      // Five failures in a row make an instance down.
      for (let i = 0; i < 5; i++) await service.send('room', {});
      await titled('(2 down) Meetings · Convoke');
      await marked(true);
      await service.patch(paused, { is_active: false });
      await titled('(1 down) Meetings · Convoke');

      const other = await page.context().newPage();
      await other.goto(`${service.url}/instances`);
      await setHidden(page, true);
      receiver.behaviour = {};
      await service.heartbeat(instance_id);
      await service.send('room', {});
      await titled('Meetings · Convoke');
      await marked(false);
    });
  });
});

/**
 * Where a page comes from. From another machine over plain HTTP it is no secure context, and has no locks, for example.
 */
interface Origin {
  name: string;
  urlOf: (service: Service) => string;
  is_secure: boolean;
  /** The lines that the console may have. */
  allowed: RegExp;
}

const ORIGINS: Origin[] = [
  { name: 'on this machine', urlOf: (service) => service.url, is_secure: true, allowed: /^$/ },
  {
    name: 'over plain HTTP from another machine',
    urlOf: (service) => service.url.replace('127.0.0.1', OTHER_MACHINE),
    is_secure: false,
    // The browser logs that it does not isolate pages of such an origin.
    allowed: /Cross-Origin-Opener-Policy|401/,
  },
];

/** Opens a page that follows no feed, in a browser that is signed in. */
async function visitSignedIn(
  service: Service,
  { urlOf, is_secure, allowed }: Origin,
  use: (page: Page, url: string) => Promise<void>,
): Promise<void> {
  const { token } = await service.endOpenMode();
  const url = urlOf(service);
  await visitor.visit(url, { path: '/instances', allowed }, async (page) => {
    assert.equal(await page.evaluate('isSecureContext'), is_secure);
    await page.getByLabel('Key', { exact: true }).fill(token);
    await page.keyboard.press('Enter');
    await page.getByText('Live', { exact: true }).waitFor();
    await page.goto(url + NO_VIEW);
    await use(page, url);
  });
}

describe('a tab of a browser in which somebody else signs in', () => {
  /** Two keys that see different meetings, and a tab in which the first of them has signed in. */
  async function visitAsAnna(
    t: TestContext,
    use: (tab: Page, url: string, tokens: { admin: string; anna: string }) => Promise<void>,
  ) {
    const service = await startService(t);
    const { token: admin } = await service.endOpenMode();
    const anna = await service.createKey({ scopes: ['read'], meeting_ids: ['room'], name: 'Anna' });
    for (const meeting_id of ['room', 'secret']) await service.send(meeting_id, { content: 'hello' });
    await visitor.visit(service.url, { path: '/meetings', allowed: /401|403/ }, async (tab) => {
      await signIn(tab, anna.token);
      await tab.getByRole('row', { name: 'Open room' }).waitFor();
      await use(tab, service.url, { admin, anna: anna.token });
    });
  }

  async function signIn(tab: Page, token: string): Promise<void> {
    await tab.getByLabel('Key', { exact: true }).fill(token);
    await tab.keyboard.press('Enter');
    await tab.getByText('Live', { exact: true }).waitFor();
  }

  /** Opens a second tab, and signs out there. */
  async function signOutBeside(tab: Page, url: string): Promise<Page> {
    const other = await tab.context().newPage();
    await other.goto(`${url}/meetings`);
    await other.getByRole('button', { name: 'Sign out' }).click();
    await other.getByLabel('Key', { exact: true }).waitFor();
    return other;
  }

  async function showsTheAdmin(tab: Page): Promise<void> {
    await tab.getByText('the first', { exact: true }).waitFor();
    await tab.getByRole('link', { name: 'Keys', exact: true }).waitFor();
    await tab.getByRole('row', { name: 'Open secret' }).waitFor();
    assert.equal(await tab.getByText('Anna', { exact: true }).count(), 0);
  }

  test('says that somebody signed out, and shows the name and the rights of the next person, also while it is hidden', async (t) => {
    await visitAsAnna(t, async (tab, url, { admin }) => {
      await setHidden(tab, true);
      const other = await signOutBeside(tab, url);
      // The other words, when a request of this tab was refused first.
      const why = /in another tab somebody signed out|asks for a key now/;
      await tab.getByRole('alert').getByText(why).waitFor();
      assert.equal(await tab.getByRole('row').count(), 0);
      await signIn(other, admin);
      await showsTheAdmin(tab);
      await setHidden(tab, false);
      await tab.getByText('Live', { exact: true }).waitFor();
      await showsTheAdmin(tab);
    });
  });

  test('reads nothing with the rights of the next person before it shows them, and asks when it is seen again', async (t) => {
    await visitAsAnna(t, async (tab, url, { admin, anna }) => {
      // The browser tells this tab nothing, as it may do while a tab is hidden.
      await tab.addInitScript("addEventListener('storage', (event) => event.stopImmediatePropagation())");
      await tab.reload();
      await tab.getByRole('row', { name: 'Open room' }).waitFor();
      await setHidden(tab, true);
      const other = await signOutBeside(tab, url);
      await signIn(other, admin);
      await tab.getByRole('link', { name: 'Instances', exact: true }).click();
      const refused = tab.waitForResponse((each) => each.status() === 403 && each.url().includes('/api/v1/meetings/'));
      await tab.getByRole('link', { name: 'Meetings', exact: true }).click();
      await (await refused).finished();
      assert.equal(await tab.getByRole('row', { name: 'Open secret' }).count(), 0);
      await setHidden(tab, false);
      await showsTheAdmin(tab);

      // Nothing stays of what only the first person may see.
      await tab.getByRole('link', { name: 'Keys', exact: true }).click();
      await tab.getByRole('row', { name: /Anna/ }).waitFor();
      await setHidden(tab, true);
      await other.getByRole('button', { name: 'Sign out' }).click();
      await signIn(other, anna);
      await setHidden(tab, false);
      await tab.getByText('That did not work').waitFor();
      assert.equal(await tab.getByRole('row').count(), 0);
    });
  });
});

for (const origin of ORIGINS)
  describe(`several tabs ${origin.name}`, () => {
    test('seven tabs at once all load, stay up to date, and hold one connection of the feed together', async (t) => {
      const service = await startService(t);
      await service.member(t, 'busy', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
      await visitSignedIn(service, origin, async (page, url) => {
        startTraffic(t, service, 'busy', MESSAGES_PER_S);
        const feeds = new FeedConnections();
        const tabs: Page[] = [];
        while (tabs.length < TABS) tabs.push(await feeds.open(page, `${url}/instances`));
        for (const tab of tabs) await tab.getByRole('row', { name: 'GPU box' }).waitFor();
        await feeds.holder();
        await service.patch('box', { instance_name: 'Renamed' });
        for (const tab of tabs) {
          await tab.getByText('Live', { exact: true }).waitFor();
          await tab.getByRole('row', { name: 'Renamed' }).waitFor();
        }
        // While the machine is busy, two tabs may lead for a moment.
        await feeds.holder();
      });
    });

    test('control: tabs that do not hear one another hold a connection each', async (t) => {
      const service = await startService(t);
      await visitSignedIn(service, origin, async (page, url) => {
        await page.context().addInitScript('BroadcastChannel.prototype.postMessage = () => {}');
        const feeds = new FeedConnections();
        const tabs: Page[] = [];
        // One connection is left over. Otherwise the feed of the last tab may take it before that tab has loaded.
        while (tabs.length < CONNECTIONS - 1) tabs.push(await feeds.open(page, `${url}/instances`));
        await until(
          'a connection of each tab',
          () => feeds.holders.length,
          (count) => count === tabs.length,
        );
      });
    });

    test('a hidden tab holds no connection of the feed, and is up to date when it is seen again', async (t) => {
      const service = await startService(t);
      await service.member(t, 'room', { registration: { instance_id: 'box', instance_name: 'First' } });
      await visitSignedIn(service, origin, async (page, url) => {
        const feeds = new FeedConnections();
        const open = async (): Promise<Page> => {
          const tab = await feeds.open(page, `${url}/instances`);
          await tab.getByText('Live', { exact: true }).waitFor();
          return tab;
        };
        const one = await open();
        const other = await open();
        const shows = (tab: Page, name: string): Promise<void> => tab.getByRole('row', { name }).waitFor();
        const leader = await feeds.holder();
        const follower = leader === one ? other : one;
        await setHidden(leader, true);
        await until(
          'the visible tab to hold it',
          () => feeds.holders,
          ([page]) => page === follower,
        );
        await service.patch('box', { instance_name: 'Second' });
        await shows(follower, 'Second');
        await setHidden(follower, true);
        await until(
          'no tab to hold it',
          () => feeds.holders.length,
          (count) => count === 0,
        );
        await service.patch('box', { instance_name: 'Third' });
        await setHidden(leader, false);
        await shows(leader, 'Third');
        assert.equal(await feeds.holder(), leader);
        await setHidden(follower, false);
        await shows(follower, 'Third');
        // When a tab closes, another tab takes over the connection.
        await leader.close();
        assert.equal(await feeds.holder(), follower);
        await service.patch('box', { instance_name: 'Fourth' });
        await shows(follower, 'Fourth');
      });
    });

    test('a tab that holds the connection and hangs does not keep the events from the others', async (t) => {
      const service = await startService(t);
      await service.member(t, 'room', { registration: { instance_id: 'box', instance_name: 'First' } });
      await visitSignedIn(service, origin, async (page, url) => {
        const feeds = new FeedConnections();
        const open = async (): Promise<Page> => {
          const tab = await feeds.open(page, `${url}/instances`);
          await tab.getByText('Live', { exact: true }).waitFor();
          return tab;
        };
        const tabs = [await open(), await open(), await open()];
        // On a busy machine the first tab may be too late to say that it leads.
        const leader = await feeds.holder();
        const others = tabs.filter((tab) => tab !== leader);
        const browser = await leader.context().newCDPSession(leader);
        await browser.send('Debugger.enable');
        const stands = new Promise((resolve) => browser.once('Debugger.paused', resolve));
        const hung = browser.send('Runtime.evaluate', { expression: 'debugger' });
        await stands;
        await service.patch('box', { instance_name: 'Second' });
        for (const tab of others) await tab.getByRole('row', { name: 'Second' }).waitFor();
        // The tab runs again, and does not take the connection back.
        await browser.send('Debugger.resume');
        await hung;
        await leader.getByRole('row', { name: 'Second' }).waitFor();
        const holder = await feeds.holder();
        assert.ok(others.includes(holder));
        await service.patch('box', { instance_name: 'Third' });
        for (const tab of [leader, ...others]) await tab.getByRole('row', { name: 'Third' }).waitFor();
      });
    });
  });
