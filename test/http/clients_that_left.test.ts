/**
 * Clients that leave, or get a 503, while the handler of their request waits: nothing is kept for them. And clients that
 * get no 503, because they already get their response.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { describe, test, type TestContext } from 'node:test';
import Fastify from 'fastify';
import { systemClock } from '../../src/delivery/clock.ts';
import { Feed, type FeedParts } from '../../src/feed/feed.ts';
import type { App } from '../../src/http/context.ts';
import { LargeResponses, limitSlowReaders } from '../../src/http/intake/slow_readers.ts';
import { addStalls } from '../../src/http/intake/stalls.ts';
import { onClosed } from '../../src/http/on_closed.ts';
import { type BackupContext, backupRoutes } from '../../src/http/routes/backups.ts';
import { eventRoutes } from '../../src/http/routes/events.ts';
import type { BackupStore } from '../../src/store/contract/backups.ts';
import type { Stall } from '../../src/store/contract/stall.ts';
import { LONG_SIGN } from '../../src/store/thread/stall.ts';
import { startCopies } from '../support/copies.ts';
import { until } from '../support/wait.ts';

function appFor(t: TestContext) {
  const app = Fastify({
    schemaController: {
      compilersFactory: { buildValidator: () => () => () => true, buildSerializer: () => () => JSON.stringify },
    },
  } as never);
  app.setErrorHandler((error, _request, reply) => reply.code(503).send({ detail: (error as Error).message }));
  t.after(() => app.close());
  return app;
}

/** Gives every request a standing that does not end. */
function permitAll(app: ReturnType<typeof appFor>): void {
  const standing = { principal: { key_id: 'k' }, token: null, revocationReason: () => null };
  for (const name of ['principal', 'standing', 'signed_in']) app.decorateRequest(name, null);
  app.addHook('onRequest', (request, _reply, done) => {
    Object.assign(request, { principal: { key_id: 'k', visibility: null, meeting_ids: null }, standing });
    done();
  });
}

