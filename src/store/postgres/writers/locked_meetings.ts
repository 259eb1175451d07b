import { texts } from '../connection/batch_message.ts';
import type { Connection } from '../connection/connection.ts';

const ANSWER_MS_MAX = 5_000;
/** The most locked meetings that are remembered. */
const KNOWN_MAX = 20_000;

/** The meetings of $1 whose rows an accept would have to wait for. Locks the others, only for this statement. */
const LOCKED = `
  WITH free AS MATERIALIZED (SELECT meeting_id FROM meetings WHERE meeting_id = ANY ($1) FOR UPDATE SKIP LOCKED)
  SELECT meeting_id FROM meetings WHERE meeting_id = ANY ($1) AND meeting_id NOT IN (SELECT meeting_id FROM free)`;

/** The meetings whose rows another session has locked, such as a person by SELECT … FOR UPDATE in psql. */
export class LockedMeetings {
  readonly #known = new Set<string>();

  /** Which of these meetings were locked when somebody last looked. */
  knownAmong(meeting_ids: readonly string[]): string[] {
    return this.#known.size === 0 ? [] : meeting_ids.filter((meeting_id) => this.#known.has(meeting_id));
  }

  /** Looks which of these meetings are locked now. */
  async find(connection: Connection, meeting_ids: readonly string[]): Promise<ReadonlySet<string>> {
    const values = [texts([...meeting_ids])];
    const { rows } = await connection.batch<{ meeting_id: string }>(LOCKED, values, ANSWER_MS_MAX);
    const locked = new Set(rows.map(({ meeting_id }) => meeting_id));
    if (this.#known.size > KNOWN_MAX) this.#known.clear();
    for (const meeting_id of meeting_ids) {
      if (locked.has(meeting_id)) this.#known.add(meeting_id);
      else this.#known.delete(meeting_id);
    }
    return locked;
  }
}

/** Nothing of a batch is stored, because the rows of these meetings are locked. */
export class MeetingsLocked extends Error {
  readonly meeting_ids: ReadonlySet<string>;

  constructor(meeting_ids: ReadonlySet<string>) {
    super('rows of meetings are locked');
    this.meeting_ids = meeting_ids;
  }
}
