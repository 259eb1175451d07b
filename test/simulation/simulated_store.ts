import type { ApiKeyStore } from '../../src/store/contract/api_keys.ts';
import type { AuditStore } from '../../src/store/contract/audit.ts';
import type { ClusterStore } from '../../src/store/contract/cluster.ts';
import type { EncryptionStore } from '../../src/store/contract/encryption.ts';
import type { InviteStore } from '../../src/store/contract/invites.ts';
import type { SessionStore } from '../../src/store/contract/sessions.ts';
import type { Store } from '../../src/store/store.ts';
import { StoreError } from '../../src/store/store_error.ts';
import type { ClusterOperations } from './model_cluster.ts';
import type { StoreOperations } from './model_store.ts';

type Noun = keyof ClusterOperations;

/**
 * What happens to a call: it is done; it fails; the connection is lost before it is done (`lost`), or after that but
 * before its result arrives (`unheard`).
 */
export type Fate = 'done' | 'fails' | 'lost' | 'unheard';

/** What the world decides about calls: how long they take, and whether they arrive. */
export interface StoreConditions {
  /** The delay until the transaction commits, and the delay after that until the result arrives. */
  delays(name: string): { commit_ms: number; reply_ms: number };
  /** Runs something in the process, unless the process is dead by then. */
  schedule(at_ms: number, run: () => void): void;
  /** Runs something in the store, whatever happens to the process that asked. */
  scheduleThere(at_ms: number, run: () => void): void;
  now(): number;
  /** The connection of a call; null for a new connection. Calls on the same connection keep their order. */
  channel(name: string): string | null;
  /** The number of the current connection, which changes when it was lost; null while there is none. */
  link(): number | null;
  /** How long the process does not notice that its connection is lost. */
  noticed_ms(): number;
  /** Called when a call arrives. @param link the connection over which it came */
  fate(name: string, link: number | null): Fate;
  /** `beforeCommit` and `afterCommit` are called around a commit. They return whether the process still lives. */
  beforeCommit(name: string): boolean;
  afterCommit(name: string): boolean;
}

/**
 * The store as one process sees it. Calls on one channel commit in the order of the calls, and their results arrive in
 * the same order. When the process dies, calls that are not committed never commit, and no result arrives. In a
 * cluster, calls that were already sent may still commit.
 */
export function simulatedStore(operations: StoreOperations | ClusterOperations, conditions: StoreConditions): Store {
  const channels = new Map<string, { commit_at: number; reply_at: number }>();
  const call = (noun: Noun, method: string, args: unknown[]): Promise<unknown> => {
    const name = `${noun}.${method}`;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const link = conditions.link();
    const loseIt = (code = 'CONNECTION_LOST'): void =>
      conditions.schedule(conditions.now() + conditions.noticed_ms(), () =>
        reject(new StoreError(code, 'simulated: the connection was lost')),
      );
    if (link === null) {
      loseIt();
      return promise;
    }
    const { commit_ms, reply_ms } = conditions.delays(name);
    const channel = conditions.channel(name);
    const last = (channel === null ? undefined : channels.get(channel)) ?? { commit_at: 0, reply_at: 0 };
    const commit_at = Math.max(last.commit_at, conditions.now() + commit_ms);
    const reply_at = Math.max(last.reply_at, commit_at + reply_ms);
    if (channel !== null) channels.set(channel, { commit_at, reply_at });
    conditions.scheduleThere(commit_at, () => {
      if (!conditions.beforeCommit(name)) return;
      const fate = conditions.fate(name, link);
      if (fate === 'lost') return loseIt();
      let answer: () => void;
      if (fate === 'fails') answer = () => reject(new StoreError('SQLITE_FULL', 'simulated: the disk is full'));
      else {
        const methods = (operations as ClusterOperations)[noun] as unknown as Record<
          string,
          (...args: unknown[]) => unknown
        >;
        try {
          const value = (methods[method] as (...args: unknown[]) => unknown)(...args);
          answer = () => resolve(value);
        } catch (error) {
          answer = () => reject(error);
        }
        if (!conditions.afterCommit(name)) return;
        if (fate === 'unheard') return loseIt('IN_DOUBT');
      }
      conditions.schedule(reply_at, () => (conditions.link() === link ? answer() : loseIt('IN_DOUBT')));
    });
    return promise;
  };
  const of = <N extends Noun>(noun: N, methods_of: object): Record<string, unknown> => {
    const methods: Record<string, unknown> = {};
    for (const method of Object.keys(methods_of)) methods[method] = (...args: unknown[]) => call(noun, method, args);
    return methods;
  };
  const store: Store = {
    cluster: 'cluster' in operations ? (of('cluster', operations.cluster) as unknown as ClusterStore) : null,
    onChange() {},
    instances: of('instances', operations.instances) as unknown as Store['instances'],
    meetings: of('meetings', operations.meetings) as unknown as Store['meetings'],
    messages: of('messages', operations.messages) as unknown as Store['messages'],
    deliveries: of('deliveries', operations.deliveries) as unknown as Store['deliveries'],
    encryption: {} as EncryptionStore,
    api_keys: {} as ApiKeyStore,
    invites: {} as InviteStore,
    audit: { prune: async () => 0 } as unknown as AuditStore,
    sessions: {} as SessionStore,
    audited: () => store,
    ping: async () => {},
    close: async () => {},
  };
  return store;
}
