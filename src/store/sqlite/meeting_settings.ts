import type { MeetingPatch, MeetingSettings, SetMeeting } from '../contract/meetings.ts';
import { assertRoomForSettings, isUnset, patched, settingsOf } from '../rows/meeting_settings.ts';
import type { MeetingSettingsTable } from '../rows/tables.ts';
import type { Database } from './database.ts';

const COLUMNS = 'meeting_id, paused, hop_limit, pair_limit, pair_window_s';

const GET = `SELECT ${COLUMNS} FROM meeting_settings WHERE meeting_id = ?`;
const PAGE = `SELECT ${COLUMNS} FROM meeting_settings WHERE meeting_id > ? ORDER BY meeting_id LIMIT ?`;
const COUNT = 'SELECT count(*) AS meetings FROM meeting_settings';
const PUT = `
  INSERT INTO meeting_settings (${COLUMNS}, updated_at) VALUES (?, ?, ?, ?, ?, ?)
  ON CONFLICT (meeting_id) DO UPDATE SET paused = excluded.paused, hop_limit = excluded.hop_limit,
    pair_limit = excluded.pair_limit, pair_window_s = excluded.pair_window_s, updated_at = excluded.updated_at`;
const REMOVE = 'DELETE FROM meeting_settings WHERE meeting_id = ?';

/** Null when the meeting has no settings of its own. */
export function settings(db: Database, meeting_id: string): MeetingSettings | null {
  const row = db.prepare(GET).get(meeting_id) as MeetingSettingsTable | undefined;
  return row === undefined ? null : settingsOf(row);
}

export function allSettings(db: Database, after: string | null, limit: number): SetMeeting[] {
  const rows = db.prepare(PAGE).all(after ?? '', limit) as unknown as MeetingSettingsTable[];
  return rows.map((row) => ({ meeting_id: row.meeting_id, ...settingsOf(row) }));
}

/** Null when there is no such meeting. */
export function changeSettings(db: Database, meeting_id: string, patch: MeetingPatch, wall_ms: number): true | null {
  if (db.prepare('SELECT 1 FROM meetings WHERE meeting_id = ?').get(meeting_id) === undefined) return null;
  const previous = db.prepare(GET).get(meeting_id) as MeetingSettingsTable | undefined;
  const changed = patched(settingsOf(previous), patch);
  if (isUnset(changed)) {
    db.prepare(REMOVE).run(meeting_id);
    return true;
  }
  if (previous === undefined) assertRoomForSettings((db.prepare(COUNT).get() as { meetings: number }).meetings);
  const { paused, hop_limit, pair_limit, pair_window_s } = changed;
  db.prepare(PUT).run(meeting_id, paused ? 1 : 0, hop_limit, pair_limit, pair_window_s, wall_ms);
  return true;
}
