/** What a page shows of its session: while it begins, when it ends, and to the next person. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { holdBack, openRequests, stretchTimers, useVisitor } from '../support/browser.ts';
import { freePort } from '../support/free_port.ts';
import { messagesPath, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

/** The start page has a section with the same name. */
const keyField = (page: Page) => page.locator('form').getByLabel('Key', { exact: true });

async function enter(page: Page, token: string): Promise<void> {
  await keyField(page).fill(token);
  await keyField(page).press('Enter');
}

const signOut = (page: Page) => page.getByRole('button', { name: 'Sign out' }).click();

const isLive = (page: Page) => page.getByText('Live', { exact: true }).waitFor();

/** A file of the pages that is no view. */
const NO_VIEW = '/favicon.svg';

interface Late {
  what: string;
  path?: string;
  /** The request whose response comes after the session. */
  url: string;
  method: string;
  /** The lines that the console may have. */
  allowed?: RegExp;
  /** Opens the dialog and confirms it. Begins to hold back responses right before that. */
  ask: (page: Page, hold: () => ReturnType<typeof holdBack>) => Promise<() => void>;
}

/** Presses a button whose response comes late. */
async function pressed(page: Page, name: string, hold: () => ReturnType<typeof holdBack>): Promise<() => void> {
  const { held, release } = await hold();
  await page.getByRole('button', { name, exact: true }).last().click();
  await held;
  return release;
}

/** Presses a button whose request fails late. */
async function failing(page: Page, url: string, name: string): Promise<() => void> {
  const held = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  await page.route(url, async (route) => {
    held.resolve();
    await released.promise;
    return route.fulfill({ status: 503, body: 'away' });
  });
  await press(page, name);
  await held.promise;
  return released.resolve;
}

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();

/** What tells its result when the service responds. */
const LATE: Late[] = [
  {
    what: 'a registration',
    path: '/instances',
    url: '**/api/v1/instances/register/',
    method: 'POST',
    ask: async (page, hold) => {
      await page.getByRole('button', { name: 'Register' }).click();
      await page.getByLabel('Instance id').fill('new');
      await page.getByLabel('Webhook URL').fill('http://127.0.0.1:1/');
      return pressed(page, 'Register', hold);
    },
  },
  {
    what: 'an edit',
    url: '**/api/v1/instances/box/',
    method: 'PATCH',
    ask: async (page, hold) => {
      await press(page, 'Edit…');
      await page.getByRole('textbox', { name: 'Name' }).fill('Other');
      return pressed(page, 'Save', hold);
    },
  },
  {
    what: 'a change of what a member gets',
    path: '/meetings/room',
    url: '**/api/v1/meetings/room/instances/box/',
    method: 'PATCH',
    ask: async (page, hold) => {
      await page.locator('.meeting-members > summary').click();
      await page.getByRole('button', { name: /change what Box gets/ }).click();
      await page.getByRole('radio', { name: 'Only the newest' }).check({ force: true });
      return pressed(page, 'Save', hold);
    },
  },
  {
    what: 'deliveries that were dropped',
    url: '**/api/v1/deliveries/drop/',
    method: 'POST',
    ask: async (page, hold) => {
      await press(page, 'Drop pending…');
      await page.getByText('1 delivery waits').waitFor();
      return pressed(page, 'Drop', hold);
    },
  },
  {
    what: 'a recovery',
    url: '**/api/v1/instances/box/recover/',
    method: 'POST',
    ask: async (page, hold) => {
      await press(page, 'Resend failed…');
      await page.getByRole('button', { name: 'Resend 1 delivery' }).waitFor();
      return pressed(page, 'Resend 1 delivery', hold);
    },
  },
  {
    what: 'a key that was revoked',
    path: '/keys/KEY',
    url: '**/api/v1/keys/KEY/',
    method: 'DELETE',
    ask: async (page, hold) => {
      await press(page, 'Revoke…');
      return pressed(page, 'Revoke', hold);
    },
  },
  {
    what: 'a deletion',
    url: '**/api/v1/instances/box/',
    method: 'DELETE',
    // The page reads the instance again when the event of its deletion comes before the end of the session.
    allowed: /401|404|503/,
    ask: async (page, hold) => {
      await press(page, 'Delete…');
      return pressed(page, 'Delete', hold);
    },
  },
  {
    what: 'a message that was not found',
    path: '/meetings/room',
    url: '**/api/v1/messages/*/?*',
    method: 'GET',
    ask: async (page) => {
      // A reload before that would end the sign-in.
      await isLive(page);
      // The page has only the second message, which answers the first.
      await page.route('**/api/v1/meetings/room/messages/?*', async (route) => {
        const response = await route.fetch();
        const { data, ...rest } = (await response.json()) as { data: { seq: number }[] };
        await route.fulfill({ response, json: { ...rest, data: data.filter(({ seq }) => seq !== 1) } });
      });
      await page.reload();
      return failing(page, '**/api/v1/messages/*/?*', 'an earlier message');
    },
  },
  {
    what: 'a webhook test that failed',
    url: '**/api/v1/instances/box/webhook-test/',
    method: 'POST',
    ask: (page) => failing(page, '**/webhook-test/', 'Test the webhook'),
  },
];

