/**
 * The log of the service, bounded in bytes, because a failure may repeat without end. Each text has its own allowance,
 * so that many lines of one kind do not hide the lines of another kind.
 */
import type { Logger } from 'pino';
import type { Clock, Timer } from './clock.ts';

type Level = 'info' | 'warn' | 'error';

/** Writes lines. A text is constant; what differs from line to line is in the fields. */
export type Log = { [L in Level | 'debug']: (fields: object, text: string) => void } & Pick<Logger, 'isLevelEnabled'>;

/**
 * The bytes that the lines of one text may take in a burst, and how fast this allowance refills: for about 60 lines in
 * a burst, and then for 30 lines a minute.
 */
const BYTES_AT_ONCE = 16 << 10;
const BYTES_PER_SECOND = 128;

/** The most texts with an allowance of their own. All other texts share one allowance. */
const TEXTS_MAX = 100;
const OTHERS = 'others';

/** How often a line reports how many lines were left out. */
const LEFT_OUT_MS = 60_000;

/** The bytes of a line besides its fields and its text: level, time, quotes. */
const LINE_BYTES = 64;

interface Room {
  bytes: number;
  at_ms: number;
  left_out: number;
}

/** Lines at level debug are not bounded: an operator who turns them on wants all of them. */
export class BoundedLog implements Log {
  readonly #log: Log;
  readonly #clock: Clock;
  readonly #rooms = new Map<string, Room>();
  #timer: Timer | null = null;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  isLevelEnabled(level: string): boolean {
    return this.#log.isLevelEnabled(level);
  }

  debug(fields: object, text: string): void {
    this.#log.debug(fields, text);
  }

  info(fields: object, text: string): void {
    this.#write('info', fields, text);
  }

  warn(fields: object, text: string): void {
    this.#write('warn', fields, text);
  }

  error(fields: object, text: string): void {
    this.#write('error', fields, text);
  }

  /** Reports how many lines were left out so far. */
  close(): void {
    this.#timer?.cancel();
    this.#reportLeftOut();
  }

  #write(level: Level, fields: object, text: string): void {
    if (!this.#log.isLevelEnabled(level)) return;
    const room = this.#roomFor(text);
    if (room.bytes <= 0) {
      room.left_out++;
      this.#timer ??= this.#clock.after(LEFT_OUT_MS, () => this.#reportLeftOut());
      return;
    }
    room.bytes -= bytesOf(fields, text);
    this.#log[level](fields, text);
  }

  #roomFor(text: string): Room {
    const now_ms = this.#clock.now();
    const name = this.#rooms.has(text) || this.#rooms.size < TEXTS_MAX ? text : OTHERS;
    let room = this.#rooms.get(name);
    if (room === undefined) {
      room = { bytes: BYTES_AT_ONCE, at_ms: now_ms, left_out: 0 };
      this.#rooms.set(name, room);
    }
    const elapsed_ms = Math.max(0, now_ms - room.at_ms);
    room.bytes = Math.min(BYTES_AT_ONCE, room.bytes + (elapsed_ms / 1000) * BYTES_PER_SECOND);
    room.at_ms = now_ms;
    return room;
  }

  #reportLeftOut(): void {
    this.#timer = null;
    for (const [line, room] of this.#rooms) {
      const { left_out } = room;
      if (left_out === 0) continue;
      room.left_out = 0;
      this.#log.warn({ line, left_out }, 'there were more lines like this one than are written');
    }
  }
}

/** Estimates the bytes of a line. An estimate is enough, because one line may exceed the allowance anyway. */
function bytesOf(fields: object, text: string): number {
  let bytes = LINE_BYTES + text.length;
  for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
    const text = value instanceof Error ? `${value.message}${value.stack ?? ''}` : (JSON.stringify(value) ?? '');
    bytes += name.length + Buffer.byteLength(text);
  }
  return bytes;
}
