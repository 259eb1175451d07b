import { resolve } from 'node:path';
import { pino, type Logger } from 'pino';
import { type Config, DATABASE_FILE } from '../../config.ts';
import { createConvoke } from '../../convoke.ts';
import { isSystemError } from './system_error.ts';
import { CommandFailure, EXIT } from './exit.ts';
import { note, print } from './terminal.ts';

/**
 * Ctrl-C reaches every process of the terminal, and npm and the launcher (main.ts) send it on as well: signals this close
 * together are one.
 */
const SAME_SIGNAL_MS = 300;

const STDERR = 2;

interface Log {
  log: Logger;
  /** Writes what is still in memory; nothing is logged between this and the end of the process. */
  flush: () => void;
}

/** Runs the service until it is told to stop; then ends the process. */
export async function serve(config: Config): Promise<void> {
  const is_pretty = config.log_format === 'pretty' || (config.log_format === 'auto' && process.stderr.isTTY === true);
  const { log, flush } = is_pretty ? await prettyLog(config) : jsonLog(config);
  const end = (exit_code: number): never => {
    flush();
    process.exit(exit_code);
  };
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'a defect of Convoke: the process ends, and nothing accepted is lost');
    end(EXIT.failed);
  });

  // Listened for from the start: one that comes while the data file is being opened stops the service all the same.
  const stop = Promise.withResolvers<void>();
  let stopped_at_ms: number | null = null;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      const now_ms = performance.now();
      if (stopped_at_ms === null) {
        stopped_at_ms = now_ms;
        log.info({ signal }, 'stopping: attempts under way may end');
        stop.resolve();
      } else if (now_ms - stopped_at_ms > SAME_SIGNAL_MS) {
        end(EXIT.failed);
      }
    });
  }

  const convoke = await createConvoke(config, { log }).catch((error: unknown) => {
    flush();
    throw startFailure(error, config);
  });
  announce(convoke.url, config, is_pretty ? note : (line) => log.info(line));
  print(`convoke ready ${convoke.url}`);

  await stop.promise;
  await convoke.close();
  log.info('stopped');
  end(EXIT.ok);
}

function announce(url: string, config: Config, say: (line: string) => void): void {
  say(`Convoke listens on ${url} (its API: ${url}/docs/)`);
  say(`data in ${resolve(config.data, DATABASE_FILE)}`);
  say('open: no keys are needed, only this machine can reach it');
}

function jsonLog(config: Config): Log {
  // Not synchronous: a line costs no system call of its own while the one before is being written.
  const destination = pino.destination({ dest: STDERR, sync: false });
  const log = pino({ level: config.log_level, timestamp: pino.stdTimeFunctions.isoTime, base: null }, destination);
  return { log, flush: () => destination.flushSync() };
}

async function prettyLog(config: Config): Promise<Log> {
  const { default: pretty } = await import('pino-pretty');
  const colorize = process.stderr.isTTY === true && !process.env['NO_COLOR'];
  const destination = pretty({ destination: STDERR, sync: true, colorize, translateTime: 'SYS:HH:MM:ss.l' });
  return { log: pino({ level: config.log_level, base: null }, destination), flush: () => {} };
}

/** What stood against starting, and what to do about it. */
function startFailure(error: unknown, config: Config): Error {
  const file = resolve(config.data, DATABASE_FILE);
  const text = error instanceof Error ? error.message : String(error);
  if (!isSystemError(error)) return new CommandFailure(EXIT.failed, text);
  switch (error.code) {
    case 'EADDRINUSE':
      return new CommandFailure(
        EXIT.failed,
        `port ${config.port} of ${config.host} is in use; stop what listens there, or choose another with --port (0 takes any free one)`,
      );
    case 'EACCES':
    case 'EPERM':
    case 'EROFS': {
      if (error.syscall === 'listen') {
        return new CommandFailure(
          EXIT.failed,
          `this user may not listen on port ${config.port}; choose one from 1024 up`,
        );
      }
      return new CommandFailure(EXIT.failed, `this user may not write ${file}; give another directory with --data`);
    }
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new CommandFailure(EXIT.failed, `${config.host} is no address of this machine; give one with --host`);
    case 'ENOTDIR':
    case 'EEXIST':
      return new CommandFailure(EXIT.failed, `${resolve(config.data)} is not a directory; give one with --data`);
  }
  return new CommandFailure(EXIT.failed, `cannot start with the data in ${file}: ${text}`);
}
