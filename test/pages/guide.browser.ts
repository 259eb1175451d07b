/** The test does exactly what the guide says: it types the commands of the guide, and each step is ticked off. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname } from 'node:path';
import { describe, test, type TestContext } from 'node:test';
import type { Page } from 'playwright-core';
import { holdBack, stretchTimers, useVisitor } from '../support/browser.ts';
import { startDemo } from '../support/demo_page.ts';
import { freePort } from '../support/free_port.ts';
import { messagesPath, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

/** Runs a command in a shell until the test ends. `printed` is its output so far. */
function type(
  t: TestContext,
  command: string,
  more: Record<string, string> = {},
): { printed: string; ended: Promise<unknown> } {
  const path = `${dirname(process.execPath)}:${process.env['PATH']}`;
  const child = spawn('sh', ['-c', `exec ${command}`], {
    env: { PATH: path, ...more },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const run = { printed: '', ended: once(child, 'exit') };
  child.stdout.on('data', (bytes: Buffer) => (run.printed += bytes.toString()));
  t.after(() => child.kill());
  return run;
}

const stepOf = (page: Page, name: string) => page.getByRole('main').getByRole('listitem').filter({ hasText: name });
const done = (page: Page, name: string) => stepOf(page, name).getByText('(done)').waitFor({ state: 'attached' });

describe('the guide', () => {
  test('its commands, typed one after the other, begin with a receiver and end with a message in it', async (t) => {
    const service = await startService(t);
    const port = String(await freePort());
    await visitor.visit(service.url, { path: '/start' }, async (page) => {
      await page.getByRole('radio', { name: 'Webhook: curl' }).check({ force: true });
      // Uses another port than the guide, because that port may be in use on this machine.
      const command = async (what: string): Promise<string> =>
        (await page.getByLabel(`the command that ${what}`, { exact: true }).innerText()).replaceAll('9000', port);
      const receiver = type(t, await command('receives'));
      await type(t, await command('registers')).ended;
      await done(page, 'Register an instance');
      await type(t, await command('joins')).ended;
      await done(page, 'Let it join a meeting');
      await type(t, await command('sends')).ended;
      await done(page, 'Say something there');
      await done(page, 'See it arrive');
      await done(page, 'Start a receiver');
      await until(
        'the message to be printed',
        () => receiver.printed,
        (text) => text.includes('Good morning'),
      );
    });
  });

  test('its command sends also in a meeting whose id means something to a shell', async (t) => {
    const service = await startService(t);
    const meeting_id = "Anna's (weekly) $HOME";
    await service.member(t, meeting_id);
    await visitor.visit(service.url, { path: '/start' }, async (page) => {
      await done(page, 'Connect a machine');
      await page.getByRole('radio', { name: 'Webhook: curl' }).check({ force: true });
      await type(t, await page.getByLabel('the command that sends', { exact: true }).innerText()).ended;
      const { data } = (await service.get<{ data: object[] }>(messagesPath(meeting_id))).body;
      assert.equal(data.length, 1);
    });
  });

  test('its commands work too where a key is needed, and it says where the key comes from', async (t) => {
    const service = await startService(t);
    const { token } = await service.endOpenMode();
    await visitor.visit(service.url, { path: '/start' }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(token);
      await page.keyboard.press('Enter');
      const exported = await page.getByLabel('the command that sets the key', { exact: true }).innerText();
      const [, name = ''] = /^export (\w+)=/.exec(exported) ?? [];
      await page.getByRole('radio', { name: 'Webhook: curl' }).check({ force: true });
      for (const what of ['registers', 'joins', 'sends']) {
        const command = await page.getByLabel(`the command that ${what}`, { exact: true }).innerText();
        await type(t, command, { [name]: token }).ended;
      }
      await done(page, 'Register an instance');
      await done(page, 'Let it join a meeting');
      await done(page, 'Say something there');
    });
  });

  test('ticks its steps off for an owner too, who may not see meetings', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const owner = await service.createKey({ scopes: ['instance', 'send'] });
    await visitor.visit(service.url, { path: '/start', allowed: /403/ }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(owner.token);
      await page.keyboard.press('Enter');
      await page.getByRole('radio', { name: 'Webhook: curl' }).check({ force: true });
      service.token = owner.token;
      const { instance_id } = await service.member(t, 'room');
      await done(page, 'Register an instance');
      assert.equal(await page.getByText('(done)').count(), 1);
      await service.settled(await service.send('room', { content: 'hello' }));
      for (const step of ['Let it join a meeting', 'Say something there', 'See it arrive']) await done(page, step);
      await stepOf(page, 'See it arrive').getByText(`at ${instance_id}`).waitFor();
    });
  });

  test('does not take somebody to the demo who has left the guide before it began', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/start' }, async (page) => {
      await stretchTimers(page);
      const { held, release } = await holdBack(page, '**/api/v1/demo/', 'POST');
      await page.getByRole('button', { name: 'Start the demo' }).click();
      await held;
      await page.getByRole('link', { name: 'Instances', exact: true }).click();
      await page.getByRole('heading', { name: 'Instances', exact: true }).waitFor();
      release();
      await page.getByText('Two agents talk now.').waitFor();
      assert.equal(new URL(page.url()).pathname, '/instances');
    });
  });

  test('the demo ticks nothing off', async (t) => {
    const service = await startService(t);
    await visitor.visit(service.url, { path: '/start' }, async (page) => {
      await startDemo(page);
      // The control: a machine that the guide did not start ticks off only the step for machines.
      await service.member(t, 'mine');
      await done(page, 'Connect a machine');
      assert.equal(await page.getByText('(done)').count(), 1);
    });
  });
});
