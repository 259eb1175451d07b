import {
  type ApiKeyStore,
  type AuditStore,
  type EncryptionStore,
  type SessionStore,
  type Store,
  StoreError,
} from '../../src/store/store.ts';
import type { StoreOperations } from './model_store.ts';

type Noun = keyof StoreOperations;

/** What the world decides about calls: how long they take, and whether they come through. */
export interface StoreConditions {
  /** Delay until the transaction commits, and from there until the reply is heard. */
  delays(): { commit_ms: number; reply_ms: number };
  schedule(at_ms: number, run: () => void): void;
  now(): number;
  fails(name: string): boolean;
  /** Called around a commit; answers whether the process still lives. */
  beforeCommit(name: string): boolean;
  afterCommit(name: string): boolean;
}

/**
 * A store as one process sees it: calls commit and are answered in the order in which they were made, each after a
 * while. When the process dies, what was not committed never is, and no reply is heard any more.
 */
export function simulatedStore(operations: StoreOperations, conditions: StoreConditions): Store {
  let last_commit_at = 0;
  let last_reply_at = 0;
  const call = (noun: Noun, method: string, args: unknown[]): Promise<unknown> => {
    const name = `${noun}.${method}`;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const { commit_ms, reply_ms } = conditions.delays();
    last_commit_at = Math.max(last_commit_at, conditions.now() + commit_ms);
    last_reply_at = Math.max(last_reply_at, last_commit_at + reply_ms);
    const reply_at = last_reply_at;
    conditions.schedule(last_commit_at, () => {
      if (!conditions.beforeCommit(name)) return;
      let answer: () => void;
      if (conditions.fails(name)) answer = () => reject(new StoreError('SQLITE_FULL', 'simulated: the disk is full'));
      else {
        const methods = operations[noun] as unknown as Record<string, (...args: unknown[]) => unknown>;
        try {
          const value = (methods[method] as (...args: unknown[]) => unknown)(...args);
          answer = () => resolve(value);
        } catch (error) {
          answer = () => reject(error);
        }
        if (!conditions.afterCommit(name)) return;
      }
      conditions.schedule(reply_at, answer);
    });
    return promise;
  };
  const of = <N extends Noun>(noun: N): Store[N] => {
    const methods: Record<string, unknown> = {};
    for (const method of Object.keys(operations[noun]))
      methods[method] = (...args: unknown[]) => call(noun, method, args);
    return methods as unknown as Store[N];
  };
  const store: Store = {
    cluster: null,
    onChange() {},
    instances: of('instances'),
    meetings: of('meetings'),
    messages: of('messages'),
    deliveries: of('deliveries'),
    encryption: {} as EncryptionStore,
    api_keys: {} as ApiKeyStore,
    audit: {} as AuditStore,
    sessions: {} as SessionStore,
    audited: () => store,
    ping: async () => {},
    close: async () => {},
  };
  return store;
}
