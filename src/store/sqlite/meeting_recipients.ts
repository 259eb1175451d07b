import type { Wake } from '../../domain/agents_to_notify.ts';
import { storedTexts, storedWake } from '../rows/stored_values.ts';
import type { Database } from './database.ts';

export interface Recipient {
  instance_id: string;
  agent_ids: string[];
  wake: Wake;
}

/** The recipients of a meeting (spec section 4, step 1). */
const RECIPIENTS = `
  SELECT m.instance_id, m.agent_ids, m.wake
  FROM memberships m JOIN instances i ON i.instance_id = m.instance_id
  WHERE m.meeting_id = ? AND m.left_at IS NULL AND i.is_active = 1 AND i.webhook_enabled = 1
  ORDER BY m.instance_id`;

const MEETINGS = 'SELECT meeting_id FROM memberships WHERE instance_id = ? AND left_at IS NULL';

/** The most memberships in memory, over all meetings: by number, and by the characters of their lists. */
const MEMBERSHIPS_MAX = 200_000;
const LISTS_CHARS_MAX = 32 << 20;

interface Kept {
  recipients: readonly Recipient[];
  chars: number;
}

/**
 * Keeps the recipients of each meeting in memory, because reading a hundred members costs more than all other work on a
 * message. Only this thread writes the file, so its code can keep this memory right: it calls `forget` when it changes a
 * membership, `forgetMeetingsOf` when it switches an instance on or off, and `forgetAll` when it undoes a transaction.
 */
export class Recipients {
  readonly #db: Database;
  readonly #meetings = new Map<string, Kept>();
  #memberships = 0;
  #chars = 0;

  constructor(db: Database) {
    this.#db = db;
  }

  of(meeting_id: string): readonly Recipient[] {
    const known = this.#meetings.get(meeting_id);
    if (known !== undefined) return known.recipients;
    const rows = this.#db.prepare(RECIPIENTS).all(meeting_id) as {
      instance_id: string;
      agent_ids: string;
      wake: string;
    }[];
    const found = rows.map((row) => ({
      instance_id: row.instance_id,
      agent_ids: storedTexts(row.agent_ids, 'memberships', 'agent_ids', JSON.stringify([meeting_id, row.instance_id])),
      wake: storedWake(row.wake, meeting_id, row.instance_id),
    }));
    const chars = rows.reduce((sum, row) => sum + row.agent_ids.length, 0);
    const is_full = this.#memberships + found.length > MEMBERSHIPS_MAX || this.#chars + chars > LISTS_CHARS_MAX;
    if (is_full) this.forgetAll();
    this.#meetings.set(meeting_id, { recipients: found, chars });
    this.#chars += chars;
    // Adds 1 for the meeting itself, because a meeting without recipients takes memory too.
    this.#memberships += found.length + 1;
    return found;
  }

  /** A membership of this meeting changed. */
  forget(meeting_id: string): void {
    const known = this.#meetings.get(meeting_id);
    if (known === undefined) return;
    this.#meetings.delete(meeting_id);
    this.#memberships -= known.recipients.length + 1;
    this.#chars -= known.chars;
  }

  /** An instance is switched on or off, or will be deleted. Call it while the instance has its memberships. */
  forgetMeetingsOf(instance_id: string): void {
    for (const { meeting_id } of this.#db.prepare(MEETINGS).all(instance_id) as { meeting_id: string }[])
      this.forget(meeting_id);
  }

  /** A transaction was undone. A list in memory may have rows that the transaction had written. */
  forgetAll(): void {
    this.#meetings.clear();
    this.#memberships = 0;
    this.#chars = 0;
  }
}
