import { refusedPort } from '@convoke/sdk';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../../../config/config.ts';
import { readTraces } from '../../../config/traces.ts';
import { disablePretenuring } from '../../../delivery/v8_flags.ts';
import type { Convoke } from '../../../convoke.ts';
import type { Surroundings } from '../../../node/start.ts';
import { startStoreThread } from '../../../store/open.ts';
import { assertNoFormerLog } from '../../../store/sqlite/file/former_log.ts';
import { releaseStartMemory } from '../../../store/thread/start_memory.ts';
import { describeRefusedPort } from '../api.ts';
import { dataFile, isDiskFull, keyFile, makeDirectory } from '../data_directory.ts';
import { isSystemError } from '../system_error.ts';
import { CommandFailure, EXIT, SAME_SIGNAL_MS } from '../exit.ts';
import { goOnUnread, note, print } from '../terminal.ts';
import { quoted } from '../shell_words.ts';
import { jsonLog, prettyLog } from '../log.ts';
import { typed } from '../command_name.ts';

/**
 * How long a stop may take: longer than an attempt with the default timeout of 5 s, and shorter than the 10 s after
 * which service managers kill a process.
 */
const STOP_MS_MAX = 6_500;
/**
 * How long a service that stops still takes requests on open connections: long enough for a client that is about to
 * send one. A node of a cluster may take longer, because the other nodes take new requests. Without a cluster nobody
 * takes requests until the next start.
 */
const DRAIN_MS = 300;
const DRAIN_IN_CLUSTER_MS = 1_000;

/** How long the end of the process waits for the thread of the store. */
const THREAD_MS_MAX = 300;

/** Runs the service until a signal stops it; then ends the process. */
export async function serve(config: Config): Promise<void> {
  disablePretenuring();
  goOnUnread();
  const is_pretty = config.log_format === 'pretty' || (config.log_format === 'auto' && process.stderr.isTTY);
  const { log, written } = is_pretty ? await prettyLog(config) : jsonLog(config);
  // Half of a start is spent on loading code. So the thread of the store loads its code on another core, while this
  // thread loads the rest.
  const store_thread = startStoreThread(config);
  let stopped_by: NodeJS.Signals | null = null;
  let is_ending = false;
  const end = async (exit_code: number): Promise<never> => {
    is_ending = true;
    await written();
    const thread_ended = store_thread.worker.terminate().then(() => true);
    if (!(await Promise.race([thread_ended, sleep(THREAD_MS_MAX, false)]))) dieOf(stopped_by ?? 'SIGKILL');
    process.exit(exit_code);
  };
  const onStoreLost = (error: Error): void => {
    // Ends the process as every other defect does. Its service manager starts it again.
    if (!is_ending) throw error;
  };
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'a defect of Convoke: the process ends, and nothing accepted is lost');
    void end(EXIT.failed);
  });

  // Listens for signals from here on, so that a signal during the opening of the data file also stops the service.
  const stop = Promise.withResolvers<void>();
  let stopped_at_ms: number | null = null;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      const now_ms = performance.now();
      if (stopped_at_ms === null) {
        stopped_at_ms = now_ms;
        stopped_by = signal;
        log.info({ signal }, 'stopping: attempts in flight may end');
        stop.resolve();
      } else if (now_ms - stopped_at_ms > SAME_SIGNAL_MS) {
        dieOf(signal);
      }
    });
  }

  // One deadline for the whole stop, also for a stop during the start: a start may wait for a database that never
  // responds.
  const over = stop.promise.then(() => sleep(STOP_MS_MAX, null));
  const starting = start(config, { log, store_thread, onStoreLost }).catch(async (error: unknown) => {
    await written();
    throw startFailure(error, config);
  });
  const convoke = await Promise.race([starting, over]);
  if (convoke === null) {
    log.warn('stopped before the start was over: nothing was accepted');
    return end(EXIT.ok);
  }
  announce(convoke, config, is_pretty ? note : (line) => log.info(line));
  const refused = refusedPort(convoke.url);
  // The service starts all the same, because curl and a proxy in front of the service reach the port.
  if (refused !== null) log.warn(`${describeRefusedPort(refused)}; choose another with --port`);
  print(`convoke ready ${convoke.url}`);
  releaseStartMemory();

  await stop.promise;
  const drain_ms = config.database_url === null ? DRAIN_MS : DRAIN_IN_CLUSTER_MS;
  const closing = convoke.close(drain_ms).then(
    () => log.info('stopped'),
    (error: unknown) => log.error({ err: error }, 'the stop was not complete: the next start does the rest'),
  );
  const stopped = await Promise.race([closing, over]);
  if (stopped === null) log.warn('not every attempt ended in time: the others are tried again after the next start');
  await end(EXIT.ok);
}

