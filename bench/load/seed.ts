/**
 * Fills a data file through the methods of the store. The instances of a fleet are registered and have joined their
 * meetings, and deliveries are pending.
 */
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { serveCommands } from './channel.ts';
import { type Fleet, meetingsOf } from './fleet.ts';
import { registerFleet } from './register.ts';

export interface Seed {
  file: string;
  fleet: Fleet;
  /** How many messages of each meeting wait to be delivered. */
  pending_messages?: number;
}

const MESSAGES_PER_BATCH = 50;
const EXPIRE_AFTER_MS = 72 * 3_600_000;

const MESSAGE = Buffer.from(
  JSON.stringify({
    id: 'msg-000000000',
    sent_at: '0'.repeat(16),
    created_at: '2030-01-01T00:00:00.000Z',
    sender: 'bench',
    text: 'The quick brown fox jumps over the lazy dog, and nobody in the meeting objects. '.repeat(4),
  }),
);

async function seed({ file, fleet, pending_messages = 0 }: Seed): Promise<{ deliveries: number }> {
  const { store, opened } = openSqliteStore(file, null);
  await opened;
  const wall_ms = Date.now();
  await registerFleet(() => store, fleet, wall_ms);
  let deliveries = 0;
  for (let left = pending_messages; left > 0; left -= MESSAGES_PER_BATCH) {
    for (const meeting_id of meetingsOf(fleet)) {
      const batch = Array.from({ length: Math.min(left, MESSAGES_PER_BATCH) }, () => ({
        meeting_id,
        message: MESSAGE.toString(),
        timestamp: '2030-01-01T00:00:00.000Z',
        target_agents: null,
        origin: null,
        trace: null,
        idempotency: null,
        wall_ms,
        expires_at: wall_ms + EXPIRE_AFTER_MS,
      }));
      for (const accepted of await store.messages.accept(batch)) {
        if (accepted.kind === 'accepted') deliveries += accepted.deliveries.length;
      }
    }
  }
  await store.close();
  return { deliveries };
}

export type Seeder = typeof commands;

const commands = serveCommands({ seed });
