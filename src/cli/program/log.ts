import { once } from 'node:events';
import { pino, type Logger } from 'pino';
import type { Config } from '../../config/config.ts';
import { escaped } from './terminal.ts';

const STDERR = 2;

/** How long a stop waits for the reader of the log. */
const LOG_MS_MAX = 500;

/** How many bytes of lines may wait while nothing can be written. Later lines are dropped. */
const WAITING_BYTES_MAX = 1 << 20;

export interface Log {
  log: Logger;
  /** Resolves when all lines are written, or after LOG_MS_MAX, when nobody reads them. Later lines are dropped. */
  written: () => Promise<void>;
}

/** One line of JSON for each event. @param dest a file, or the number of an open file */
export function jsonLog({ log_level }: Pick<Config, 'log_level'>, dest: number | string = STDERR): Log {
  // Asynchronous: lines that arrive during a write share the next system call.
  const destination = pino.destination({ dest, sync: false, maxLength: WAITING_BYTES_MAX });
  // A full disk stops only the log. Each later line also tries to write the lines that wait.
  destination.on('error', () => {});
  // pino calls this function at a fatal line and at the exit. While nothing can be written, its own version would try
  // without end and block the process.
  destination.flushSync = () => {};
  const log = pino({ level: log_level, timestamp: pino.stdTimeFunctions.isoTime, base: null }, destination);
  return {
    log,
    async written() {
      const closed = once(destination, 'close', { signal: AbortSignal.timeout(LOG_MS_MAX) }).catch(() => {});
      destination.end();
      // Other parts may still log. A line for a closed log would throw, and change the exit code of the process.
      destination.write = () => true;
      await closed;
    },
  };
}

/** Lines for people. @param dest a file, or the number of an open file */
export async function prettyLog(
  { log_level }: Pick<Config, 'log_level'>,
  dest: number | string = STDERR,
): Promise<Log> {
  const { prettyFactory } = await import('pino-pretty');
  const colorize = process.stderr.isTTY && !process.env['NO_COLOR'];
  const pretty = prettyFactory({ colorize, translateTime: 'SYS:HH:MM:ss.l', singleLine: true });
  const lines = pino.destination({ dest, sync: true, maxLength: WAITING_BYTES_MAX });
  // A full disk stops only the log. Each later line also tries to write the lines that wait.
  lines.on('error', () => {});
  // Others chose the ids in a line, and a terminal must not obey them. `escaped` fits, because the fields of a line are
  // JSON.
  const destination = { write: (line: string) => void lines.write(escaped(pretty(line) ?? '')) };
  return { log: pino({ level: log_level, base: null }, destination), written: async () => {} };
}