/**
 * Ends the process at once, as the signal does by itself. `process.exit` alone waits for the thread of the store, and a
 * statement there may take minutes while an old file is brought up to date.
 */
function dieOf(signal: NodeJS.Signals): never {
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // Where the process has the id 1, as in a container, the system ignores the signal.
  process.exit(EXIT.failed);
}

async function start(config: Config, parts: Pick<Surroundings, 'log' | 'store_thread' | 'onStoreLost'>) {
  const { log } = parts;
  await makeDirectory(config.data);
  if (config.database_url === null) assertNoFormerLog(dataFile(config.data));
  const { createConvoke } = await import('../../../convoke.ts');
  const { settings: traces, warnings } = readTraces(process.env);
  for (const warning of warnings) log.warn(warning);
  if (traces !== null) log.info('traces are sent to the collector that the OTEL_ variables name');
  return createConvoke(config, { ...parts, traces });
}

function announce(convoke: Convoke, config: Config, report: (line: string) => void): void {
  const { url, is_open } = convoke;
  report(`Convoke listens on ${url} (open it in a browser; its API: ${url}/docs/)`);
  report(config.database_url === null ? `data in ${dataFile(config.data)}` : 'data in PostgreSQL');
  if (config.encryption_key === null) report(`the key that encrypts its secrets is in ${keyFile(config.data)}`);
  // Prints the link only on a terminal and never into a log, because anybody can sign in with it.
  if (!is_open && process.stderr.isTTY)
    note(`sign in on ${reachable(convoke.signInLink())} (once, within five minutes)`);
  report(is_open ? 'open: no key is needed, and only this machine can reach it' : 'every request needs an API key');
}

/** A link that works on this machine. An address such as 0.0.0.0 works as a destination on some systems only. */
function reachable(url: string): string {
  return url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
}

/** Why the service cannot start, and what to do about it. */
function startFailure(error: unknown, config: Config): CommandFailure {
  return new CommandFailure(EXIT.failed, describeStartFailure(error, config));
}

function describeStartFailure(error: unknown, { host, port, data }: Config): string {
  // Only the first line of the text: a stack does not help the operator.
  const text = String(error instanceof Error ? error.message : error).split('\n')[0]!;
  if (!isSystemError(error)) return `cannot start: ${text}`;
  if (isDiskFull(error.code, data)) return `the disk of ${resolve(data)} is full; make room, and start again`;
  switch (error.code) {
    case 'EADDRINUSE':
      return `port ${port} of ${host} is in use; stop the other program, or choose another port with --port (0 takes any free one)`;
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return `${host} is not an address of this machine; give one with --host`;
    case 'EACCES':
    case 'EPERM':
    case 'EROFS':
      if (error.syscall === 'listen') return `this user may not listen on port ${port}; choose one from 1024 up`;
      return `this user may not write in ${resolve(data)}; give another directory with --data`;
    case 'SQLITE_READONLY':
    case 'SQLITE_CANTOPEN':
      return `this user may not write ${dataFile(data)}; change its owner, or give another directory with --data`;
    case 'ENOTDIR':
    case 'EEXIST':
    case 'ENOENT':
      return `${resolve(data)} is not a directory, and cannot be made; give another with --data`;
    case 'SQLITE_CORRUPT':
    case 'SQLITE_NOTADB':
      return `${dataFile(data)} is not a data file of Convoke, or is damaged; restore it, or give another directory with --data`;
    case 'NO_KEY':
      return (
        `${host} can be reached from other machines, and there is no key yet to keep others out; make one first: ` +
        typed(`keys create --scope admin --data ${quoted(resolve(data))}`)
      );
    case 'SQLITE_BUSY':
    case 'SCHEMA_NEWER':
    case 'LOG_OF_FORMER_FILE':
    case 'ENCRYPTION_KEY_MISSING':
    case 'ENCRYPTION_KEY_WRONG':
    case 'ENCRYPTION_KEY_NOT_SHARED':
    case 'ENCRYPTION_KEY_MALFORMED':
    case 'ENCRYPTION_KEY_UNREADABLE':
    case 'ENCRYPTION_KEY_UNPROTECTED':
    case 'PLAIN_TEXT_LEFT':
      return text;
  }
  if (error.code.startsWith('POSTGRES_')) return text;
  return `cannot start with the data in ${resolve(data)}: ${text}`;
}
