import { explain, joinMeeting, leaveMeeting, listMeetings } from './meetings.ts';
import { readMessages, reply, sendMessage } from './messages.ts';
import type { Tool } from './tool.ts';
import { waitForMessage } from './wait_for_message.ts';

/** All tools, by their names. */
export const TOOLS: ReadonlyMap<string, Tool> = new Map(
  [listMeetings, readMessages, sendMessage, reply, waitForMessage, joinMeeting, leaveMeeting, explain].map((tool) => [
    tool.listed.name,
    tool,
  ]),
);
