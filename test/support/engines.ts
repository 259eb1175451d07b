/** The database engines of the store. Each opens stores that close at the end of the test. */
import { createSecretKey } from 'node:crypto';
import type { TestContext } from 'node:test';
import {
  type Answer,
  type Call,
  errorOf,
  type StoreName,
  packCall,
  type Reply,
  unpackReply,
} from '../../src/store/thread/thread_protocol.ts';
import type { KeySource } from '../../src/store/secrets/data_keys.ts';
import { openPostgresStore } from '../../src/store/postgres/open.ts';
import { Executor, type ThreadPort } from '../../src/store/postgres/executor.ts';
import { changeOf, type RawChange } from '../../src/store/postgres/cluster/stored_rows.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import type { Audited } from '../../src/store/contract/audit.ts';
import type { Change, ClusterStore } from '../../src/store/contract/cluster.ts';
import { NO_QUOTAS, type Quotas } from '../../src/store/contract/quotas.ts';
import type { Store } from '../../src/store/store.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { openStoreHere, temporaryFile } from './node.ts';
import { storeOfCalls } from './store_of_calls.ts';
import { lendDatabase, makeDatabase } from './postgres.ts';

/** All nodes of a test have the same keys. */
const KEYS = { current: createSecretKey(Buffer.alloc(32, 9)), previous: null };

export const POSTGRES_KEYS: KeySource = { kind: 'given', keys: KEYS };

export interface EngineUnderTest {
  name: 'SQLite' | 'PostgreSQL';
  /** Opens a store with new data in this thread. */
  open(t: TestContext, quotas?: Quotas): Promise<Store>;
  /** Opens a store in a separate thread, as the service does. */
  openThread(t: TestContext): Promise<Store>;
}

export const ENGINES: readonly EngineUnderTest[] = [
  {
    name: 'SQLite',
    async open(t, quotas) {
      const store = openStoreHere(':memory:', quotas);
      let closed: Promise<void> | null = null;
      const close = (): Promise<void> => (closed ??= store.close());
      t.after(close);
      return { ...store, close };
    },
    async openThread(t) {
      const { store, opened } = openSqliteStore(temporaryFile(t), null);
      t.after(() => store.close());
      await opened;
      return store;
    },
  },
  {
    name: 'PostgreSQL',
    async open(t, quotas) {
      const { url, giveBack } = await lendDatabase();
      const store = await openPostgresHere(url, quotas);
      t.after(async () => {
        await store.close();
        giveBack();
      });
      return store;
    },
    async openThread(t) {
      const { store, opened } = openPostgresStore(await makeDatabase(), '', KEYS);
      t.after(() => store.close());
      await opened;
      return store;
    },
  },
];

export function engineNamed(name: EngineUnderTest['name']): EngineUnderTest {
  return ENGINES.find((engine) => engine.name === name)!;
}

/**
 * Opens the PostgreSQL store in this thread, because its own thread takes half a second to start. Values that would go
 * from thread to thread are copied here.
 *
 * @param now_ms the clock with which the store watches the leases of other nodes
 * @param failed called when work failed that no call waits for
 */
export async function openPostgresHere(
  url: string,
  quotas: Quotas = NO_QUOTAS,
  now_ms?: () => number,
  failed: ThreadPort['failed'] = () => {},
): Promise<Store> {
  const waiting = new Map<number, { call: Call; resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  let last_id = 0;
  let is_closed = false;
  let onChange: (change: Change) => void = () => {};
  const settle = (given: Reply): void => {
    const reply = structuredClone(given);
    const { call, resolve, reject } = waiting.get(reply.id)!;
    waiting.delete(reply.id);
    const error = errorOf(reply);
    if (error === null) resolve(unpackReply(call.method, reply).value);
    else reject(error);
  };
  const port = {
    answer: ({ replies }: Answer) => replies.forEach(settle),
    change: (raw: RawChange) => onChange(changeOf(structuredClone(raw))),
    failed,
  };
  const executor = await Executor.open(url, POSTGRES_KEYS, quotas, port, Date.now(), now_ms);
  const call = (store: StoreName, method: string, args: unknown[], audited?: Audited): Promise<unknown> => {
    if (is_closed) return Promise.reject(new StoreError('STORE_CLOSED', 'the store is closed'));
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const call: Call = { id: ++last_id, store, method, args: structuredClone(args), ...(audited && { audited }) };
    waiting.set(call.id, { call, resolve, reject });
    executor.run([packCall(call)]);
    return promise;
  };
  const cluster = new Proxy({} as ClusterStore, {
    get:
      (_, method) =>
      (...args: unknown[]) =>
        call('cluster', String(method), args),
  });
  return {
    ...storeOfCalls(call),
    cluster,
    onChange: (listener) => (onChange = listener),
    ping: async () => void (await call('storage', 'touch', [])),
    async close() {
      if (is_closed) return;
      is_closed = true;
      await executor.close();
    },
  };
}
