/** The settings of meetings, as both engines read them. */
import { Problem } from '../../domain/problem.ts';
import { MEETINGS_SET_MAX, type MeetingPatch, type MeetingSettings, NO_SETTINGS } from '../contract/meetings.ts';
import type { MeetingSettingsTable } from './tables.ts';

/** A row, or the result of a LEFT JOIN for a meeting without settings of its own. */
export function settingsOf(row: SettingsRow | undefined): MeetingSettings {
  if (row === undefined) return NO_SETTINGS;
  const { paused, hop_limit, pair_limit, pair_window_s } = row;
  return { paused: paused === 1, hop_limit, pair_limit, pair_window_s };
}

type SettingsRow = Pick<MeetingSettingsTable, 'hop_limit' | 'pair_limit' | 'pair_window_s'> & { paused: number | null };

export function patched(settings: MeetingSettings, patch: MeetingPatch): MeetingSettings {
  const { paused, hop_limit, pair_limit, pair_window_s } = patch;
  return {
    paused: paused ?? settings.paused,
    hop_limit: hop_limit === undefined ? settings.hop_limit : hop_limit,
    pair_limit: pair_limit === undefined ? settings.pair_limit : pair_limit,
    pair_window_s: pair_window_s === undefined ? settings.pair_window_s : pair_window_s,
  };
}

/** Whether every setting has its default, so that the row can be deleted. */
export function isUnset({ paused, hop_limit, pair_limit, pair_window_s }: MeetingSettings): boolean {
  return !paused && hop_limit === null && pair_limit === null && pair_window_s === null;
}

/** @throws Problem `quota_exceeded` */
export function assertRoomForSettings(meetings: number): void {
  if (meetings < MEETINGS_SET_MAX) return;
  throw new Problem(
    'quota_exceeded',
    `${MEETINGS_SET_MAX} meetings are paused or have limits of their own, the most that there may be. Resume some, or set their limits to null.`,
  );
}
