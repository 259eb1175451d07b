import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CuttingProxy } from '../support/cutting_proxy.ts';
import { makeDatabase } from '../support/postgres.ts';
import { PullingMachine, pullsWaiting } from '../support/pulling.ts';
import { startService } from '../support/service.ts';
import { inTime, until } from '../support/wait.ts';

test('a node whose database does not respond ends the pulls that wait when it stops, before it waits for the database', async (t) => {
  const database = new URL(await makeDatabase());
  const proxy = await CuttingProxy.start(Number(database.port));
  t.after(() => proxy.close());
  database.port = String(proxy.port);
  const service = await startService(t, { database_url: database.href });
  const machine = await PullingMachine.start(service, ['m']);
  const pull = machine.ask({ wait_s: 60 });
  await until(
    'the pull',
    () => pullsWaiting(service),
    (pulls) => pulls === 1,
  );
  const { promise: is_asked, resolve: asked } = Promise.withResolvers<boolean>();
  // From the next look for leases that have ended on, the database gets nothing. On a new connection, the request has
  // the text of its statement.
  let is_silent = false;
  proxy.onRequest = (bytes) => {
    if (bytes.includes('lease_until <=')) asked((is_silent = true));
    return is_silent ? 'swallow' : 'pass';
  };
  proxy.cutAll();
  await inTime('a look for leases', is_asked);
  let is_stopped = false;
  const stopped = service.stop().then(() => (is_stopped = true));
  assert.equal((await inTime('the pull', pull)).status, 200);
  assert.equal(is_stopped, false);
  proxy.cutAll();
  proxy.onRequest = () => 'pass';
  await inTime('the stop', stopped);
});
