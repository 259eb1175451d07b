/** A key that reads everything and changes only its own instances, in a real browser. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { useVisitor } from '../support/browser.ts';
import { startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const visitor = useVisitor();

/** Buttons that change an instance, one of its memberships or one of its deliveries. */
const CHANGES = /Test the webhook|Retry|Resend|Pause$|Join a meeting|Leave|Gets|Edit|Rotate|Drop|Delete|headers/;

describe('the owner of an instance', () => {
  test('sees the buttons that change it, and none on the instances of others', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const admin = service.token;
    const owner = await service.createKey({ scopes: ['read', 'instance'] });
    const failing = { status: 401 };
    await service.member(t, 'room', {
      behaviour: failing,
      registration: { instance_id: 'other', instance_name: 'Other box' },
    });
    service.token = owner.token;
    await service.member(t, 'room', {
      behaviour: failing,
      registration: { instance_id: 'mine', instance_name: 'My box' },
    });
    service.token = admin;
    const sent = await service.send('room', {});
    const deliveries = await until(
      'both deliveries',
      () => service.deliveriesOf(sent),
      (rows) => rows.length === 2,
    );
    const deliveryTo = (id: string): string => {
      const delivery = deliveries.find(({ instance_id }) => instance_id === id);
      return `/deliveries/${delivery!.delivery_id}`;
    };
    await visitor.visit(service.url, {}, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(owner.token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('read, instance').waitFor();
      const shown = async (path: string): Promise<string[]> => {
        // From this response the page learns who owns the instance.
        const asked = page.waitForResponse((response) => response.url().endsWith('/api/v1/instances/other/'));
        await page.goto(service.url + path);
        await asked;
        await page.locator('.detail .facts').first().waitFor();
        const names = await page.locator('.detail button').allInnerTexts();
        return names.filter((name) => CHANGES.test(name));
      };
      assert.deepEqual(await shown('/instances/other'), []);
      assert.deepEqual(await shown(deliveryTo('other')), []);

      // The control: on the pages of an instance that the key owns, the same places have these buttons.
      await page.goto(`${service.url}/instances/mine`);
      for (const name of [
        'Test the webhook',
        'Retry pending now',
        'Set its headers…',
        'Pause',
        'Leave room',
        'Join a meeting',
        'Edit…',
      ]) {
        await page.locator('.detail').getByRole('button', { name, exact: true }).waitFor();
      }
      await page.goto(service.url + deliveryTo('mine'));
      await page.getByRole('button', { name: 'Retry now' }).waitFor();

      service.token = owner.token;
      const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
      service.token = admin;
      await page.goto(`${service.url}/instances/${instance_id}`);
      await page.getByRole('button', { name: 'Test the webhook' }).waitFor();
      assert.equal(await page.getByRole('button', { name: 'Retry pending now' }).count(), 0, 'nothing is pending');

      await page.goto(`${service.url}/meetings/room`);
      await page.locator('.meeting-members > summary').click();
      const leave = (of: RegExp) =>
        page
          .getByRole('listitem')
          .filter({ hasText: of })
          .getByRole('button', { name: /^Leave/ });
      await leave(/My box/).waitFor();
      assert.equal(await leave(/Other box/).count(), 0);

      const ticks = page.getByRole('checkbox');
      await page.goto(`${service.url}/deliveries?instance_id=other`);
      await page.locator('[data-row="0"]').waitFor();
      assert.equal(await ticks.count(), 0);
    });
  });

  test('who may do nothing else signs in to a page of its own instances only', async (t) => {
    const service = await startService(t);
    await service.endOpenMode();
    const admin = service.token;
    const owner = await service.createKey({ scopes: ['instance'] });
    await service.member(t, 'room', { registration: { instance_id: 'other', instance_name: 'Other box' } });
    service.token = owner.token;
    await service.member(t, 'room', { registration: { instance_id: 'mine', instance_name: 'My box' } });
    service.token = admin;
    await visitor.visit(service.url, { allowed: /403|404/ }, async (page) => {
      await page.getByLabel('Key', { exact: true }).fill(owner.token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByRole('link', { name: 'Instances', exact: true }).first().click();
      await page.getByRole('row', { name: /My box/ }).waitFor();
      assert.equal(await page.getByText('Other box').count(), 0);
      for (const name of ['Meetings', 'Keys', 'Audit', 'Nodes'])
        assert.equal(await page.getByRole('link', { name, exact: true }).count(), 0, name);
      await page.goto(`${service.url}/instances/other`);
      await page.getByText('That did not work').waitFor();
      assert.equal(await page.getByText('Other box').count(), 0);
    });
  });
});
