/** The marks and words that say why a delivery waits, in a real browser. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { BACKOFF_MAX_MS } from '../../src/domain/delivery.ts';
import { seriousIn } from '../support/axe.ts';
import { follow, openRequests, useVisitor } from '../support/browser.ts';
import { startService } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

const PULLS = (instance_id: string) => ({
  instance_id,
  instance_name: instance_id,
  agent_ids: [instance_id === 'box' ? 'box' : 'b'],
  transport: 'pull',
});

describe('a delivery', { concurrency: 2 }, () => {
  test('that waits for a machine that is down has another mark than one that waits for its time, also when that changes', async (t) => {
    const clock = new SetClock();
    // No attempt begins by itself.
    const service = await startService(t, { retry_schedule: Array.from({ length: 12 }, () => '24h').join(',') }, clock);
    const registration = { instance_id: 'box', instance_name: 'GPU box' };
    await service.member(t, 'm', { registration, behaviour: { status: 500 } });
    const first = await service.send('m', { content: 'Are you there?' });
    const { delivery_id } = await service.attempted(first);
    await service.send('m', { content: 'And now?' });
    await visitor.visit(service.url, { path: '/meetings/m' }, async (page) => {
      const markOf = (seq: number) =>
        page.getByRole('article', { name: `Message ${seq}` }).getByRole('button', { name: /^GPU box/ });
      await markOf(1).locator('.mark-waiting').waitFor();
      assert.match(await markOf(1).innerText(), /waiting for its next attempt/);
      await markOf(2).locator('.mark-waiting').waitFor();
      assert.match(await markOf(2).innerText(), /its attempt is in progress, or it waits behind earlier messages/);
      // Five failures in a row make an instance down. A retry by hand does not wait. After each further failure the
      // instance is left alone for longer, at last for minutes: so long the test may take.
      const fail = async (attempts: number): Promise<void> => {
        await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
        await service.attempted(first, attempts);
      };
      for (let attempts = 2; attempts <= 10; attempts++) {
        clock.jump(2 * BACKOFF_MAX_MS);
        await fail(attempts);
      }
      // The mark of the second message changes, although nothing happens to this message itself.
      await markOf(2).locator('.mark-held').waitFor();
      assert.match(await markOf(2).innerText(), /waiting until \S+ is tried again/);
      // The page reads the deliveries when the back-off has just ended. No event says that the instance backs off again.
      clock.jump(2 * BACKOFF_MAX_MS);
      await service.request('PATCH', '/api/v1/meetings/m/', { body: { hop_limit: 9 } });
      await markOf(2).locator('.mark-waiting').waitFor();
      await fail(11);
      await markOf(2).locator('.mark-held').waitFor();
      assert.deepEqual(await seriousIn(page), []);
      await page.goto(`${service.url}/deliveries/${delivery_id}`);
      await page.locator('.status-line .mark-held').waitFor();
      // The rows of the list beside the delivery come with another response.
      await until(
        'both rows to have the mark',
        () => page.locator('.row .mark-held').count(),
        (count) => count === 2,
      );

      await page.goto(`${service.url}/instances`);
      await page.getByRole('columnheader', { name: 'Last success' }).waitFor();
      await page
        .getByRole('row', { name: /GPU box/ })
        .getByRole('link')
        .click();
      for (const fact of ['Down since', 'Next try', 'Last success'])
        await page.locator('.facts').getByText(fact, { exact: true }).waitFor();
    });
  });

  test('of an early message is read again when it changes, also with many recipients; what is not read has no mark', async (t) => {
    const service = await startService(t, { retry_schedule: '1h' });
    const registration = { instance_id: 'box', instance_name: 'GPU box' };
    const { receiver } = await service.member(t, 'm', { registration, behaviour: { status: 500 } });
    const { delivery_id } = await service.attempted(await service.send('m', { content: 'First' }));
    await visitor.visit(service.url, { path: '/meetings/m' }, async (page) => {
      const first = page.getByRole('article', { name: 'Message 1', exact: true });
      const mark = first.getByRole('button', { name: /^GPU box/ });
      await mark.locator('.mark-waiting').waitFor();
      for (let n = 0; n < 100; n++) {
        const instance = { instance_id: `pulls-${n}`, instance_name: 'Pulls', agent_ids: ['b'], transport: 'pull' };
        await service.post('/api/v1/instances/register/', instance);
        await service.join('m', instance.instance_id, ['b']);
      }
      // More deliveries than a refresh reads.
      const open = openRequests(page);
      for (let n = 0; n < 22; n++) await service.send('m', { content: `Wide ${n}` }, ['b']);
      await page.getByText('Wide 21').waitFor();
      await page.evaluate('new Promise((resolve) => setTimeout(resolve, 1000))');
      await until('the end of every request', open, (urls) => urls.length === 0);
      receiver.behaviour = {};
      await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
      await mark.locator('.mark-good').waitFor();
      await service.request('PATCH', '/api/v1/meetings/m/', { body: { paused: true } });
      await mark.waitFor({ state: 'detached' });
    });
  });

  test('has the mark of the newest state of its machine, also when that changed while the page read the delivery', async (t) => {
    const service = await startService(t);
    await service.post('/api/v1/instances/register/', PULLS('box'));
    await service.join('m', 'box', ['box']);
    await service.send('m', { content: 'First' });
    await visitor.visit(service.url, { path: '/meetings' }, async (page) => {
      const released = Promise.withResolvers<void>();
      await page.route('**/api/v1/deliveries/?meeting_id=m&*', async (route) => {
        const response = await route.fetch();
        await released.promise;
        await route.fulfill({ response });
      });
      const read = page.waitForRequest('**/api/v1/deliveries/?meeting_id=m&*');
      await follow(page, '/meetings/m');
      await read;
      const members = /meetings\/m\/instances\//;
      await page.getByText('First').waitFor();
      const noticed = page.waitForRequest(members);
      await service.patch('box', { webhook_enabled: false });
      await noticed;
      released.resolve();
      await page
        .getByRole('article', { name: 'Message 1' })
        .getByRole('button', { name: /waiting: box is paused/ })
        .waitFor();
    });
  });

  test('of an early message is read again together with that of a late one, with many recipients between them', async (t) => {
    const service = await startService(t);
    for (const instance_id of ['box', ...Array.from({ length: 100 }, (_, n) => `pulls-${n}`)]) {
      await service.post('/api/v1/instances/register/', PULLS(instance_id));
      await service.join('m', instance_id, [instance_id === 'box' ? 'box' : 'b']);
    }
    await service.send('m', { content: 'First' }, ['box']);
    await visitor.visit(service.url, { path: '/meetings/m' }, async (page) => {
      const markOf = (name: string, why: RegExp) =>
        page.getByRole('article', { name, exact: true }).getByRole('button', { name: why });
      await markOf('Message 1', /waiting for its machine to connect/).waitFor();
      // When the live feed opens, the page reads everything again. It shows this message only then, or later.
      await service.send('m', { content: 'Second' }, ['box']);
      await markOf('Message 2', /waiting for its machine to connect/).waitFor();
      // More deliveries than the page reads of a range.
      for (let n = 0; n < 26; n++) await service.send('m', { content: `Wide ${n}` }, ['b']);
      await page.getByText('Wide 25').waitFor();
      await service.send('m', { content: 'Last' }, ['box']);
      await markOf('Message 29', /waiting for its machine to connect/).waitFor();
      await service.patch('box', { webhook_enabled: false });
      await markOf('Message 29', /waiting: box is paused/).waitFor();
      await markOf('Message 1', /waiting: box is paused/).waitFor();
    });
  });

  test('names the time of its next try only until then', async (t) => {
    const service = await startService(t, { retry_schedule: '1h' });
    await service.member(t, 'm', { behaviour: { status: 500 } });
    await service.attempted(await service.send('m', {}));
    await visitor.visit(service.url, { path: '/deliveries' }, async (page) => {
      const row = page.getByRole('row', { name: /Open the delivery/ });
      await row.getByText('answered 500; waiting for its next attempt; next try at').waitFor();
      // While its instance is down, a delivery waits for longer.
      await page.route('**/api/v1/deliveries/?*', async (route) => {
        const response = await route.fetch();
        const { data, ...rest } = (await response.json()) as { data: object[] };
        const next_attempt_at = new Date(Date.now() - 1000).toISOString();
        return route.fulfill({ response, json: { ...rest, data: data.map((each) => ({ ...each, next_attempt_at })) } });
      });
      await page.reload();
      await row.getByText('answered 500; waiting for its next attempt', { exact: true }).waitFor();
    });
  });

  test('says how long it waited between two attempts, and why', async (t) => {
    const service = await startService(t, { retry_schedule: '1s,1h' });
    const { receiver } = await service.member(t, 'm', { behaviour: { status: 500 } });
    const sent = await service.send('m', {});
    const { delivery_id } = await service.attempted(sent, 2);
    receiver.behaviour = {};
    await service.post(`/api/v1/deliveries/${delivery_id}/retry/`);
    await service.settled(sent);
    await visitor.visit(service.url, { path: `/deliveries/${delivery_id}` }, async (page) => {
      await page.getByText('answered 200').first().waitFor();
      const gaps = await page.locator('.attempt-gap').allInnerTexts();
      assert.match(gaps[0] ?? '', /^\d[\d.]* (ms|s) later: pauses grow after each bad response$/);
      assert.match(gaps[1] ?? '', /^<?\d[\d.]* (ms|s) later/);
      assert.equal(gaps.length, 2);
    });
  });
});
