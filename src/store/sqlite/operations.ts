import type { Sync } from './sync.ts';
import type { IdCodec, NumberSource } from '../../domain/id.ts';
import type { DataKeys } from '../secrets/data_keys.ts';
import type { ApiKeyStore } from '../contract/api_keys.ts';
import type { AuditStore } from '../contract/audit.ts';
import type { DeliveryStore } from '../contract/deliveries.ts';
import type { EncryptionStore } from '../contract/encryption.ts';
import type { FileStore } from '../contract/file.ts';
import type { InstanceStore } from '../contract/instances.ts';
import type { InviteStore } from '../contract/invites.ts';
import type { MeetingStore } from '../contract/meetings.ts';
import type { MessageStore } from '../contract/messages.ts';
import { NO_QUOTAS, type Quotas } from '../contract/quotas.ts';
import type { SessionStore } from '../contract/sessions.ts';
import { apiKeyOperations } from './api_keys.ts';
import { auditOperations } from './audit.ts';
import type { Database } from './database.ts';
import { deliveryOperations } from './deliveries.ts';
import { encryptionOperations } from './encryption.ts';
import { fileOperations } from './file/space.ts';
import { instanceOperations } from './instances.ts';
import { inviteOperations } from './invites.ts';
import { meetingOperations } from './meetings.ts';
import { messageOperations } from './messages.ts';
import type { Recipients } from './meeting_recipients.ts';
import { sessionOperations } from './sessions.ts';

export interface Operations {
  instances: Sync<InstanceStore>;
  meetings: Sync<MeetingStore>;
  messages: Sync<MessageStore>;
  deliveries: Sync<DeliveryStore>;
  encryption: Sync<EncryptionStore>;
  api_keys: Sync<ApiKeyStore>;
  invites: Sync<InviteStore>;
  audit: Sync<AuditStore>;
  sessions: Sync<SessionStore>;
  file: Sync<FileStore>;
  storage: {
    /**
     * Writes a row, to check that writes succeed. Each call changes a value, because SQLite skips a write without a
     * change.
     */
    touch(): void;
  };
}

export function operationsOf(
  db: Database,
  keys: DataKeys,
  numbers: NumberSource,
  ids: IdCodec,
  recipients: Recipients,
  quotas: Quotas = NO_QUOTAS,
): Operations {
  const api_keys = apiKeyOperations(db);
  const instances = instanceOperations(db, keys, numbers, recipients, api_keys, quotas);
  return {
    instances,
    meetings: meetingOperations(db, recipients, quotas),
    messages: messageOperations(db, numbers, ids, recipients),
    deliveries: deliveryOperations(db, ids, recipients),
    encryption: encryptionOperations(db, keys),
    api_keys,
    invites: inviteOperations(db, api_keys, instances),
    audit: auditOperations(db),
    sessions: sessionOperations(db),
    file: fileOperations(db),
    storage: { touch: () => void db.prepare('UPDATE this_file SET touches = touches + 1').run() },
  };
}
