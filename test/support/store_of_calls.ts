import type { Audited } from '../../src/store/contract/audit.ts';
import type { AuditedStore, Store } from '../../src/store/store.ts';

export type Noun = keyof AuditedStore | 'messages' | 'audit';

/** Makes a call on the store. @param audited the change that the call writes to the audit log */
export type MakeCall = (noun: Noun, method: string, args: unknown[], audited?: Audited) => Promise<unknown>;

/** The part of a store without state: every method of every noun calls one function. */
export function storeOfCalls(make: MakeCall): Pick<Store, Noun | 'audited'> {
  const of = <N extends Noun>(noun: N, audited?: Audited): Store[N] =>
    new Proxy({} as Store[N], {
      get:
        (_, method) =>
        (...args: unknown[]) =>
          make(noun, String(method), args, audited),
    });
  return {
    instances: of('instances'),
    meetings: of('meetings'),
    messages: of('messages'),
    deliveries: of('deliveries'),
    encryption: of('encryption'),
    api_keys: of('api_keys'),
    invites: of('invites'),
    audit: of('audit'),
    sessions: of('sessions'),
    audited: (audited) => ({
      instances: of('instances', audited),
      meetings: of('meetings', audited),
      deliveries: of('deliveries', audited),
      encryption: of('encryption', audited),
      api_keys: of('api_keys', audited),
      invites: of('invites', audited),
      sessions: of('sessions', audited),
    }),
  };
}
