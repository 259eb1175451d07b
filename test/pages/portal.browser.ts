/** The portal in a real browser: on a page of another product, for the owner of a key, while the link is valid. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, test, type TestContext } from 'node:test';
import type { ApiKeyWithToken, PortalLink } from '@convoke/sdk';
import type { FrameLocator, Locator } from 'playwright-core';
import { useVisitor } from '../support/browser.ts';
import type { Behaviour } from '../support/receiver.ts';
import { type Service, startService } from '../support/service.ts';

const visitor = useVisitor();

/** Lines that Chromium logs for each unsuccessful response, and for each frame that a policy blocks. */
const REFUSALS = /Failed to load resource/;
const BLOCKED = /frame-ancestors|Failed to load resource|ERR_BLOCKED_BY_RESPONSE/;

/** Serves the page of another product, at another origin, with a frame for each address. */
async function startProduct(
  t: TestContext,
  attributes = '',
): Promise<{ origin: string; show: (...addresses: string[]) => void }> {
  let framed: string[] = [];
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/html' });
    const frames = framed.map(
      (address) => `<iframe src="${address}" width="1000" height="700" ${attributes}></iframe>`,
    );
    response.end(`<title>Our product</title><link rel="icon" href="data:,">${frames.join('')}`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { origin, show: (...addresses) => (framed = addresses) };
}

/** Starts a service with an instance of a customer, and an instance of somebody else. */
async function startWithOwner(
  t: TestContext,
  portal_origins: string,
  behaviour?: Behaviour,
): Promise<{ service: Service; owner: ApiKeyWithToken }> {
  const service = await startService(t, { portal_origins });
  await service.endOpenMode();
  await service.member(t, 'standup', { registration: { instance_id: 'other', instance_name: 'Other box' } });
  const owner = await service.createKey({ scopes: ['instance'] });
  const admin = service.token;
  service.token = owner.token;
  await service.member(t, 'standup', {
    agent_ids: ['anna'],
    registration: { instance_id: 'box', instance_name: 'GPU box' },
    ...(behaviour && { behaviour }),
  });
  service.token = admin;
  return { service, owner };
}

/** Makes a key of another customer, who has an instance. */
async function anotherOwner(t: TestContext, service: Service): Promise<ApiKeyWithToken> {
  const owner = await service.createKey({ scopes: ['instance'] });
  const admin = service.token;
  service.token = owner.token;
  const registration = { instance_id: 'laptop', instance_name: 'Old laptop' };
  await service.member(t, 'standup', { agent_ids: ['ben'], registration });
  service.token = admin;
  return owner;
}

async function linkOf(service: Service, { key_id }: ApiKeyWithToken): Promise<string> {
  return (await service.post<PortalLink>(`/api/v1/keys/${key_id}/portal-link/`)).body.link;
}

const rowOf = (frame: FrameLocator, name: string) => frame.getByRole('link', { name });

describe('the portal', () => {
  test('in a frame of a named origin shows the instances of the key, follows them, and changes them', async (t) => {
    const product = await startProduct(t);
    const { service, owner } = await startWithOwner(t, product.origin);
    product.show(await linkOf(service, owner));
    await visitor.visit(product.origin, { also: service.url }, async (page) => {
      const frame = page.frameLocator('iframe');
      await rowOf(frame, 'GPU box').waitFor();
      assert.equal(await rowOf(frame, 'Other box').count(), 0);
      for (const view of ['Now', 'Meetings', 'Keys', 'Audit']) {
        assert.equal(await frame.getByRole('link', { name: view, exact: true }).count(), 0, view);
      }
      const [, framed] = page.frames();
      assert.doesNotMatch(framed!.url(), /cvp_/, 'the link does not stay in the address');

      await rowOf(frame, 'GPU box').click();
      await frame.getByRole('heading', { name: 'GPU box' }).waitFor();
      assert.match(framed!.url(), /\/portal\/instances\/box$/);
      // The portal follows the feed when somebody else changes the name.
      await service.patch('box', { instance_name: 'New box' });
      await frame.getByRole('heading', { name: 'New box' }).waitFor();

      await frame.getByRole('link', { name: 'Deliveries', exact: true }).click();
      await service.send('standup', { content: 'hello' });
      await frame.getByText('box', { exact: true }).first().waitFor();
      // The frame can be reloaded without a new link.
      await framed!.evaluate('location.reload()');
      await frame.getByText('box', { exact: true }).first().waitFor();
    });
  });

  test('in a sandboxed frame searches its instances, pauses one, and takes that back', async (t) => {
    const product = await startProduct(t, 'sandbox="allow-scripts allow-same-origin allow-forms"');
    const { service, owner } = await startWithOwner(t, product.origin);
    product.show(await linkOf(service, owner));
    await visitor.visit(product.origin, { also: service.url }, async (page) => {
      const frame = page.frameLocator('iframe');
      await frame
        .getByRole('button', { name: /^Search/ })
        .first()
        .click();
      await page.keyboard.type('box');
      const found = frame.getByRole('option', { name: /Instance GPU box/ });
      await found.waitFor();
      for (const hidden of [/Other box/, /^Agent/, /^Meeting/]) {
        assert.equal(await frame.getByRole('option', { name: hidden }).count(), 0);
      }
      await page.keyboard.press('Enter');
      await frame.getByRole('heading', { name: 'GPU box' }).waitFor();
      await frame.getByRole('button', { name: 'Pause', exact: true }).click();
      await frame.getByRole('button', { name: 'Resume', exact: true }).waitFor();
      await frame.getByRole('button', { name: 'Undo' }).click();
      await frame.getByText('Undone.').waitFor();
      await frame.getByRole('button', { name: 'Pause', exact: true }).waitFor();
    });
  });

  test('on a phone has its sections across the whole width', async (t) => {
    const { service, owner } = await startWithOwner(t, '');
    const { pathname, hash } = new URL(await linkOf(service, owner));
    const viewport = { width: 390, height: 844 };
    await visitor.visit(service.url, { path: pathname + hash, viewport }, async (page) => {
      const more = await page.getByRole('button', { name: 'More' }).boundingBox();
      assert.ok(more !== null);
      assert.equal(Math.round(more.x + more.width), viewport.width);
    });
  });

  test('offers what a link may do, and nothing that it may not', async (t) => {
    const { service, owner } = await startWithOwner(t, '', { status: 401, body: 'no token' });
    const sent = await service.send('standup', { content: 'hello' }, ['anna']);
    const delivery = await service.deliveryOf(sent, 'tried', ({ attempt_count }) => attempt_count > 0);
    const { pathname, hash } = new URL(await linkOf(service, owner));
    await visitor.visit(service.url, { path: pathname + hash }, async (page) => {
      const namesOf = async (role: 'button' | 'textbox' | 'combobox', within: Locator): Promise<string[]> => {
        const names = await Promise.all((await within.getByRole(role).all()).map((one) => one.ariaSnapshot()));
        return names.map((name) => /^- [a-z]+ "([^"]*)"/.exec(name)?.[1] ?? name);
      };
      const main = page.getByRole('main');
      await page.getByRole('link', { name: 'GPU box' }).waitFor();
      assert.deepEqual(await namesOf('button', page.locator('.page-head')), []);
      await page.locator('.nav-link[aria-current=page]', { hasText: 'Instances' }).waitFor();
      for (const key of ['g', 'm']) await page.keyboard.press(key);
      assert.equal(await page.getByRole('link', { name: 'GPU box' }).count(), 1, 'no shortcut leads to meetings');

      await page.goto(`${service.url}/portal/instances/box?new${hash}`);
      const detail = page.getByRole('region', { name: 'Instance box' });
      await detail.getByRole('button', { name: 'Edit…' }).waitFor();
      assert.equal(await page.getByRole('dialog').count(), 0, 'nothing can be registered');
      assert.deepEqual(
        (await namesOf('button', detail)).filter((name) => !/^(Copy|Close|Last|Latency|Attempts)/.test(name)),
        ['Test the webhook', 'Retry pending now', 'Resend failed…', 'Pause', 'Edit…'],
      );
      await detail.getByRole('button', { name: 'Test the webhook' }).click();
      await detail.getByRole('group', { name: 'Result of the test' }).waitFor();
      assert.equal(await detail.getByRole('button', { name: 'Set its headers…' }).count(), 0);
      await detail.getByRole('button', { name: 'Retry pending now' }).click();
      await page.getByText('Pending deliveries are being sent.').waitFor();
      await detail.getByRole('button', { name: 'Resend failed…' }).click();
      await page.getByText('Nothing failed in that time').waitFor();
      await page.keyboard.press('Escape');
      await detail.getByRole('button', { name: 'Edit…' }).click();
      const dialog = page.getByRole('dialog');
      assert.deepEqual(await namesOf('textbox', dialog), ['Name', 'Time for an answer, in seconds']);
      assert.deepEqual(await namesOf('combobox', dialog), ['Delivered when it answers']);
      await dialog.getByLabel('Name').fill('New box');
      await dialog.getByLabel('Time for an answer, in seconds').fill('20');
      await dialog.getByLabel('Delivered when it answers').selectOption('2xx');
      await dialog.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('heading', { name: 'New box' }).waitFor();
      await page.getByRole('button', { name: 'Undo' }).click();
      await page.getByRole('heading', { name: 'GPU box' }).waitFor();

      await page.goto(`${service.url}/portal/deliveries/${delivery.delivery_id}${hash}`);
      await main.getByText('More filters').click();
      assert.equal(await page.getByLabel('Agent id').count(), 1, 'control: a filter');
      assert.equal(await page.getByLabel('Text of the message').count(), 0, 'it would search messages');
      await page.getByRole('button', { name: 'Retry now' }).click();
      await page.getByText('Queued again.').waitFor();
      const links = await page.getByRole('link').evaluateAll((all) => all.map((link) => link.getAttribute('href')));
      for (const link of links) assert.match(link ?? '', /^\/portal\/(instances|deliveries)/);

      await page.keyboard.press('Control+k');
      await page.getByRole('option', { name: /Failed deliveries/ }).waitFor();
      assert.equal(await page.getByRole('option', { name: /^Do/ }).count(), 0);
      await page.keyboard.press('Escape');
      await page.keyboard.press('?');
      await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
      assert.equal(await page.getByRole('link', { name: '/docs/' }).count(), 0, 'no frame shows it');
    });
  });

  test('leads nowhere else with a link that is opened in a new tab', async (t) => {
    const { service, owner } = await startWithOwner(t, '');
    const link = new URL(await linkOf(service, owner));
    await visitor.visit(service.url, { path: link.pathname + link.hash, allowed: REFUSALS }, async (page) => {
      const row = page.getByRole('link', { name: 'Open GPU box' });
      await row.click();
      await page.waitForURL('**/portal/instances/box');
      // The test opens the tab itself: now and then the driver of the browser does not attach to a tab that a page opens.
      const deliveries = page.getByRole('link', { name: 'Deliveries', exact: true });
      await page.evaluate(`addEventListener('click', (event) => {
        globalThis.is_left_to_browser = !event.defaultPrevented;
        event.preventDefault();
      })`);
      await deliveries.click({ modifiers: ['ControlOrMeta'] });
      assert.equal(await page.evaluate('is_left_to_browser'), true);
      await deliveries.click();
      assert.equal(await page.evaluate('is_left_to_browser'), false, 'control');
      const href = await deliveries.evaluate((element) => (element as unknown as { href: string }).href);
      const tab = await page.context().newPage();
      await tab.goto(href);
      await tab.getByText('This link has ended.').waitFor();
      assert.equal(new URL(tab.url()).pathname, '/portal/deliveries');
    });
  });

  test('in two frames of one page shows in each what its own link shows, also when a frame is loaded again', async (t) => {
    const product = await startProduct(t);
    const { service, owner } = await startWithOwner(t, product.origin);
    product.show(await linkOf(service, owner), await linkOf(service, await anotherOwner(t, service)));
    await visitor.visit(product.origin, { also: service.url }, async (page) => {
      const [annas, bens] = [0, 1].map((i) => page.frameLocator(`iframe >> nth=${i}`)) as [FrameLocator, FrameLocator];
      const showOwn = async (of_anna: string, of_ben: string): Promise<void> => {
        await service.patch('box', { instance_name: of_anna });
        await service.patch('laptop', { instance_name: of_ben });
        await rowOf(annas, of_anna).waitFor();
        await rowOf(bens, of_ben).waitFor();
        assert.equal(await rowOf(annas, of_ben).count(), 0);
        assert.equal(await rowOf(bens, of_anna).count(), 0);
      };
      await rowOf(annas, 'GPU box').waitFor();
      await rowOf(bens, 'Old laptop').waitFor();
      await showOwn('Second box', 'Second laptop');
      for (const framed of page.frames().slice(1)) await framed.evaluate('location.reload()');
      await showOwn('Third box', 'Third laptop');
    });
  });

  test('in a frame that gets another link shows what that link shows, and the link does not stay in the address', async (t) => {
    const product = await startProduct(t);
    const { service, owner } = await startWithOwner(t, product.origin);
    const another = await linkOf(service, await anotherOwner(t, service));
    product.show(await linkOf(service, owner));
    await visitor.visit(product.origin, { also: service.url }, async (page) => {
      const frame = page.frameLocator('iframe');
      await rowOf(frame, 'GPU box').waitFor();
      await page.evaluate(`document.querySelector('iframe').src = ${JSON.stringify(another)}`);
      await rowOf(frame, 'Old laptop').waitFor();
      assert.equal(await rowOf(frame, 'GPU box').count(), 0);
      const [, framed] = page.frames();
      assert.doesNotMatch(framed!.url(), /cvp_/);
      await service.patch('laptop', { instance_name: 'New laptop' });
      await rowOf(frame, 'New laptop').waitFor();
    });
  });

  test('copies in a frame that gives it no right to the clipboard', async (t) => {
    const product = await startProduct(t);
    const { service, owner } = await startWithOwner(t, product.origin);
    product.show(await linkOf(service, owner));
    await visitor.visit(product.origin, { also: service.url, allowed: /clipboard/i }, async (page) => {
      const frame = page.frameLocator('iframe');
      await rowOf(frame, 'GPU box').click();
      await frame.getByRole('button', { name: 'Copy the instance id' }).click();
      await frame.getByText('Copied the instance id.').waitFor();
      await frame.getByRole('link', { name: 'Close the instance' }).click();
      const filter = frame.getByRole('searchbox', { name: 'Filter by id or name' });
      await filter.press('Control+v');
      assert.equal(await filter.inputValue(), 'box');
    });
  });

  test('says in words that a link has ended, at once when its key is revoked', async (t) => {
    const product = await startProduct(t);
    const { service, owner } = await startWithOwner(t, product.origin);
    product.show(await linkOf(service, owner));
    await visitor.visit(product.origin, { also: service.url, allowed: REFUSALS }, async (page) => {
      const frame = page.frameLocator('iframe');
      await rowOf(frame, 'GPU box').waitFor();
      await service.request('DELETE', `/api/v1/keys/${owner.key_id}/`);
      await frame.getByText('This link has ended.').waitFor();
      await page.reload();
      await frame.getByText('This link has ended.').waitFor();
    });
  });

  test('sends no cookie of a signed-in person: an operator who opens it sees what its link shows', async (t) => {
    const { service, owner } = await startWithOwner(t, '');
    const { pathname, hash } = new URL(await linkOf(service, owner));
    await visitor.visit(service.url, { path: '/', allowed: REFUSALS }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(service.token ?? '');
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('link', { name: 'Keys' }).first().waitFor();
      await page.goto(`${service.url}${pathname}`);
      await page.getByText('This link has ended.').waitFor();
      await page.goto(`${service.url}/now`);
      await page.goto(`${service.url}${pathname}${hash}`);
      await page.getByRole('link', { name: 'GPU box' }).waitFor();
      assert.equal(await page.getByRole('link', { name: 'Other box' }).count(), 0);
      await service.request('DELETE', `/api/v1/keys/${owner.key_id}/`);
      await page.getByText('This link has ended.').waitFor();
    });
  });

  test('is not shown in a frame of an origin that is not named, and no other page is shown in any', async (t) => {
    const product = await startProduct(t);
    const outsider = await startProduct(t);
    const { service, owner } = await startWithOwner(t, product.origin);
    const link = await linkOf(service, owner);
    for (const [page_of, address] of [
      [outsider, link],
      [product, `${service.url}/instances`],
    ] as const) {
      page_of.show(address);
      await visitor.visit(page_of.origin, { also: service.url, allowed: BLOCKED }, async (page) => {
        const blocked = page.waitForEvent('console', (message) => /frame-ancestors/.test(message.text()));
        await Promise.all([blocked, page.reload()]);
        assert.equal(await page.frameLocator('iframe').getByText('GPU box').count(), 0);
      });
    }
  });
});
