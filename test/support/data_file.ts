import type { TestContext } from 'node:test';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { temporaryFile } from './node.ts';

/** How many entries the audit log of the file has. */
export const AUDIT_ENTRIES = 3;

/** A closed data file with a row of each kind: one instance in one meeting, one pending delivery, an audit log. */
export async function makeDataFile(t: TestContext): Promise<string> {
  const file = temporaryFile(t);
  const { store, opened } = openSqliteStore(file, null);
  await opened;
  const webhook = { webhook_url: 'http://127.0.0.1:1/', webhook_headers: undefined, webhook_secret: undefined };
  const rest = {
    agent_ids: ['a'],
    new_secret: `whsec_${Buffer.alloc(32).toString('base64')}`,
    success_statuses: undefined,
  };
  await store.instances.register({ instance_id: 'i', instance_name: 'n', ...webhook, ...rest }, 0);
  await store.meetings.join('m', 'i', ['a'], 0);
  const sent = { meeting_id: 'm', message: '{"content":"x"}', timestamp: '', target_agents: null, origin: null };
  await store.messages.accept([{ ...sent, trace: null, idempotency: null, wall_ms: 0, expires_at: 1 }]);
  const subject = { principal: 'open', address: null, action: 'service.start', target_kind: 'service' } as const;
  for (let at = 0; at < AUDIT_ENTRIES; at++) {
    await store.audit.append({ ...subject, target_id: null, details: {}, outcome: 'done', code: null }, at);
  }
  await store.close();
  return file;
}
