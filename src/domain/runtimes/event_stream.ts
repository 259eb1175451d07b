import { jsonOf } from './words.ts';

/**
 * The most bytes of a stream that are read. Dify writes some 300 bytes for each word, and LangGraph writes the results
 * of tools too.
 */
export const STREAM_BYTES_MAX = 1 << 20;

/** An event of a response of the type text/event-stream. */
export interface StreamEvent {
  /** Empty when the event has no name. */
  event: string;
  /** The parsed JSON of the data; undefined when the data is not JSON. */
  data: unknown;
}

/** The events of a whole response, in their order. Events without data are left out. */
export function eventsOf(body: string): StreamEvent[] {
  return body
    .split(/\r?\n\r?\n/)
    .map((block) => ({ event: linesOf(block, 'event').join(''), data: linesOf(block, 'data').join('\n') }))
    .filter(({ data }) => data !== '')
    .map(({ event, data }) => ({ event, data: jsonOf(data) }));
}

function linesOf(block: string, field: string): string[] {
  return block
    .split(/\r?\n/)
    .filter((line) => line.startsWith(`${field}:`))
    .map((line) => line.slice(field.length + 1).replace(/^ /, ''));
}
