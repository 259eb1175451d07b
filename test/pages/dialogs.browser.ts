/**
 * Dialogs in a real browser. Some texts are shown only once, and some are half written by a person. No such text is
 * lost, cut off or covered.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Locator, Page, Route } from 'playwright-core';
import { follow, holdBack, OTHER_MACHINE, SLOW_FRAMES, stretchTimers, useVisitor } from '../support/browser.ts';
import { startReceiver } from '../support/receiver.ts';
import { membersPath, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

/**
 * The refusals that the console may show while a page makes the first key: 401 without a session, and 403 for a request
 * that the browser sends with the new cookie before the page has the CSRF token from the response.
 */
const REFUSALS = /401|403/;

/** Presses Escape twice, because a page can prevent only the first, and clicks beside the dialog. */
async function disturb(page: Page): Promise<void> {
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.mouse.click(4, 4);
}

/** Whether an element shows all of its text. */
const isWhole = (element: Locator): Promise<boolean> =>
  element.evaluate(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth);

describe('dialogs', { concurrency: 2 }, () => {
  for (const when of ['before', 'after'] as const) {
    test(`the token of the first key stays when a request of the page is refused, and the refusal arrives ${when} the sign-in`, async (t) => {
      const service = await startService(t);
      await visitor.visit(service.url, { path: '/keys', allowed: REFUSALS }, async (page) => {
        await page.getByText('Live', { exact: true }).waitFor();
        const refused = Promise.withResolvers<void>();
        const signed_in = Promise.withResolvers<void>();
        // The first key ends the feed, and the page asks for it again without a session.
        await page.route('**/api/v1/events/**', async (route) => {
          await page.unroute('**/api/v1/events/**');
          const response = await route.fetch();
          assert.equal(response.status(), 401);
          if (when === 'after') {
            refused.resolve();
            await signed_in.promise;
          }
          await route.fulfill({ response });
          refused.resolve();
        });
        await page.route('**/api/v1/session/', async (route) => {
          if (route.request().method() !== 'POST') return route.continue();
          await refused.promise;
          return route.continue();
        });
        await page.getByRole('button', { name: 'Make a key' }).click();
        await page.getByRole('button', { name: 'Make the key' }).click();
        await page.getByText('you are signed in with this one').waitFor();
        signed_in.resolve();
        const token = page.getByRole('dialog', { name: 'Save this token' }).getByLabel('the token', { exact: true });
        await token.waitFor();
        // The feed goes on with the session, so the page has handled the refusal.
        await page.getByText('Live', { exact: true }).waitFor();
        assert.match(await token.innerText(), /^cvk_/);
      });
    });
  }

  test('the token of the first key stays when the sign-in with it fails, until the person has saved it', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/keys', allowed: /401|403|ERR_FAILED/ }, async (page) => {
      // The test can let time pass at once.
      await page.clock.install();
      await page.goto(`${service.url}/keys`);
      await page.route('**/api/v1/session/', (route) =>
        route.request().method() === 'POST' ? route.abort() : route.continue(),
      );
      await page.getByRole('button', { name: 'Make a key' }).click();
      await page.getByRole('button', { name: 'Make the key' }).click();
      const dialog = page.getByRole('dialog', { name: 'Save this token' });
      await dialog.getByText('the service does not respond').waitFor();
      // The page asks for the keys again, and is refused.
      const refused = page.waitForResponse((answer) => answer.status() === 401 && /\/keys\//.test(answer.url()));
      await page.clock.runFor(11_000);
      await (await refused).finished();
      await page.evaluate('new Promise((resolve) => requestIdleCallback(resolve))');
      assert.match(await dialog.getByLabel('the token', { exact: true }).innerText(), /^cvk_/);
      await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
      await page.getByText('The service asks for a key now').waitFor();
    });
  });

  test('a dialog whose request is running is closed by nothing, so a secret in the response is shown, and the page stays', async (t) => {
    const service = await startService(t);
    const { url: webhook_url } = await startReceiver(t);
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    await visitor.visit(service.url, { path: '/now', allowed: REFUSALS }, async (page) => {
      /** Disturbs the dialog while a request is running, and returns the title of the dialog after the response. */
      const disturbed = async (request: string, path: string): Promise<string> => {
        const { held, release } = await holdBack(page, `**/api/v1/${request}`, 'POST');
        const dialog = page.getByRole('dialog');
        const title = await dialog.getByRole('heading').innerText();
        await dialog.locator('button[type=submit]').click();
        await held;
        await disturb(page);
        await page.goBack();
        await page.waitForURL(`**${path}`);
        assert.equal(await dialog.getByRole('heading').innerText(), title);
        release();
        await page.getByRole('heading', { name: title }).waitFor({ state: 'detached' });
        const found = await dialog.getByRole('heading').innerText();
        await dialog.getByRole('button', { name: /^I’ve/ }).click();
        await dialog.waitFor({ state: 'detached' });
        return found;
      };
      const open = async (path: string, button: string): Promise<void> => {
        await follow(page, path);
        await page.getByRole('button', { name: button }).click();
      };

      await open('/instances/box', 'Rotate the secret…');
      assert.equal(await disturbed('instances/box/rotate-secret/', '/instances/box'), 'The new secret');

      await follow(page, '/meetings/room');
      await page.locator('.meeting-members > summary').click();
      await page.getByRole('button', { name: 'Invite an agent' }).click();
      await page.getByLabel('Agents').fill('anna');
      assert.equal(await disturbed('invites/', '/meetings/room'), 'Send this link');

      await open('/instances', 'Register');
      await page.getByLabel('Instance id').fill('new');
      await page.getByLabel('Webhook URL').fill(webhook_url);
      assert.equal(await disturbed('instances/register/', '/instances'), 'Registered: save this secret');

      await open('/keys', 'Make a key');
      assert.equal(await disturbed('keys/', '/keys'), 'Save this token');

      await page
        .getByRole('link', { name: /^Open the key/ })
        .first()
        .click();
      await page.getByRole('button', { name: 'Rotate…' }).click();
      const path = new URL(page.url()).pathname;
      assert.equal(await disturbed('keys/*/rotate/', path), 'Save this token');
    });
  });

  test('after a lost response a form says what may have happened, and another try costs no token and no secret', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const { token: own } = await service.createKey({ scopes: ['admin'] });
    const { receiver } = await service.member(t, 'room', { registration: { instance_id: 'box' } });
    const allowed = /401|ERR_FAILED/;
    await visitor.visit(service.url, { path: '/keys', allowed }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(own);
      await page.keyboard.press('Enter');
      const dialog = page.getByRole('dialog');
      /** Submits a form, whose response is lost, and again; returns what the form said, and the title after that. */
      const tried = async (request: string): Promise<string[]> => {
        const lost = `**/api/v1/${request}`;
        await page.route(lost, async (route) => {
          await route.fetch();
          await route.abort();
        });
        await dialog.locator('button[type=submit]').click();
        const said = await dialog.getByRole('alert').innerText();
        await page.unroute(lost);
        await dialog.locator('button[type=submit]').click();
        await dialog.getByRole('button', { name: /^I’ve/ }).waitFor();
        return [said, await dialog.getByRole('heading').innerText()];
      };

      await page
        .getByRole('link', { name: /^Open the key/ })
        .last()
        .click();
      await page.getByRole('button', { name: 'Rotate…' }).click();
      assert.deepEqual(await tried('keys/*/rotate/'), [
        'The service does not respond, so the key may have a new token that nobody saw. Make another one: each earlier token works until its own end.',
        'Save this token',
      ]);
      await dialog.getByRole('button', { name: /^I’ve/ }).click();
      await page.getByText('Earlier tokens end').waitFor();

      await follow(page, '/keys');
      await page.getByRole('button', { name: 'Make a key' }).click();
      assert.deepEqual(await tried('keys/'), [
        'The service does not respond, so there may be a key whose token nobody saw. Make another one, and revoke that one.',
        'Save this token',
      ]);
      await dialog.getByRole('button', { name: /^I’ve/ }).click();
      const by_old = await service.request('GET', '/api/v1/keys/', { headers: { authorization: `Bearer ${own}` } });
      assert.equal(by_old.status, 200);

      await follow(page, '/instances/box');
      await page.getByRole('button', { name: 'Rotate the secret…' }).click();
      assert.deepEqual(await tried('instances/box/rotate-secret/'), [
        'The service does not respond, so the instance may have a new secret that nobody saw. Rotate again: each earlier secret signs until its own end.',
        'The new secret',
      ]);
      await dialog.getByText('each earlier secret signs every push too, until its own end').waitFor();
      await dialog.getByRole('button', { name: /^I’ve/ }).click();
      await service.send('room', { content: 'hello' });
      assert.equal(String((await receiver.next()).headers['webhook-signature']).split(' ').length, 3);
    });
  });

  test('a person who rotates a key says when the old token ends, and reads in words that four earlier ones are the most', async (t) => {
    const service = await startService(t);
    const { token: own } = await service.endOpenMode();
    const { key_id, token } = await service.createKey({ scopes: ['read'] });
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    const statusBy = async (by: string): Promise<number> =>
      (await service.request('GET', '/api/v1/instances/', { headers: { authorization: `Bearer ${by}` } })).status;
    await visitor.visit(service.url, { path: `/keys/${key_id}`, allowed: /401|409/ }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(own);
      await page.keyboard.press('Enter');
      const dialog = page.getByRole('dialog');
      const rotateKey = async (ends: string | null): Promise<void> => {
        await page.getByRole('button', { name: 'Rotate…' }).click();
        const field = dialog.getByLabel('The old token ends');
        assert.equal(await field.locator('option:checked').innerText(), 'in a day');
        if (ends !== null) await field.selectOption(ends);
        await dialog.getByRole('button', { name: 'Make a new token' }).click();
      };
      const saved = async (): Promise<string> => {
        const made = await dialog.getByText(/^cvk_/).innerText();
        await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
        return made;
      };
      await rotateKey(null);
      const second = await saved();
      assert.deepEqual([await statusBy(token), await statusBy(second)], [200, 200]);
      for (const each of ['in an hour', 'in a week', 'in a day']) {
        await rotateKey(each);
        await saved();
      }
      await rotateKey(null);
      assert.equal(
        await dialog.getByRole('alert').innerText(),
        'Four earlier tokens still work, and more are not possible. Wait until one of them has ended, or let the old token end at once, which ends all of them.',
      );
      await dialog.getByLabel('The old token ends').selectOption('0');
      await dialog.getByText('Every earlier token ends at once, too.').waitFor();
      await dialog.getByRole('button', { name: 'Make a new token' }).click();
      const last = await saved();
      assert.deepEqual([await statusBy(token), await statusBy(second), await statusBy(last)], [401, 401, 200]);

      for (let i = 0; i < 4; i++) await service.post('/api/v1/instances/box/rotate-secret/', {});
      await follow(page, '/instances/box');
      await page.getByRole('button', { name: 'Rotate the secret…' }).click();
      await dialog.getByRole('button', { name: 'Rotate', exact: true }).click();
      await dialog
        .getByRole('alert')
        .getByText(/^Four earlier secrets still work/)
        .waitFor();
    });
  });

  test('a person who registers again after a lost response reads that nobody was shown the secret, and rotates it', async (t) => {
    const service = await startService(t);
    const { url } = await startReceiver(t);
    await visitor.visit(service.url, { path: '/instances', allowed: /ERR_FAILED/ }, async (page) => {
      const lose = async (route: Route): Promise<void> => {
        await route.fetch();
        await route.abort();
      };
      await page.route('**/instances/register/', lose, { times: 1 });
      await page.getByRole('button', { name: 'Register' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Instance id').fill('mine');
      await dialog.getByLabel('Webhook URL').fill(url);
      await dialog.getByRole('button', { name: 'Register' }).click();
      assert.equal(
        await dialog.getByRole('alert').innerText(),
        'The service does not respond, so the instance may be registered. Register it again. If no secret is shown then, rotate its secret.',
      );
      await dialog.getByRole('button', { name: 'Register' }).click();
      await dialog.getByRole('heading', { name: 'This instance existed already' }).waitFor();
      await dialog.getByRole('button', { name: 'Rotate the secret…' }).click();
      await dialog.getByRole('button', { name: 'Rotate', exact: true }).click();
      await page
        .getByRole('dialog', { name: 'The new secret' })
        .getByText(/^whsec_/)
        .waitFor();
      assert.equal(new URL(page.url()).pathname + new URL(page.url()).search, '/instances/mine');
    });
  });

  test('a person who deletes an instance is on its page until the response, so the response moves them off no other page', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    await visitor.visit(service.url, { path: '/meetings' }, async (page) => {
      await page.getByRole('link', { name: 'Instances', exact: true }).click();
      await page.getByRole('link', { name: 'Open A machine' }).click();
      await page.getByRole('button', { name: 'Delete…' }).click();
      const { held, release } = await holdBack(page, '**/api/v1/instances/box/', 'DELETE');
      await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
      await held;
      await disturb(page);
      await page.goBack();
      await page.waitForURL('**/instances/box');
      assert.equal(await page.getByRole('dialog').count(), 1);
      release();
      await page.waitForURL('**/instances');
      assert.equal(await page.getByRole('dialog').count(), 0);
    });
  });

  for (const width of [1440, 390]) {
    test(`the token of the first key is shown whole at ${width} px, and only its own button closes it`, async (t) => {
      const service = await startService(t);
      const visit = { path: '/keys', viewport: { width, height: 844 }, allowed: REFUSALS };
      await visitor.visit(service.url, visit, async (page) => {
        await page.getByRole('button', { name: 'Make a key' }).click();
        await page.getByRole('button', { name: 'Make the key' }).click();
        const dialog = page.getByRole('dialog', { name: 'Save this token' });
        const token = dialog.getByLabel('the token', { exact: true });
        const text = await token.innerText();
        assert.match(text, /^cvk_\w{12}_\w{49}$/);
        assert.equal(await isWhole(token), true);
        assert.equal(await isOnScreen(dialog), true);
        await disturb(page);
        assert.equal(await token.innerText(), text);
        await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
        await dialog.waitFor({ state: 'detached' });
      });
    });
  }

  for (const [when, before] of [
    ['', ''],
    [' at once, before the page has drawn a frame', SLOW_FRAMES],
  ] as const) {
    test(`a secret that is shown once stays when somebody goes back${when}, and forth`, async (t) => {
      const service = await startService(t);
      await service.endOpenMode();
      const { token: own } = await service.createKey({ scopes: ['admin'] });
      await visitor.visit(service.url, { path: '/instances' }, async (page) => {
        await page.getByLabel('Key', { exact: true }).fill(own);
        await page.keyboard.press('Enter');
        await page.getByRole('link', { name: 'Keys', exact: true }).click();
        await page.getByRole('button', { name: 'Make a key' }).click();
        await page.evaluate(before);
        await page.getByRole('button', { name: 'Make the key' }).click();
        const dialog = page.getByRole('dialog', { name: 'Save this token' });
        const token = dialog.getByLabel('the token', { exact: true });
        const text = await token.innerText();
        await page.goBack();
        // The page takes the reader forth again, and with that removes what was ahead in the history.
        await page.waitForURL('**/keys');
        await page.goForward();
        assert.equal(await token.innerText(), text);
        assert.equal(new URL(page.url()).pathname, '/keys');
        await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
        await dialog.waitFor({ state: 'detached' });
        // The control: without such a dialog the button leads back.
        await page.goBack();
        await page.getByRole('heading', { name: 'Instances', exact: true }).waitFor();
      });
    });
  }

  test('an edit sends only what the user changed: agents whose ids have a comma stay, and so does what others change meanwhile', async (t) => {
    const service = await startService(t);
    const registration = { instance_id: 'box', instance_name: 'GPU box' };
    const agent_ids = ['research, europe', ' ben'];
    await service.member(t, 'room', { agent_ids, registration });
    await visitor.visit(service.url, { path: '/instances/box' }, async (page) => {
      const dialog = page.getByRole('dialog', { name: 'Edit GPU box' });
      const edit = async (): Promise<void> => {
        await page.getByRole('button', { name: 'Edit…' }).click();
        await dialog.getByLabel('Time for an answer, in seconds').fill('20');
      };
      await edit();
      await service.patch('box', { replies: true });
      // The page beneath the dialog has seen the change.
      await page.getByText('its answers are sent in the meeting').waitFor();
      await dialog.getByRole('button', { name: 'Save' }).click();
      await page.getByText('Saved.').waitFor();
      const changed = await service.instance('box');
      assert.deepEqual([changed.agent_ids, changed.timeout_s, changed.replies], [agent_ids, 20, true]);

      await page.getByRole('button', { name: 'Edit…' }).click();
      await dialog.getByLabel('Agents').fill('research, europe, ben, carl');
      await dialog.getByRole('button', { name: 'Save' }).click();
      await dialog.getByRole('alert').getByText(/comma/).waitFor();
      assert.deepEqual((await service.instance('box')).agent_ids, agent_ids);
    });
  });

  test('an instance joins a meeting with its own agents, also when their ids have a comma', async (t) => {
    const service = await startService(t);
    const agent_ids = ['research, europe'];
    await service.member(t, 'room', { agent_ids, registration: { instance_id: 'box' } });
    await visitor.visit(service.url, { path: '/instances/box' }, async (page) => {
      // The button moves when the list above it arrives, and a click on it may then miss.
      await page.getByRole('link', { name: 'room', exact: true }).waitFor();
      await page.getByRole('button', { name: 'Join a meeting' }).click();
      const dialog = page.getByRole('dialog', { name: 'Join a meeting' });
      await dialog.getByLabel('Meeting id').fill('other');
      await dialog.getByRole('button', { name: 'Join' }).click();
      await dialog.waitFor({ state: 'detached' });
      const { data } = (await service.get<{ data: { agent_ids: string[] }[] }>(membersPath('other'))).body;
      assert.deepEqual(data[0]?.agent_ids, agent_ids);
    });
  });

  test('a dialog is in the middle of the window, also one that opens among the members of a meeting', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room');
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      await page.locator('.meeting-members > summary').click();
      for (const action of ['Let an instance join', 'Invite an agent', /Gets everything/]) {
        await page.getByRole('button', { name: action }).click();
        const { x = 0, width = 0 } = (await page.getByRole('dialog').boundingBox()) ?? {};
        assert.equal(Math.round(x + width / 2), 720, String(action));
        await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
      }
    });
  });

  test('a change of what a member gets sends only the rules that the user changed', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box', instance_name: 'GPU box' } });
    const rules = `${membersPath('room')}box/`;
    await visitor.visit(service.url, { path: '/meetings/room' }, async (page) => {
      await page.locator('.meeting-members > summary').click();
      await page.getByRole('button', { name: /change what GPU box gets/ }).click();
      const dialog = page.getByRole('dialog', { name: 'What GPU box gets' });
      await dialog.getByRole('radio', { name: 'Only the newest' }).check({ force: true });
      const patched = await service.request('PATCH', rules, { body: { wake: 'targeted' } });
      assert.equal(patched.status, 200, patched.text);
      await page.getByText('Gets what names it').waitFor();
      await dialog.getByRole('button', { name: 'Save' }).click();
      await dialog.waitFor({ state: 'detached' });
      await page.getByText('Gets what names it, after being away the newest').first().waitFor();
    });
  });

  test('the first key is made as an admin key also when the list of keys has not loaded yet', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/keys', allowed: REFUSALS }, async (page) => {
      const made = Promise.withResolvers<void>();
      await page.route(/\/api\/v1\/keys\//, async (route) => {
        if (route.request().method() === 'GET') await made.promise;
        await route.continue();
      });
      await page.reload();
      await page.getByRole('button', { name: 'Make a key' }).click();
      await page.getByRole('dialog', { name: 'The first key' }).waitFor();
      await page.getByRole('button', { name: 'Make the key' }).click();
      await page.getByRole('dialog', { name: 'Save this token' }).waitFor();
      made.resolve();
    });
  });

  test('a half-filled form is closed by neither Escape nor a click beside it; an empty one is', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      const register = page.getByRole('button', { name: 'Register' });
      const dialog = page.getByRole('dialog', { name: 'Register an instance' });
      await register.click();
      await dialog.waitFor();
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      await register.click();
      await dialog.waitFor();
      await page.mouse.click(4, 4);
      await dialog.waitFor({ state: 'detached' });

      await register.click();
      await dialog.getByLabel('Instance id').fill('half');
      await disturb(page);
      assert.equal(await dialog.getByLabel('Instance id').inputValue(), 'half');
      await dialog.getByRole('button', { name: 'Keep editing' }).click();
      assert.equal(await dialog.getByLabel('Instance id').inputValue(), 'half');
      await page.keyboard.press('Escape');
      await dialog.getByRole('button', { name: 'Discard' }).click();
      await dialog.waitFor({ state: 'detached' });
    });
  });

  test('invisible characters of ids are shown in notices, in the titles of dialogs, and in the latest events', async (t) => {
    const service = await startService(t);
    const receiver = await startReceiver(t);
    const [written, seen] = ['safe\u202Ecod.exe', 'safe[U+202E]cod.exe'];
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      // The latest events have only what happens after this.
      await page.getByText('Live', { exact: true }).waitFor();
      await page.getByRole('button', { name: 'Register' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Instance id').fill(written);
      await dialog.getByLabel('Webhook URL').fill(receiver.url);
      await dialog.getByRole('button', { name: 'Register' }).click();
      await page.getByText(`${seen} is registered.`).waitFor();
      await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
      await page.getByRole('button', { name: 'Delete…' }).click();
      await page.getByRole('heading', { name: `Delete ${seen}?` }).waitFor();
      await page.keyboard.press('Escape');
      await page.getByRole('link', { name: 'Now', exact: true }).click();
      await page.getByText(`${seen} registered`).waitFor();
      await page.goto(`${service.url}/agents/${encodeURIComponent(written)}`);
      await page.getByRole('heading', { name: `Agent ${seen}` }).waitFor();
    });
  });

  test('a notice is seen above a dialog that opens after it', async (t) => {
    const service = await startService(t);
    const receiver = await startReceiver(t);
    await visitor.visit(service.url, { path: '/instances' }, async (page) => {
      await stretchTimers(page);
      await page.getByRole('button', { name: 'Register' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Instance id').fill('mine');
      await dialog.getByLabel('Webhook URL').fill(receiver.url);
      await dialog.getByRole('button', { name: 'Register' }).click();
      await page.getByRole('dialog', { name: 'Registered: save this secret' }).waitFor();
      const notice = page.locator('[popover]').filter({ hasText: 'mine is registered.' });
      assert.equal(await isInFront(page, notice), true);
    });
  });

  test('a notice is pressed in front of a dialog, and the dialog stays', async (t) => {
    const service = await startService(t);
    await service.member(t, 'room', { registration: { instance_id: 'box' } });
    await visitor.visit(service.url, { path: '/instances/box' }, async (page) => {
      await stretchTimers(page);
      await page.getByRole('button', { name: 'Pause', exact: true }).click();
      await page.getByText('Paused. Nothing is pending.', { exact: false }).first().waitFor();
      await page.getByRole('button', { name: 'Edit…' }).click();
      await page.getByRole('dialog').waitFor();
      await page.getByRole('button', { name: 'Undo' }).click();
      await page.getByRole('dialog').getByRole('status').getByText('Undone.').waitFor();
      assert.equal((await service.instance('box')).webhook_enabled, true);
      await page.getByRole('dialog').getByRole('button', { name: 'Close' }).first().click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      await page.locator('.notice').getByText('Undone.').waitFor();
      await page.locator('.notice').getByRole('button', { name: 'Close' }).click();
      await page.locator('.notice').waitFor({ state: 'detached' });
    });
  });

  for (const width of [1440, 390]) {
    test(`the notice of a sent message covers neither the field nor the button that sends at ${width} px`, async (t) => {
      const service = await startService(t);
      await service.member(t, 'room');
      const visit = { path: '/meetings/room', viewport: { width, height: 844 } };
      await visitor.visit(service.url, visit, async (page) => {
        await stretchTimers(page);
        await page.getByRole('textbox', { name: 'Message' }).fill('hello');
        await page.getByRole('button', { name: 'Send to everybody' }).click();
        const notice = page.locator('[popover]').filter({ hasText: 'Sent #1 to 1 instance.' });
        await notice.waitFor();
        const box = (await notice.boundingBox())!;
        const form = (await page.getByRole('form', { name: 'Send a message' }).boundingBox())!;
        const is_beside = box.x + box.width <= form.x || form.x + form.width <= box.x;
        const is_above = box.y + box.height <= form.y || form.y + form.height <= box.y;
        assert.ok(is_beside || is_above, JSON.stringify({ box, form }));
      });
    });
  }

  test('a token is copied out of its dialog, also over plain HTTP from another machine', async (t) => {
    const service = await startService(t);
    const { token: own } = await service.endOpenMode();
    const url = service.url.replace('127.0.0.1', OTHER_MACHINE);
    await visitor.visit(url, { path: '/keys', allowed: /Cross-Origin-Opener-Policy/ }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(own);
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Make a key' }).click();
      await page.getByRole('button', { name: 'Make the key' }).click();
      const dialog = page.getByRole('dialog', { name: 'Save this token' });
      const token = await dialog.getByLabel('the token', { exact: true }).innerText();
      await dialog.getByRole('button', { name: 'Copy the token' }).click();
      await page.getByText('Copied the token.').waitFor();
      await dialog.getByRole('button', { name: 'I’ve saved it' }).click();
      await dialog.waitFor({ state: 'detached' });
      await page.getByRole('link', { name: 'Instances', exact: true }).click();
      const field = page.getByRole('searchbox', { name: 'Filter by id or name' });
      await field.press('Control+v');
      assert.equal(await field.inputValue(), token);
    });
  });

  test('the button that copies stands beside a command, and covers none of it', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/start', viewport: { width: 390, height: 844 } }, async (page) => {
      const command = page.getByLabel('the command that connects', { exact: true });
      await command.waitFor();
      const button = page.getByRole('button', { name: 'Copy the command that connects' });
      const [text, copy] = await Promise.all([command.boundingBox(), button.boundingBox()]);
      assert.ok(text !== null && copy !== null);
      assert.ok(text.x + text.width <= copy.x, 'the button lies over the command');
      assert.equal(await isWhole(command), true);
    });
  });
});