async function listening(app: ReturnType<typeof appFor>): Promise<string> {
  await app.listen({ port: 0, host: '127.0.0.1' });
  return `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
}

/** A gate that holds up everything that waits for it. */
class Gate {
  #opened = Promise.withResolvers<void>();
  waiting = 0;

  async pass(): Promise<void> {
    this.waiting++;
    await this.#opened.promise;
    this.waiting--;
  }

  open(): void {
    this.#opened.resolve();
    this.#opened = Promise.withResolvers<void>();
  }
}

test('a client that leaves before its large response is made takes none of the room for large responses', async (t) => {
  const ANSWER = 'x'.repeat(200_000);
  const gate = new Gate();
  const app = appFor(t);
  app.addHook('onSend', limitSlowReaders(new LargeResponses(2 * ANSWER.length)));
  app.get('/held', async () => {
    await gate.pass();
    return ANSWER;
  });
  app.get('/', async () => ANSWER);
  const url = await listening(app);
  for (let i = 0; i < 5; i++) {
    const request = http.get(`${url}/held`, { agent: false }).on('error', () => {});
    await until(
      'the request',
      () => gate.waiting,
      (count) => count === 1,
    );
    const closed = new Promise((resolve) => app.server.once('connection', resolve));
    request.destroy();
    // One more connection, so that the server has seen the end of the one before.
    const answer = await fetch(`${url}/`, { headers: { connection: 'close' } });
    await closed;
    assert.equal(answer.status, 200);
    await answer.text();
    gate.open();
    await until(
      'the handler',
      () => gate.waiting,
      (count) => count === 0,
    );
  }
  assert.equal((await fetch(url)).status, 200);
});

/** A storage that stalls when the test says so. */
function stallOf() {
  let listener: Parameters<Stall['onStall']>[0] = () => {};
  const stall: Stall = { onStall: (f) => (listener = f), is_stalled: false, holds_up_reading: false };
  /** Lets the storage stall, so long that it gives so many signs of it. */
  const giveSigns = (signs: number): void => {
    for (let sign = 1; sign <= signs; sign++) listener(sign >= LONG_SIGN, sign === 1);
  };
  return { stall, giveSigns };
}

test('a response that has begun arrives whole, although the storage stalls meanwhile', async (t) => {
  const gate = new Gate();
  const { stall, giveSigns } = stallOf();
  const app = appFor(t);
  addStalls(app as unknown as App, stall);
  app.get('/api/v1/download/', async (_request, reply) => {
    async function* parts() {
      yield 'the beginning';
      await gate.pass();
      yield ' and the end';
    }
    return reply.send(Readable.from(parts()));
  });
  const response = await fetch(`${await listening(app)}/api/v1/download/`);
  assert.equal(response.status, 200);
  giveSigns(LONG_SIGN);
  await new Promise((resolve) => setImmediate(resolve));
  gate.open();
  assert.equal(await response.text(), 'the beginning and the end');
});

describe('a feed that is opened', () => {
  async function start(t: TestContext) {
    const gate = new Gate();
    const { stall, giveSigns } = stallOf();
    const parts = {
      clock: systemClock(),
      store: { messages: { last: async () => gate.pass().then(() => null) } },
      listeners_max: 2,
      written: async () => {},
      onError: assert.ifError,
    };
    const feed = new Feed(parts as unknown as FeedParts);
    t.after(() => feed.stop());
    const app = appFor(t);
    permitAll(app);
    addStalls(app as unknown as App, stall);
    eventRoutes(app as unknown as App, { feed });
    const url = `${await listening(app)}/api/v1/events/`;
    return { feed, gate, url, giveSigns };
  }

  test('while the storage stalls leaves no listener behind', async (t) => {
    const { feed, gate, url, giveSigns } = await start(t);
    const response = fetch(url);
    await until(
      'the feed to be opened',
      () => gate.waiting,
      (count) => count === 1,
    );
    giveSigns(LONG_SIGN);
    assert.equal((await response).status, 503);
    gate.open();
    await until(
      'the end of the opening',
      () => gate.waiting,
      (count) => count === 0,
    );
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(feed.listeners, 0);
  });

  test('control: otherwise it has a listener, also after several short stalls', async (t) => {
    const { feed, gate, url, giveSigns } = await start(t);
    const abort = new AbortController();
    const response = fetch(url, { signal: abort.signal });
    await until(
      'the feed to be opened',
      () => gate.waiting,
      (count) => count === 1,
    );
    for (let stalls = 0; stalls < 3; stalls++) giveSigns(LONG_SIGN - 1);
    gate.open();
    assert.equal((await response).status, 200);
    assert.equal(feed.listeners, 1);
    abort.abort();
    await until(
      'its end',
      () => feed.listeners,
      (count) => count === 0,
    );
  });
});

describe('a whole copy of all data', () => {
  /** @param onTaken called in the turn in which a call has taken the copy, after that call */
  async function start(t: TestContext, onTaken: (giveSigns: (signs: number) => void) => void = () => {}) {
    const gate = new Gate();
    const { stall, giveSigns } = stallOf();
    const { backups, makeCopy } = startCopies(t);
    const gated: BackupStore = {
      begin: () => backups.begin(),
      wait: async (backup_id, wait_ms) => gate.pass().then(() => backups.wait(backup_id, wait_ms)),
      take: (backup_id) => {
        queueMicrotask(() => onTaken(giveSigns));
        return backups.take(backup_id);
      },
    };
    const app = appFor(t);
    permitAll(app);
    addStalls(app as unknown as App, stall);
    const left = Promise.withResolvers<void>();
    app.server.on('request', (_request, response: ServerResponse) => onClosed(response, left.resolve));
    backupRoutes(
      app as unknown as App,
      { store: { backups: gated }, clock: systemClock() } as unknown as BackupContext,
    );
    const url = `${await listening(app)}/api/v1/backups/${await makeCopy()}/`;
    /** Waits until as many calls wait for the copy. */
    const waiting = (calls: number) =>
      until(
        `${calls} calls`,
        () => gate.waiting,
        (count) => count === calls,
      );
    const fetchCopy = async (): Promise<[status: number, begin: string]> => {
      const response = fetch(url, { headers: { connection: 'close' } });
      await waiting(1);
      gate.open();
      const { status } = await response;
      return [status, (await (await response).text()).slice(0, 15)];
    };
    return { gate, url, left: left.promise, waiting, giveSigns, fetchCopy };
  }

  test('stays for the next call of a client that left', async (t) => {
    const { gate, url, left, waiting, fetchCopy } = await start(t);
    const request = http.get(url, { agent: false }).on('error', () => {});
    await waiting(1);
    request.destroy();
    await left;
    gate.open();
    await waiting(0);
    assert.deepEqual(await fetchCopy(), [200, 'SQLite format 3']);
  });

  test('stays for the next call of a client that got 503, because the storage stalled', async (t) => {
    const { gate, url, waiting, giveSigns, fetchCopy } = await start(t);
    const response = fetch(url, { headers: { connection: 'close' } });
    await waiting(1);
    giveSigns(LONG_SIGN);
    assert.equal((await response).status, 503);
    gate.open();
    await waiting(0);
    assert.deepEqual(await fetchCopy(), [200, 'SQLite format 3']);
  });

  test('arrives, although the storage stalls before its first bytes are read', async (t) => {
    const { fetchCopy } = await start(t, (giveSigns) => giveSigns(LONG_SIGN));
    assert.deepEqual(await fetchCopy(), [200, 'SQLite format 3']);
  });
});

describe('onClosed', () => {
  async function exchange(t: TestContext) {
    const { promise, resolve } = Promise.withResolvers<[IncomingMessage, ServerResponse]>();
    const server = http.createServer((...both) => resolve(both));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close());
    const { port } = server.address() as AddressInfo;
    const client = http.get({ port, host: '127.0.0.1', agent: false }).on('error', () => {});
    const [, response] = await promise;
    return { client, response };
  }

  test('calls back at once when the connection has closed before', async (t) => {
    const { client, response } = await exchange(t);
    client.destroy();
    await once(response, 'close');
    let calls = 0;
    onClosed(response, () => calls++);
    assert.equal(calls, 1);
  });

  test('calls back once when the connection closes later', async (t) => {
    const { client, response } = await exchange(t);
    let calls = 0;
    onClosed(response, () => calls++);
    assert.equal(calls, 0);
    client.destroy();
    await once(response, 'close');
    assert.equal(calls, 1);
  });
});
