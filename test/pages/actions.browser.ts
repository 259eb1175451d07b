/** What operators can do on the page that they read: resend, pause, edit, follow advice, and see a request. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import type { Delivery, Instance, Meeting, MeetingInstance, Page as ListOf } from '@convoke/sdk';
import { follow, holdBack, stretchTimers, useVisitor } from '../support/browser.ts';
import { rpc, RPC_HEADERS } from '../support/mcp.ts';
import { pushOf, Receiver, startReceiver } from '../support/receiver.ts';
import { type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const listed = async (service: Service, query: string): Promise<Delivery[]> =>
  (await service.get<ListOf<Delivery>>(`/api/v1/deliveries/?${query}`)).body.data;

/** Makes an instance with failed deliveries. After that its receiver accepts pushes. */
async function failing(t: TestContext, service: Service, count: number) {
  const registration = { instance_name: 'GPU box' };
  const { instance_id, receiver } = await service.member(t, 'm', { registration, behaviour: { status: 202 } });
  for (let n = 1; n <= count; n++) await service.send('m', { n });
  await until(
    'all to fail',
    () => listed(service, `instance_id=${instance_id}&state=failed`),
    (rows) => rows.length === count,
  );
  receiver.behaviour = {};
  return { instance_id, receiver };
}

describe('where one reads', { concurrency: 3 }, () => {
  test('a recovery shows its progress, and ends when it is cancelled', async (t) => {
    const service = await startService(t);
    const { instance_id } = await failing(t, service, 2);
    await visitor.visit(service.url, { path: `/instances/${instance_id}` }, async (page) => {
      // The page recovers the deliveries in parts, here one by one. The second part waits until the test has looked at
      // the page.
      const { promise: looked, resolve } = Promise.withResolvers<void>();
      let parts = 0;
      await page.route('**/recover/', async (route) => {
        const body = route.request().postDataJSON() as object;
        if ('dry_run' in body) return route.continue();
        if (++parts > 1) await looked;
        return route.continue({ postData: JSON.stringify({ ...body, limit: 1 }) });
      });
      await page.getByRole('button', { name: 'Resend failed…' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('button', { name: 'Resend 2 deliveries' }).click();
      await dialog.getByText('1 of 2 deliveries queued').waitFor();
      const bar = dialog.getByRole('progressbar');
      assert.equal(await bar.getAttribute('value'), '1');
      const [line, room] = [await bar.boundingBox(), await dialog.getByText('1 of 2').boundingBox()];
      assert.equal(line?.width, room?.width);
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      resolve();
      await page.getByText(/^Cancelled\. 2 deliveries were queued by then/).waitFor();
      assert.equal(parts, 2);
    });
  });

  test('a recovery ends when somebody leaves its page with the back button', async (t) => {
    const service = await startService(t);
    const { instance_id } = await failing(t, service, 3);
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      await stretchTimers(page);
      await page
        .getByRole('row', { name: /GPU box/ })
        .getByRole('link')
        .click();
      const asked = Promise.withResolvers<void>();
      const left = Promise.withResolvers<void>();
      let parts = 0;
      await page.route('**/recover/', async (route) => {
        const body = route.request().postDataJSON() as object;
        if ('dry_run' in body) return route.continue();
        parts++;
        asked.resolve();
        await left.promise;
        return route.continue({ postData: JSON.stringify({ ...body, limit: 1 }) });
      });
      await page.getByRole('button', { name: 'Resend failed…' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Resend 3 deliveries' }).click();
      await asked.promise;
      await page.goBack();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      left.resolve();
      await page.getByText('Cancelled. 1 delivery was queued by then and will be sent.').waitFor();
      assert.equal(parts, 1);
      assert.equal((await listed(service, `instance_id=${instance_id}&state=failed`)).length, 2);
    });
  });

  test('a recovery without an end counts and sends what fails while its dialog is open', async (t) => {
    const service = await startService(t);
    const { instance_id, receiver } = await failing(t, service, 1);
    receiver.behaviour = { status: 202 };
    const options = { path: `/instances/${instance_id}`, allowed: /Failed to load resource/ };
    await visitor.visit(service.url, options, async (page) => {
      await page.getByText('Live', { exact: true }).waitFor();
      await page.getByRole('button', { name: 'Resend failed…' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByRole('button', { name: 'Resend 1 delivery' }).waitFor();
      await dialog.getByText('1 delivery failed in that time. It goes out beside new messages').waitFor();
      await service.settled(await service.send('m', { n: 2 }));
      await dialog.getByRole('button', { name: 'Resend 2 deliveries' }).waitFor();

      // A third one fails after the last count that the page shows.
      await page.route('**/recover/', async (route) => {
        const body = route.request().postDataJSON() as object;
        if ('dry_run' in body) await route.abort();
        else await route.continue();
      });
      await service.settled(await service.send('m', { n: 3 }));
      receiver.behaviour = {};
      await dialog.getByRole('button', { name: /^Resend/ }).click();
      await page.getByText('3 deliveries will be sent again.').waitFor();
    });
    await until(
      'all to be delivered',
      () => listed(service, `instance_id=${instance_id}&state=delivered`),
      (rows) => rows.length === 3,
    );
  });

  test('ticked rows are sent again, and no others', async (t) => {
    const service = await startService(t);
    const { instance_id } = await failing(t, service, 3);
    await visitor.visit(service.url, { path: '/deliveries?state=failed' }, async (page) => {
      const tick = (seq: number) => page.getByRole('checkbox', { name: `Tick m #${seq} to ${instance_id}` });
      assert.equal(await page.getByRole('button', { name: /ticked/ }).count(), 0);
      await tick(1).check();
      await tick(3).check();
      await page.getByRole('button', { name: 'Resend 2 ticked' }).click();
      await page.getByText('2 deliveries will be sent again.').waitFor();
    });
    await until(
      'the ticked ones to be delivered',
      () => listed(service, `instance_id=${instance_id}&state=delivered`),
      (rows) => rows.length === 2,
    );
    assert.deepEqual(
      (await listed(service, `instance_id=${instance_id}&state=failed`)).map(({ seq }) => seq),
      [2],
    );
  });

  test('ticks stay when sending again fails, and two presses send once', async (t) => {
    const service = await startService(t);
    await failing(t, service, 2);
    const options = { path: '/deliveries?state=failed', allowed: /Failed to load resource/ };
    await visitor.visit(service.url, options, async (page) => {
      const ticks = page.getByRole('checkbox');
      for (const index of [0, 1]) await ticks.nth(index).check();
      const resend = page.getByRole('button', { name: 'Resend 2 ticked' });
      await page.route('**/recover/', (route) => route.abort());
      await resend.click();
      await page.getByText('Not done: the service does not respond. Try again.').waitFor();
      assert.equal(await page.getByRole('checkbox', { checked: true }).count(), 2);
      await page.unroute('**/recover/');

      const { promise: pressed, resolve } = Promise.withResolvers<void>();
      let sent = 0;
      await page.route('**/recover/', async (route) => {
        sent++;
        await pressed;
        await route.continue();
      });
      await resend.click();
      await resend.click({ force: true });
      resolve();
      await page.getByText('2 deliveries will be sent again.').waitFor();
      await resend.waitFor({ state: 'detached' });
      assert.equal(sent, 1);
    });
  });

  test('a webhook test that runs is not started a second time', async (t) => {
    const service = await startService(t);
    const { promise: pressed, resolve } = Promise.withResolvers<void>();
    const { instance_id, receiver } = await service.member(t, 'm', { behaviour: { after: pressed } });
    await visitor.visit(service.url, { path: `/instances/${instance_id}` }, async (page) => {
      const button = page.getByRole('button', { name: 'Test the webhook' });
      await button.click();
      for (let press = 0; press < 2; press++) await button.click({ force: true });
      await receiver.count(1);
      resolve();
      await page.locator('button[aria-disabled=false]').getByText('Test the webhook').waitFor();
      await button.click();
      await receiver.count(2);
      assert.equal(receiver.requests.length, 2);
    });
  });

  test('a subscription of MCP Events says until when it lives, and who renews it', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    const { token: own } = await service.createKey({ scopes: ['read', 'instance'] });
    const receiver = new Receiver(({ text }) => ({ body: text }));
    await receiver.up();
    t.after(() => receiver.down());
    const subscription = {
      name: 'meeting.message',
      arguments: { meeting_id: 'room' },
      delivery: { mode: 'webhook', url: receiver.url, secret: `whsec_${Buffer.alloc(32).toString('base64')}` },
    };
    await service.send('room', { content: 'before' });
    const { text } = await service.post('/mcp', rpc('events/subscribe', subscription), {
      ...RPC_HEADERS,
      authorization: `Bearer ${own}`,
    });
    const { result } = JSON.parse(text.slice(text.indexOf('{'))) as { result: { id: string } };
    await visitor.visit(service.url, { path: `/instances/${result.id}` }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.keyboard.press('Enter');
      await page.getByText(/^ends in \d+ (min|h|d), unless the program that made it renews it$/).waitFor();
    });
  });

  test('a paused instance says what is held and what is not queued, and how many came', async (t) => {
    const service = await startService(t);
    const { instance_id, receiver } = await service.member(t, 'm', { registration: { instance_name: 'GPU box' } });
    await service.settled(await service.send('m', { n: 1 }));
    await visitor.visit(service.url, { path: `/instances/${instance_id}` }, async (page) => {
      const detail = page.getByRole('region', { name: `Instance ${instance_id}` });
      await detail.getByText('up', { exact: true }).waitFor();
      await detail.getByRole('button', { name: 'Pause' }).click();
      await detail.getByText('paused', { exact: true }).waitFor();
      await detail.getByText(/^Paused\. Nothing is pending\. New messages are not queued for it\./).waitFor();
      assert.equal(await detail.getByText('up', { exact: true }).count(), 0);
      const row = page.getByRole('row', { name: /GPU box/ });
      await row.locator('.health-mark').getByText('paused').waitFor({ state: 'attached' });
      assert.equal(await row.locator('.mark-good').count(), 0);
      assert.equal((await service.instance(instance_id)).webhook_enabled, false);

      await service.send('m', { n: 2 });
      await detail.getByRole('button', { name: 'Resend failed…' }).click();
      await page
        .getByRole('dialog')
        .getByText(/^1 message arrived while it was paused\. What arrives then is not queued for it/)
        .waitFor();
      await page.keyboard.press('Escape');
      await detail.getByRole('button', { name: 'Resume' }).click();
      await detail.getByText('up', { exact: true }).waitFor();
      await service.settled(await service.send('m', { n: 3 }));
    });
    const numbers = receiver.requests.map((request) => pushOf(request).message['n']);
    assert.deepEqual(numbers, [1, 3]);
  });

  test('an advice that names a setting is followed with one click', async (t) => {
    const service = await startService(t);
    const { instance_id, receiver } = await failing(t, service, 1);
    receiver.behaviour = { status: 202 };
    await visitor.visit(service.url, { path: `/instances/${instance_id}` }, async (page) => {
      await page.getByRole('button', { name: 'Count every 2xx as delivered' }).click();
      await page.getByText('Every 2xx counts as delivered from now on.').waitFor();
    });
    assert.equal((await service.instance(instance_id)).success_statuses, '2xx');
    assert.equal((await service.settled(await service.send('m', {}))).state, 'delivered');
  });

  test('a button that moves while it is pressed is pressed, and one that the pointer leaves is not', async (t) => {
    const service = await startService(t);
    await service.member(t, 'm', { registration: { instance_id: 'box' } });
    await service.settled(await service.send('m', {}));
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      await stretchTimers(page);
      const { held, release } = await holdBack(page, '**/api/v1/instances/box/history/');
      await follow(page, '/instances/box');
      await held;
      const button = page.getByRole('button', { name: 'Edit…' });
      const dialog = page.getByRole('dialog');
      await page.getByRole('link', { name: 'm', exact: true }).waitFor();
      await page.getByRole('link', { name: /#1\s*delivered/ }).waitFor();
      await button.hover();
      const before = (await button.boundingBox())!;
      await page.mouse.down();
      release();
      await until(
        'the button to move',
        async () => (await button.boundingBox())!,
        ({ y }) => Math.abs(y - before.y) > before.height,
      );
      await page.mouse.up();
      await dialog.waitFor();
      await dialog.getByRole('button', { name: 'Close' }).click();
      await dialog.waitFor({ state: 'detached' });

      await button.hover();
      await page.mouse.down();
      await page.mouse.move(4, 4, { steps: 3 });
      await page.mouse.up();
      await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
      assert.equal(await dialog.count(), 0);
    });
  });

  test('an instance is edited on its page: its name, agents, address, headers and time; a wrong one is refused by its name', async (t) => {
    const service = await startService(t);
    const { instance_id } = await failing(t, service, 1);
    const other = await startReceiver(t);
    await visitor.visit(service.url, { path: `/instances/${instance_id}`, allowed: /422/ }, async (page) => {
      await page.getByRole('button', { name: 'Edit…' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Webhook URL').fill('http://user:secret@127.0.0.1/');
      await dialog.getByRole('button', { name: 'Save' }).click();
      await dialog
        .getByRole('alert')
        .getByText(/webhook_url/)
        .waitFor();
      await dialog.getByLabel('Name').fill('The box');
      await dialog.getByLabel('Agents').fill('a, b');
      await dialog.getByLabel('Webhook URL').fill(other.url);
      await dialog.getByLabel('Headers').fill('authorization: Bearer 3f9c20d1');
      await dialog.getByLabel('Time for an answer, in seconds').fill('9');
      await dialog.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('heading', { name: 'The box' }).waitFor();
      await page.getByText('authorization', { exact: true }).waitFor();
    });
    const changed = await service.instance(instance_id);
    assert.deepEqual(
      [changed.instance_name, changed.agent_ids, changed.webhook_url, changed.webhook_header_names, changed.timeout_s],
      ['The box', ['a', 'b'], other.url, ['authorization'], 9],
    );
    await service.send('m', {});
    assert.equal((await other.next()).headers['authorization'], 'Bearer 3f9c20d1');
  });

  test('a delivery shows its message, the request beside each response, and a curl command without secrets', async (t) => {
    const service = await startService(t);
    const registration = { webhook_headers: { authorization: 'Bearer canary-3f9c20d1' } };
    await service.member(t, 'm', { registration, behaviour: { status: 202, body: 'later' } });
    const { delivery_id } = await service.settled(await service.sendText('m', '{"n":12345678901234567890}'));
    const path = `/deliveries/${delivery_id}`;
    const permissions = ['clipboard-read', 'clipboard-write'];
    await visitor.visit(service.url, { path, permissions }, async (page) => {
      const body = page.getByLabel('The body of the request, with the message');
      await body.getByText('"message":{"n":12345678901234567890}').waitFor();
      const attempt = page.locator('.attempt');
      await attempt.getByText('later').waitFor();
      await attempt.getByText('Request').click();
      await attempt.getByText('[hidden]').waitFor();
      await attempt.getByText('[signature]').waitFor();
      await page.getByRole('button', { name: 'Copy the curl command' }).click();
      await page.getByText('Copied the curl command.').waitFor();
      const copied = await page.evaluate<string>('navigator.clipboard.readText()');
      assert.match(copied, /^curl --globoff -X POST 'http:/);
      assert.match(copied, /'authorization: \[hidden\]'/);
      assert.doesNotMatch(copied + (await page.content()), /canary/);
    });
  });

  test('"Undo" of a pause or of its end takes back that alone, and nothing that somebody else has changed meanwhile', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'm');
    await visitor.visit(service.url, { path: `/instances/${instance_id}` }, async (page) => {
      for (const [action, others_change, after] of [
        ['Pause', { is_active: false }, [false, true]],
        ['Resume', { webhook_enabled: false }, [false, false]],
      ] as const) {
        await page.reload();
        await stretchTimers(page);
        await page.getByRole('button', { name: action, exact: true }).click();
        await page.getByRole('button', { name: 'Undo' }).waitFor();
        await service.patch(instance_id, others_change);
        await page.getByRole('button', { name: 'Undo' }).click();
        await page.getByText('Undone.').waitFor();
        const { is_active, webhook_enabled } = await service.instance(instance_id);
        assert.deepEqual([is_active, webhook_enabled], after, action);
      }
    });
  });

  test('"Undo" of a raised limit gives the meeting back what it had: no limit of its own', async (t) => {
    const service = await startService(t, { hop_limit: '1' });
    await service.member(t, 'echo', { agent_ids: ['anna'] });
    for (const content of ['one', 'two'])
      await service.post('/api/v1/meetings/echo/messages/', { message: { content }, from_agent: 'ben' });
    const limit = async (): Promise<number | null> =>
      (await service.get<Meeting>('/api/v1/meetings/echo/')).body.hop_limit;
    await visitor.visit(service.url, { path: '/meetings/echo' }, async (page) => {
      await stretchTimers(page);
      await page.getByRole('button', { name: 'Raise the limit to 2' }).click();
      await page.getByText('The limit is 2.').waitFor();
      assert.equal(await limit(), 2);
      await page.getByRole('button', { name: 'Undo' }).click();
      await page.getByText('Undone.').waitFor();
      assert.equal(await limit(), null);
    });
  });

  test('a pause, a change and a departure from a meeting are taken back with "Undo"; headers that nobody can read are not', async (t) => {
    const service = await startService(t);
    const { instance_id } = await service.member(t, 'm', { registration: { instance_name: 'GPU box' } });
    await service.request('PATCH', `/api/v1/meetings/m/instances/${instance_id}/`, { body: { wake: 'targeted' } });
    const read = async (): Promise<Instance> => (await service.get<Instance>(`/api/v1/instances/${instance_id}/`)).body;
    await visitor.visit(service.url, { path: `/instances/${instance_id}` }, async (page) => {
      await stretchTimers(page);
      const undo = page.getByRole('button', { name: 'Undo' });
      const undone = async (): Promise<void> => {
        await undo.click();
        await page.getByText('Undone.').waitFor();
      };
      await page.getByRole('button', { name: 'Pause', exact: true }).click();
      await page.getByText('Paused. Nothing is pending. New messages are not queued.', { exact: true }).waitFor();
      assert.equal((await read()).webhook_enabled, false);
      await undone();
      assert.equal((await read()).webhook_enabled, true);
      await page.getByRole('button', { name: 'Pause', exact: true }).waitFor();

      await page.getByRole('button', { name: 'Leave m' }).click();
      await undone();
      await page.getByRole('button', { name: 'Leave m' }).waitFor();
      const [member] = (await service.get<ListOf<MeetingInstance>>('/api/v1/meetings/m/instances/')).body.data;
      assert.deepEqual([member?.left_at, member?.wake], [null, 'targeted']);

      const edit = async (label: string, value: string): Promise<void> => {
        await page.getByRole('button', { name: 'Edit…' }).click();
        await page.getByRole('dialog').getByLabel(label, { exact: true }).fill(value);
        await page.getByRole('button', { name: 'Save' }).click();
        await page.getByText('Saved.').waitFor();
      };
      await edit('Name', 'Another name');
      await undone();
      await page.getByRole('heading', { name: 'GPU box' }).waitFor();
      await edit('Headers', 'x-team: blue');
      assert.equal(await undo.count(), 0);
    });
  });
});