const isOnScreen = (element: Locator): Promise<boolean> =>
  element.evaluate((found) => {
    const { left, top, right, bottom } = found.getBoundingClientRect();
    const { clientWidth, clientHeight } = found.ownerDocument.documentElement;
    return left >= 0 && top >= 0 && right <= clientWidth && bottom <= clientHeight;
  });

/**
 * Whether two pictures look alike. Pixels at the edges may differ by 35 of 255, because the browser draws a popover
 * that is shown again onto another layer.
 */
const looksAlike = (page: Page, a: Buffer, b: Buffer): Promise<boolean> =>
  page.evaluate<boolean>(`(async () => {
    const pixels = await Promise.all(${JSON.stringify([a, b].map((picture) => picture.toString('base64')))}.map(async (text) => {
      const image = await createImageBitmap(new Blob([Uint8Array.fromBase64(text)]));
      const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
      canvas.drawImage(image, 0, 0);
      return canvas.getImageData(0, 0, image.width, image.height).data;
    }));
    return pixels[0].length === pixels[1].length && pixels[0].every((value, i) => Math.abs(value - pixels[1][i]) < 64);
  })()`);

/** Whether nothing covers a popover: then it looks the same after it is brought to the front. */
async function isInFront(page: Page, popover: Locator): Promise<boolean> {
  const picture = async (): Promise<Buffer> => {
    const clip = await popover.boundingBox();
    assert.ok(clip !== null);
    return page.screenshot({ clip, animations: 'disabled' });
  };
  let seen = await picture();
  const isStill = async (): Promise<boolean> => {
    const before = seen;
    seen = await picture();
    return seen.equals(before);
  };
  await until('a picture that stands still', isStill, Boolean);
  await popover.evaluate((found) => {
    found.hidePopover();
    found.showPopover();
  });
  // The notice may move once more when it is shown again.
  await until('the same picture', async () => looksAlike(page, seen, await picture()), Boolean);
  return true;
}
