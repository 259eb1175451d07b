/** Connections are looked at while there are some: a process with none ends, as a command on a data file does. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, get } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { test } from 'node:test';
import { Connections } from '../../src/http/intake/connections.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

test('no timer is left when the last connection has closed, and the next connection is looked at again', async (t) => {
  const clock = new VirtualClock();
  const server = createServer((_request, response) => response.end()).listen(0, '127.0.0.1');
  t.after(() => server.close());
  new Connections(10, clock).watch(server);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  for (let round = 0; round < 2; round++) {
    const connected = once(server, 'connection') as Promise<[Socket]>;
    const request = get({ host: '127.0.0.1', port, agent: false });
    const [socket] = await connected;
    const closed = once(socket, 'close');
    await once(server, 'request');
    assert.ok(clock.timers > 0, 'control: there is one while the connection is busy');
    const [response] = (await once(request, 'response')) as [NodeJS.ReadableStream];
    response.resume();
    await closed;
    assert.equal(clock.timers, 0);
  }
});
