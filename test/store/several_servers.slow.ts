/** Which server the store takes when its connection string names several: see database_url.test.ts. */
import assert from 'node:assert/strict';
import { after, before, describe, test, type TestContext } from 'node:test';
import { Connection, ConnectionLost } from '../../src/store/postgres/connection/connection.ts';
import { migrateDatabase } from '../../src/store/postgres/schema.ts';
import type { Change } from '../../src/store/contract/cluster.ts';
import { NO_QUOTAS } from '../../src/store/contract/quotas.ts';
import type { Store } from '../../src/store/store.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { openPostgresHere } from '../support/engines.ts';
import { PostgresServer } from '../support/postgres_server.ts';
import { meeting, messages } from '../support/store_contents.ts';
import { until } from '../support/wait.ts';

/** An address at which no server listens. */
const DEAD = '127.0.0.1:1';

describe('of several servers', () => {
  let primary: PostgresServer;
  let standby: PostgresServer;
  before(async () => {
    [primary, standby] = await startPair();
    await migrateDatabase(urlOf(primary));
  });
  after(async () => {
    await primary.stop();
    await standby.stop();
  });

  async function startPair(): Promise<[PostgresServer, PostgresServer]> {
    const first = await PostgresServer.start();
    return [first, await first.startStandby()];
  }

  function urlOf(...servers: (PostgresServer | string)[]): string {
    const hosts = servers.map((server) => (typeof server === 'string' ? server : `127.0.0.1:${server.port}`));
    return `postgres://convoke:the-password@${hosts.join()}/postgres?target_session_attrs=read-write`;
  }

  async function open(t: TestContext, url: string): Promise<Store> {
    const store = await openPostgresHere(url, NO_QUOTAS);
    t.after(() => store.close());
    return store;
  }

  async function portOf(connection: Connection): Promise<number> {
    const { rows } = await connection.query<{ port: number }>('SELECT inet_server_port() AS port');
    return rows[0]!.port;
  }

  for (const [name, hosts] of [
    ['a standby', () => urlOf(standby, primary)],
    ['a dead host', () => urlOf(DEAD, primary)],
    ['one and the other', () => urlOf(DEAD, standby, primary)],
  ] as const) {
    test(`${name} is passed over`, async (t) => {
      const connection = await Connection.open(hosts());
      t.after(() => connection.close());
      assert.equal(await portOf(connection), primary.port);
    });
  }

  test('control: a standby alone lets itself be connected to, unless one that writes is asked for', async (t) => {
    const connection = await Connection.open(`postgres://convoke@127.0.0.1:${standby.port}/postgres`);
    t.after(() => connection.close());
    assert.equal(await portOf(connection), standby.port);
    await assert.rejects(Connection.open(urlOf(standby)), (error) => {
      assert(error instanceof ConnectionLost);
      assert.equal(error.code, '25006');
      return true;
    });
  });

  test('where none writes, the error says what became of each, and not the password', async () => {
    await assert.rejects(migrateDatabase(urlOf(DEAD, standby)), (error) => {
      assert(error instanceof StoreError);
      assert.equal(error.code, 'POSTGRES_UNREACHABLE');
      assert.match(error.message, /^No PostgreSQL that writes answers \(127\.0\.0\.1:1: .*ECONNREFUSED/);
      assert.match(error.message, new RegExp(`; 127\\.0\\.0\\.1:${standby.port}: it only reads\\)`));
      assert.doesNotMatch(error.message, /the-password/);
      return true;
    });
  });

  test('a database that no server has is reported as missing, with the names of all servers', async () => {
    await assert.rejects(migrateDatabase(urlOf(primary, DEAD).replace('/postgres?', '/none?')), (error) => {
      assert(error instanceof StoreError);
      assert.equal(error.code, 'POSTGRES_NO_DATABASE');
      assert.match(error.message, new RegExp(`no database "none" at 127.0.0.1:${primary.port}, 127.0.0.1:1: `));
      return true;
    });
  });

  test('another server becomes the primary: stores follow it, and their broadcasts arrive there', async (t) => {
    const [first, second] = await startPair();
    t.after(() => Promise.all([first.stop(), second.stop()]));
    const url = urlOf(first, second);
    const [here, there] = [await open(t, url), await open(t, url)];
    await meeting(here, 'm', 'i');
    await here.messages.accept(messages('m', 1));
    const changes: Change[] = [];
    there.onChange((change) => changes.push(change));

    await first.halt();
    await second.promote();
    const accepted = await here.messages.accept(messages('m', 1));
    assert.equal(accepted[0]?.kind, 'accepted');
    await until(
      'what was told by the other',
      async () => {
        await here.cluster?.broadcast('topic', 'text');
        return changes.some(({ kind }) => kind === 'broadcast');
      },
      Boolean,
    );
    assert.ok(changes.some(({ kind }) => kind === 'resync'));
  });
});