/** From now on the service says that it has this version. */
async function answerAs(page: Page, version: string): Promise<void> {
  await page.route('**/api/v1/session/', async (route) => {
    const response = await route.fetch();
    const found = (await response.json()) as object;
    await route.fulfill({ response, json: { ...found, version } });
  });
}

describe('a session on a page', { concurrency: 3 }, () => {
  test('takes its notices with it, also those that can be undone and those of answers that come later', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    await visitor.visit(service.url, { path: '/instances/box', allowed: /401/ }, async (page) => {
      await stretchTimers(page);
      await enter(page, token);
      await page.getByRole('button', { name: 'Pause', exact: true }).click();
      await page.getByRole('button', { name: 'Undo' }).waitFor();
      await signOut(page);
      await keyField(page).waitFor();
      assert.equal(await page.locator('.notice').count(), 0);
      await enter(page, token);

      const { held, release } = await holdBack(page, '**/api/v1/instances/box/', 'PATCH');
      await page.getByRole('button', { name: 'Resume', exact: true }).click();
      await held;
      await signOut(page);
      await keyField(page).waitFor();
      const answered = page.waitForEvent('requestfinished', (request) => request.method() === 'PATCH');
      release();
      await answered;
      await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
      assert.equal(await page.locator('.notice').count(), 0);
    });
  });

  for (const { what, path = '/instances/box', url, method, allowed = /401|503/, ask } of LATE) {
    test(`that ends in another tab shows the next person nothing about ${what}`, async (t) => {
      const service = await startService(t);
      const { token } = await service.endOpenMode();
      const { key_id } = await service.createKey({ scopes: ['send'], name: 'of the build' });
      const { receiver } = await service.member(t, 'room', {
        registration: { instance_id: 'box', instance_name: 'Box' },
        behaviour: { status: 202 },
      });
      const first = await service.send('room', {});
      await service.settled(first);
      receiver.behaviour = { status: 500 };
      const answer = { message: {}, from_agent: 'anna', in_reply_to: first.message_id };
      assert.equal((await service.post(messagesPath('room'), answer)).status, 201);
      await receiver.count(2);
      await visitor.visit(service.url, { path: path.replace('KEY', key_id), allowed }, async (page) => {
        await enter(page, token);
        const open = openRequests(page);
        await stretchTimers(page);
        const release = await ask(page, () => holdBack(page, url.replace('KEY', key_id), method));
        const elsewhere = await page.context().newPage();
        await elsewhere.goto(service.url);
        await signOut(elsewhere);
        await keyField(page).waitFor();
        release();
        await until('the end of every request', open, (urls) => urls.length === 0);
        await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
        assert.equal(await page.locator('.notice').count(), 0);
        assert.equal(new URL(page.url()).pathname, path.replace('KEY', key_id));
      });
    });
  }

  test('that ends leaves a secret that is shown once on the page until it is saved or somebody else signs in', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    const other = await service.createKey({ scopes: ['admin'] });
    const { key_id } = await service.createKey({ scopes: ['send'] });
    await visitor.visit(service.url, { path: `/keys/${key_id}`, allowed: /401/ }, async (page) => {
      const dialog = page.getByRole('dialog', { name: 'Save this token' });
      const secret = dialog.getByLabel('the token', { exact: true });
      const elsewhere = await page.context().newPage();
      await elsewhere.goto(service.url);
      const rotate = async (): Promise<string> => {
        await press(page, 'Rotate…');
        await press(page, 'Make a new token');
        return secret.innerText();
      };
      await enter(page, token);
      const made = await rotate();
      await signOut(elsewhere);
      await keyField(page).waitFor();
      assert.equal(await secret.innerText(), made);
      await enter(elsewhere, token);
      await page.getByRole('heading', { name: 'Keys', exact: true }).waitFor();
      assert.equal(await secret.innerText(), made);
      await press(page, 'I’ve saved it');
      await dialog.waitFor({ state: 'detached' });

      await rotate();
      await signOut(elsewhere);
      await enter(elsewhere, other.token);
      await dialog.waitFor({ state: 'detached' });

      // An earlier end of the session loses no secret either.
      const { held, release } = await holdBack(page, '**/rotate/', 'POST');
      await press(page, 'Rotate…');
      await press(page, 'Make a new token');
      await held;
      await signOut(elsewhere);
      await keyField(page).waitFor();
      release();
      assert.match(await secret.innerText(), /^cvk_/);
      await press(page, 'I’ve saved it');
      await dialog.waitFor({ state: 'detached' });
    });
  });

  test('ends with a sign-out, however often somebody presses, and also when it has ended before', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await visitor.visit(service.url, { path: '/instances', allowed: /401|ERR_FAILED/ }, async (page) => {
      await enter(page, token);
      await isLive(page);
      const pressed = Promise.withResolvers<void>();
      let [asked, answered] = [0, 0];
      await page.route('**/api/v1/session/', async (route) => {
        if (route.request().method() !== 'DELETE') return route.continue();
        asked++;
        await pressed.promise;
        return route.continue();
      });
      page.on('requestfinished', (request) => (answered += Number(request.method() === 'DELETE')));
      await signOut(page);
      await signOut(page);
      pressed.resolve();
      await keyField(page).waitFor();
      await until(
        'every answer',
        () => answered,
        (count) => count === asked,
      );
      await page.evaluate('new Promise((resolve) => setTimeout(resolve))');
      assert.equal(await page.locator('.notice').count(), 0);
      assert.equal(await page.getByRole('alert').count(), 0);

      // No event and no other request tells this page that an admin ends its session.
      await page.clock.install();
      await page.goto(`${service.url}/instances`);
      const open = openRequests(page);
      await enter(page, token);
      await isLive(page);
      await page.route('**/api/**', (route) => (route.request().method() === 'GET' ? route.abort() : route.continue()));
      await page.clock.pauseAt(new Date(Date.now() + 3_600_000));
      await until(
        'the end of every request but the stream of events',
        () => open().filter((url) => !url.includes('/events/')).length,
        (count) => count === 0,
      );
      const { data } = (await service.get<{ data: { session_id: string }[] }>('/api/v1/sessions/')).body;
      for (const { session_id } of data) await service.request('DELETE', `/api/v1/sessions/${session_id}/`);
      await signOut(page);
      await keyField(page).waitFor();
      assert.equal(await page.locator('.notice').count(), 0);
    });
  });

  test('has ended when its cookie is gone, and the page says so', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await visitor.visit(service.url, { path: '/meetings', allowed: /401/ }, async (page) => {
      await enter(page, token);
      await isLive(page);
      // The service removes the cookie of a session that has ended when a page asks who is signed in.
      await page.context().clearCookies();
      await service.send('new', {});
      await page
        .getByRole('alert')
        .getByText(/^You were signed out: your session has ended/)
        .waitFor();
    });
  });

  test('says that the service does not respond only until it responds', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: NO_VIEW, allowed: /ERR_FAILED|502/ }, async (page) => {
      // A proxy before the service responds in its place.
      for (const status of [null, 502]) {
        await page.route('**/api/v1/session/', (route) =>
          status === null ? route.abort() : route.fulfill({ status, contentType: 'text/html', body: 'Bad Gateway' }),
        );
        await page.goto(`${service.url}/instances`);
        const notice = page.getByText('The service does not respond. This page continues by itself when it does.');
        await notice.waitFor();
        await page.unroute('**/api/v1/session/');
        await page.getByRole('heading', { name: 'Instances', exact: true }).waitFor();
        await isLive(page);
        assert.equal(await notice.count(), 0);
      }
    });
  });

  test('does not begin with a key that has a character no key has, and the page says so', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await visitor.visit(service.url, { allowed: /401/ }, async (page) => {
      for (const mistyped of [`${token.slice(0, 9)}\u200b${token.slice(9)}`, 'ключ', token.slice(0, -1)]) {
        await enter(page, mistyped);
        await page.getByRole('alert').getByText('Copy the whole key again.').waitFor();
        await keyField(page).fill('');
      }
    });
  });

  test('begins with a link also in a tab that shows the page already, and ends the session before it', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const reader = await service.createKey({ scopes: ['read'], name: 'reader' });
    await visitor.visit(service.url, { path: '/', allowed: /Failed to load resource/ }, async (page) => {
      await keyField(page).waitFor();
      await page.goto(service.signInLink());
      await page.getByText('Signed in by a link').waitFor();
      assert.doesNotMatch(page.url(), /sign-in/);
      await signOut(page);
      await enter(page, reader.token);
      await page.getByText('read-only').waitFor();
      await page.goto(`${service.url}/instances`);
      await page.getByText('read-only').waitFor();
      await page.evaluate(`location.hash = ${JSON.stringify(new URL(service.signInLink()).hash)}`);
      await page.getByText('Signed in by a link').waitFor();
      // A link that does not work says so, and changes nothing.
      await page.evaluate("location.hash = '#sign-in=used'");
      await page.locator('.notice').waitFor();
      await page.getByText('Signed in by a link').waitFor();
    });
  });

  test('that began with a link and ended with a restart says why it ended', async (t) => {
    const service = await startService(t, { port: String(await freePort()) });
    await service.endOpenMode();
    const { url } = service;
    const allowed = /Failed to load resource/;
    await visitor.visit(url, { path: new URL(service.signInLink()).hash, allowed }, async (page) => {
      await isLive(page);
      await service.restart({});
      await page.getByRole('alert').getByText('your session has ended').waitFor();
      await page.getByRole('alert').getByText('started again').waitFor();
    });
  });

  test('of a key that may only send says so, and asks for no feed', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const sender = await service.createKey({ scopes: ['send'] });
    await visitor.visit(service.url, { path: '/now', allowed: /403/ }, async (page) => {
      const asked: string[] = [];
      page.on('request', (request) => asked.push(new URL(request.url()).pathname));
      await enter(page, sender.token);
      await page.getByText('Your key may only send').waitFor();
      await page.clock.install();
      await page.clock.runFor(60_000);
      assert.equal(await page.getByText('Not connected').count(), 0);
      assert.deepEqual(
        asked.filter((path) => path !== '/api/v1/session/' && path.startsWith('/api/')),
        [],
      );
      await signOut(page);
      await keyField(page).waitFor();
    });
  });

  test('of a key that sees a part of the service asks for the charts of all of it once', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const owner = await service.createKey({ scopes: ['instance'] });
    await visitor.visit(service.url, { path: '/now', allowed: /403/ }, async (page) => {
      await page.clock.install();
      await page.goto(`${service.url}/now`);
      let asked = 0;
      page.on('request', (request) => (asked += Number(request.url().includes('/api/v1/history/'))));
      await enter(page, owner.token);
      await page.getByText('Charts show the whole service').waitFor();
      for (let n = 0; n < 5; n++) await page.clock.runFor(3_000);
      assert.equal(asked, 1);
    });
  });

  test('that has just begun is not called disconnected since the session before it ended', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await visitor.visit(service.url, { path: '/instances', allowed: /401/ }, async (page) => {
      await page.clock.install();
      await page.goto(`${service.url}/instances`);
      await enter(page, token);
      await isLive(page);
      await signOut(page);
      await keyField(page).waitFor();
      await page.clock.runFor(10_000);
      const held = Promise.withResolvers<void>();
      await page.route('**/api/v1/events/', async (route) => {
        await held.promise;
        await route.continue();
      });
      const banners = await page.evaluateHandle<string[]>(`{
        const seen = [];
        new MutationObserver(() => {
          const banner = document.querySelector('.lost');
          if (banner !== null) seen.push(banner.textContent);
        }).observe(document.body, { childList: true, subtree: true });
        seen;
      }`);
      await page.clock.pauseAt(new Date(Date.now() + 3_600_000));
      await enter(page, token);
      await page.getByText('the first', { exact: true }).waitFor();
      await page.clock.runFor(300);
      assert.deepEqual(await banners.jsonValue(), []);
      // The control: the break is mentioned when it lasts.
      await page.clock.runFor(5_000);
      await page.getByText(/Not connected since/).waitFor();
      held.resolve();
    });
  });

  test('whose page was hidden while the service changed its version says so too', async (t) => {
    const service = await startService(t, { port: String(await freePort()) });
    const { url } = service;
    await visitor.visit(url, { path: '/instances', allowed: /Failed to load resource/ }, async (page) => {
      const hide = (is_hidden: boolean): Promise<void> =>
        page.evaluate(`{
          Object.defineProperty(document, 'hidden', { configurable: true, value: ${is_hidden} });
          document.dispatchEvent(new Event('visibilitychange'));
        }`);
      await isLive(page);
      await hide(true);
      await page.getByText('Connecting', { exact: true }).waitFor();
      await service.stop();
      await answerAs(page, '9.9.9');
      await service.restart({});
      await hide(false);
      await page.getByText('Convoke 9.9.9 runs now').waitFor();
    });
  });

  test('goes on when the service has another version, and the page says that it is older', async (t) => {
    const service = await startService(t, { port: String(await freePort()) });
    const { url } = service;
    await visitor.visit(url, { path: '/instances', allowed: /Failed to load resource/ }, async (page) => {
      await isLive(page);
      await service.stop();
      await answerAs(page, '9.9.9');
      await service.restart({});
      await page.getByText('Convoke 9.9.9 runs now').waitFor();
      await page.getByRole('button', { name: 'Load the page again' }).click();
      await page.getByText('Convoke 9.9.9', { exact: true }).waitFor();
      await isLive(page);
      assert.equal(await page.getByText('runs now').count(), 0);
    });
  });
});
