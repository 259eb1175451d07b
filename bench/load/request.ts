/** The text of the request that sends a message. Senders make it once, and then change only digits in it. */
import { agentId, meetingId, speakerId } from './fleet.ts';

/** The request with which a service takes a message. `MEETING` and `MESSAGE` stand for the parts that differ. */
export interface Request {
  /** Contains `MEETING`, unless the body contains it. */
  path: string;
  headers?: Record<string, string>;
  /** JSON with `MESSAGE` in place of the message. */
  body: string;
}

/** Stands for the id of a meeting. Other services call a meeting an application, a tenant or an owner. */
export const MEETING = meetingId(0);
/** Stands for a JSON object of about 500 bytes. */
export const MESSAGE = '{message}';

/** About the length of a chat message. */
const TEXT = 'The quick brown fox jumps over the lazy dog, and nobody in the meeting objects. '.repeat(4);
export const SENT_AT_DIGITS = 16;
export const COUNT_DIGITS = 9;
const ZERO = 0x30;

/** The offsets of the digits of a message in the text of its request. */
export interface Places {
  meeting: number;
  count: number;
  sent_at: number;
  agent: number;
  speaker: number;
}

export interface RequestOptions {
  /** The request of another service than Convoke. */
  request?: Request;
  targets?: number;
  speakers?: number;
  together?: number;
}

/** @returns the whole request, with zeros for all digits */
export function requestText({ request, targets, speakers, together }: RequestOptions, port: number): string {
  const message = JSON.stringify({
    id: `msg-${'0'.repeat(COUNT_DIGITS)}`,
    sent_at: '0'.repeat(SENT_AT_DIGITS),
    created_at: '2030-01-01T00:00:00.000Z',
    sender: 'bench',
    text: TEXT,
  });
  const target_agents = targets === undefined ? '' : `,"target_agents":["${agentId(0)}"]`;
  const from_agent = speakers === undefined ? '' : `,"from_agent":"${speakerId(0)}"`;
  const fields = `"message":${MESSAGE}${target_agents}${from_agent}`;
  const item = `{"meeting_id":"${MEETING}",${fields}}`;
  const single: Request = { path: `/api/v1/meetings/${MEETING}/messages/`, body: `{${fields}}` };
  const list: Request = { path: '/api/v1/messages/', body: `{"messages":[${Array(together).fill(item).join()}]}` };
  const { path, headers = {}, body } = request ?? (together === undefined ? single : list);
  const filled = body.replaceAll(MESSAGE, message);
  const more = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return (
    `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n${more.join('')}` +
    `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(filled)}\r\n\r\n${filled}`
  );
}

/**
 * Finds the digits of each message in a request. The id of the meeting comes before the message; in a path it comes
 * before all messages.
 */
export function placesOf(text: string, messages: number): Places[] {
  let from = 0;
  return Array.from({ length: messages }, () => {
    const after = (what: string, digits_at: number): number => text.indexOf(what, from) + digits_at;
    const places = {
      meeting: after(MEETING, 1),
      count: after('"msg-', 5),
      sent_at: after('"sent_at":"', 11),
      agent: after(`"${agentId(0)}"`, 2),
      speaker: after(`"${speakerId(0)}"`, 2),
    };
    from = places.sent_at;
    return places;
  });
}

export function writeDigits(buffer: Buffer, at: number, length: number, value: number): void {
  for (let i = at + length - 1; i >= at; i--) {
    buffer[i] = ZERO + (value % 10);
    value = Math.floor(value / 10);
  }
}
