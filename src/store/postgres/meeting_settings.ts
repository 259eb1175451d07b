import type { MeetingPatch, MeetingSettings, SetMeeting } from '../contract/meetings.ts';
import { assertRoomForSettings, isUnset, patched, settingsOf } from '../rows/meeting_settings.ts';
import type { MeetingSettingsTable } from '../rows/tables.ts';
import { type Session, statement } from './database.ts';

const COLUMNS = 'meeting_id, paused, hop_limit, pair_limit, pair_window_s';

const GET = statement(`SELECT ${COLUMNS} FROM meeting_settings WHERE meeting_id = $meeting_id`);
const PAGE = statement(
  `SELECT ${COLUMNS} FROM meeting_settings WHERE meeting_id > $after ORDER BY meeting_id LIMIT $limit`,
);
const COUNT = statement('SELECT count(*) AS meetings FROM meeting_settings');
/** Locks the meeting, so that its changes happen one after the other. */
const LOCK_MEETING = statement('SELECT 1 FROM meetings WHERE meeting_id = $meeting_id FOR NO KEY UPDATE');
const PUT = statement(`
  INSERT INTO meeting_settings (${COLUMNS}, updated_at)
  VALUES ($meeting_id, $paused, $hop_limit, $pair_limit, $pair_window_s, $wall_ms)
  ON CONFLICT (meeting_id) DO UPDATE SET paused = excluded.paused, hop_limit = excluded.hop_limit,
    pair_limit = excluded.pair_limit, pair_window_s = excluded.pair_window_s, updated_at = excluded.updated_at`);
const REMOVE = statement('DELETE FROM meeting_settings WHERE meeting_id = $meeting_id');

/** Null when the meeting has no settings of its own. */
export async function settings(session: Session, meeting_id: string): Promise<MeetingSettings | null> {
  const row = await session.one<MeetingSettingsTable>(GET, { meeting_id });
  return row === undefined ? null : settingsOf(row);
}

export async function allSettings(session: Session, after: string | null, limit: number): Promise<SetMeeting[]> {
  const rows = await session.all<MeetingSettingsTable>(PAGE, { after: after ?? '', limit });
  return rows.map((row) => ({ meeting_id: row.meeting_id, ...settingsOf(row) }));
}

/** Null when there is no such meeting. */
export async function changeSettings(
  session: Session,
  meeting_id: string,
  patch: MeetingPatch,
  wall_ms: number,
): Promise<true | null> {
  if ((await session.one(LOCK_MEETING, { meeting_id })) === undefined) return null;
  const previous = await session.one<MeetingSettingsTable>(GET, { meeting_id });
  const changed = patched(settingsOf(previous), patch);
  session.messages.push({ kind: 'meeting', meeting_id });
  if (isUnset(changed)) {
    await session.run(REMOVE, { meeting_id });
    return true;
  }
  if (previous === undefined) assertRoomForSettings((await session.one<{ meetings: number }>(COUNT))?.meetings ?? 0);
  const { paused, hop_limit, pair_limit, pair_window_s } = changed;
  await session.run(PUT, { meeting_id, paused: paused ? 1 : 0, hop_limit, pair_limit, pair_window_s, wall_ms });
  return true;
}
