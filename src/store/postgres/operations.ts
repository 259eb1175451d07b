import type { IdCodec } from '../../domain/id.ts';
import type { DataKeys } from '../secrets/data_keys.ts';
import type { ApiKeyStore } from '../contract/api_keys.ts';
import type { AuditStore } from '../contract/audit.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import type { EncryptionStore } from '../contract/encryption.ts';
import type { InstanceStore } from '../contract/instances.ts';
import type { InviteStore } from '../contract/invites.ts';
import type { MeetingStore } from '../contract/meetings.ts';
import type { MessageStore } from '../contract/messages.ts';
import type { Quotas } from '../contract/quotas.ts';
import type { SessionStore } from '../contract/sessions.ts';
import { apiKeyOperations } from './api_keys.ts';
import { auditOperations } from './audit.ts';
import { type Session, statement } from './database.ts';
import { deliveryOperations } from './deliveries.ts';
import { encryptionOperations } from './encryption.ts';
import { instanceOperations } from './instances.ts';
import { inviteOperations } from './invites.ts';
import { meetingOperations } from './meetings.ts';
import { messageOperations } from './messages.ts';
import { sessionOperations } from './sessions.ts';

/** The parts that operations share besides their connection. */
export interface Parts {
  keys: DataKeys;
  ids: IdCodec;
  quotas: Quotas;
}

/** The methods other than accepting and settling, which have connections of their own. */
export interface Operations {
  instances: InstanceStore;
  meetings: MeetingStore;
  messages: Omit<MessageStore, 'accept'>;
  deliveries: Omit<DeliveryStore, 'settle'>;
  encryption: EncryptionStore;
  api_keys: ApiKeyStore;
  invites: InviteStore;
  audit: AuditStore;
  sessions: SessionStore;
  storage: {
    /** Writes a row, to check that writes succeed. */
    touch(): Promise<void>;
  };
}

/** While another transaction has locked the row, this writes nothing: to wait for the lock would look like a stall. */
const TOUCH = statement(`
  UPDATE this_database SET touches = touches + 1
  WHERE only_row IN (SELECT only_row FROM this_database FOR NO KEY UPDATE SKIP LOCKED)`);

/** Makes the methods of each group. A call makes only the methods of its own group. */
const MAKERS: { [Noun in keyof Operations]: (session: Session, parts: Parts) => Operations[Noun] } = {
  instances: (session, parts) => instanceOperations(session, parts, apiKeyOperations(session)),
  meetings: meetingOperations,
  messages: messageOperations,
  deliveries: deliveryOperations,
  encryption: encryptionOperations,
  api_keys: apiKeyOperations,
  invites(session, parts) {
    const api_keys = apiKeyOperations(session);
    return inviteOperations(session, api_keys, instanceOperations(session, parts, api_keys));
  },
  audit: auditOperations,
  sessions: sessionOperations,
  storage: (session) => ({
    async touch() {
      await session.run(TOUCH);
    },
  }),
};

/** The methods that only read. They need no transaction. */
const READS: Readonly<Partial<Record<string, readonly string[]>>> = {
  instances: ['get', 'find', 'load', 'list', 'listIds', 'count', 'webhookUrls'],
  meetings: ['get', 'list', 'instances', 'settings', 'allSettings', 'candidates'],
  messages: ['list', 'get', 'ofDelivery', 'search', 'answeredBy', 'answersTo', 'last', 'since'],
  deliveries:
    'loadLanes loadAside ofAgentsBefore rulesAtHead pendingLanes pendingAside get list search countWaiting countRecoverable countMissed countPending oldestPending timeNoted'.split(
      ' ',
    ),
  encryption: ['keyIds', 'derivedKeys'],
  api_keys: ['get', 'list', 'changedSince'],
  invites: ['find', 'list'],
  sessions: ['find'],
  audit: ['list'],
};

/** The methods that the engine calls to deliver, and the read of the keys that other nodes changed. */
const FOR_DELIVERY: Readonly<Partial<Record<string, readonly string[]>>> = {
  instances: ['load'],
  meetings: ['settings', 'allSettings'],
  deliveries: ['loadAside', 'ofAgentsBefore', 'rulesAtHead', 'pendingLanes', 'pendingAside', 'timeNoted', 'noteTime'],
  api_keys: ['changedSince'],
};

/** Whether a call serves the delivery, and not a request. */
export function isForDelivery(store: string, method: string): boolean {
  return FOR_DELIVERY[store]?.includes(method) === true;
}

/** Whether a method only reads. */
export function isRead(store: string, method: string): boolean {
  return READS[store]?.includes(method) === true;
}

/** A method of a store, on a connection. */
export function operationOf(
  session: Session,
  parts: Parts,
  store: string,
  method: string,
): (...args: unknown[]) => Promise<unknown> {
  const make = (MAKERS as Record<string, (session: Session, parts: Parts) => object>)[store];
  const found = (make?.(session, parts) as Record<string, unknown> | undefined)?.[method];
  if (typeof found !== 'function') throw new Error(`the store has no ${store}.${method}`);
  return found as (...args: unknown[]) => Promise<unknown>;
}
