/** Listeners of the live feed, all in one process. They read as fast as data arrives, and count the events. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { serveCommands } from './channel.ts';

/** The start of a line. The text of every event contains exactly one line with this start. */
const EVENT_LINE = Buffer.from('\nevent: ');

export interface FeedCounts {
  /** The sum of the events that the listeners got: an event that went to ten listeners counts as ten. */
  events: number;
  bytes: number;
  /** How many listeners the service disconnected. */
  cut_off: number;
}

const counts: FeedCounts = { events: 0, bytes: 0, cut_off: 0 };

async function listen(port: number): Promise<void> {
  const socket = connect({ port, host: '127.0.0.1' });
  await once(socket, 'connect');
  socket.on('error', () => socket.destroy());
  socket.on('close', () => counts.cut_off++);
  socket.write(`GET /api/v1/events/ HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`);
  const [head] = (await once(socket, 'data')) as [Buffer];
  if (!head.toString('latin1').startsWith('HTTP/1.1 200')) throw new Error(head.toString('latin1'));
  readFrom(socket);
}

/**
 * Counts events. A line may be split between two chunks. So the end of each chunk is kept and put before the next
 * chunk.
 */
function readFrom(socket: Socket): void {
  let rest: Buffer = Buffer.alloc(0);
  socket.on('data', (data: Buffer) => {
    counts.bytes += data.length;
    const chunk = rest.length === 0 ? data : Buffer.concat([rest, data]);
    let end = 0;
    for (let at = chunk.indexOf(EVENT_LINE); at !== -1; at = chunk.indexOf(EVENT_LINE, end)) {
      counts.events++;
      end = at + EVENT_LINE.length;
    }
    rest = chunk.subarray(Math.max(end, chunk.length - EVENT_LINE.length + 1));
  });
}

export type Listeners = typeof commands;

const commands = serveCommands({
  async listen({ port, listeners }: { port: number; listeners: number }): Promise<void> {
    await Promise.all(Array.from({ length: listeners }, () => listen(port)));
  },
  counts: (): FeedCounts => ({ ...counts }),
});
