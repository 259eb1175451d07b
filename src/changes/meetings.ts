import type { Clock } from '../delivery/clock.ts';
import type { Engine } from '../delivery/engine.ts';
import { meetingEvent } from '../feed/events.ts';
import type { Feed } from '../feed/feed.ts';
import type { MeetingPatch, MeetingRow } from '../store/contract/meetings.ts';
import type { Author } from './author.ts';
import { orReadAgain } from './in_doubt.ts';

export interface MeetingChangesParts {
  engine: Pick<Engine, 'meetingChanged'>;
  feed: Pick<Feed, 'publish'>;
  clock: Clock;
}

export class MeetingChanges {
  readonly #parts: MeetingChangesParts;

  constructor(parts: MeetingChangesParts) {
    this.#parts = parts;
  }

  /**
   * Changes the settings that `patch` has. When the promise resolves, the new settings are in force on this node. Each
   * other node reads them when the store notifies it. Null when there is no such meeting.
   *
   * @throws Problem `quota_exceeded`
   */
  async update(author: Author, meeting_id: string, patch: MeetingPatch): Promise<MeetingRow | null> {
    const { engine, feed, clock } = this.#parts;
    const { paused } = patch;
    const details = paused === undefined ? {} : { paused };
    const patching = author.storeFor({ details }).meetings.patch(meeting_id, patch, clock.wall());
    const resumed = paused === false;
    const row = await orReadAgain(patching, () => void engine.meetingChanged(meeting_id, resumed));
    if (row === null) return null;
    await engine.meetingChanged(meeting_id, resumed);
    feed.publish(meetingEvent(row, clock.wall()));
    return row;
  }
}
