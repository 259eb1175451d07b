/** Commands that work over the API of a service, or on a data file while no service has it open. */
import { ConvokeClient, ConvokeError } from '@convoke/sdk';
import { type Command, Option } from 'commander';
import { accessSync, constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Config } from '../../config/config.ts';
import { ConfigError, readConfig } from '../../config/read_config.ts';
import { SETTINGS } from '../../config/settings.ts';
import type { KeysOfFile } from '../../offline.ts';
import { apiKeyOption, clientFor, DEFAULT_URL } from './api.ts';
import { dataFile, isDiskFull, makeDirectory } from './data_directory.ts';
import { CommandFailure, EXIT } from './exit.ts';
import { goPastProxy } from './past_proxy.ts';
import { isSystemError } from './system_error.ts';
import { quoted } from './shell_words.ts';
import { note } from './terminal.ts';

/** The options of these commands. */
export interface ServiceOrFileOptions {
  url?: string;
  apiKey?: string;
  data?: string;
  json?: true;
}

/** Adds `--url`, `--api-key`, `--data` and `--json`. */
export function withServiceOrFile(command: Command): Command {
  return command
    .hook('preAction', preferGivenDirectory)
    .addOption(new Option('--url <url>', 'where Convoke listens').env('CONVOKE_URL'))
    .addOption(apiKeyOption())
    .addOption(
      new Option('--data <directory>', 'the data directory, to work on its file while no service runs').env(
        'CONVOKE_DATA',
      ),
    )
    .option('--json', 'print JSON, for programs');
}

/**
 * Lets `--data` win over CONVOKE_URL. Otherwise a command for the file would go to a service that the user did not mean,
 * and nobody could work on the file of a stopped service while CONVOKE_URL is set.
 */
function preferGivenDirectory(command: Command): void {
  if (isGivenDirectory(command) && command.getOptionValueSource('url') === 'env')
    command.setOptionValue('url', undefined);
}

/** Whether the command line names the directory. CONVOKE_DATA does not count. */
export function isGivenDirectory(command: Command): boolean {
  return command.getOptionValueSource('data') === 'cli';
}

/**
 * Calls the API on the data. Uses the first of these that is given or found:
 *
 * 1. the service of `--url`,
 * 2. the file in the directory of `--data`,
 * 3. the service at the usual address,
 * 4. the file in the usual directory.
 *
 * An option wins over the variables. When CONVOKE_DATABASE_URL names a database, the database replaces the file. Says on
 * stderr what it has found, unless it was given.
 *
 * @param may_create whether a file in a given directory is made when there is none
 */
export async function onServiceOrFile<T>(
  options: ServiceOrFileOptions,
  may_create: boolean,
  use: (client: ConvokeClient) => Promise<T>,
): Promise<T> {
  const where = await whereIsData(options);
  const is_given = options.url !== undefined || options.data !== undefined;
  if ('url' in where) {
    if (!is_given) note(`at the service ${where.url}`);
    return onService(where.url, options, use);
  }
  return onFile(where.data, { may_create: may_create && is_given, is_given }, use);
}

/** The service to ask, or the directory to work in: see `onServiceOrFile`. */
export async function whereIsData({ url, data }: ServiceOrFileOptions): Promise<{ url: string } | { data: string }> {
  if (url !== undefined) return { url };
  if (data === undefined && (await isAnswered(DEFAULT_URL))) return { url: DEFAULT_URL };
  return { data: resolve(data ?? SETTINGS.data.default) };
}

/** Calls the API of a service. If the service asks for a key, the error says how to work without one. */
export async function onService<T>(
  url: string,
  options: ServiceOrFileOptions,
  use: (client: ConvokeClient) => Promise<T>,
): Promise<T> {
  try {
    return await use(clientFor({ ...options, url }));
  } catch (error) {
    if (!(error instanceof ConvokeError) || error.code !== 'api_key_missing') throw error;
    throw new CommandFailure(
      EXIT.refused,
      `the service at ${url} wants an admin key: set CONVOKE_API_KEY to one; if you have none, stop the service ` +
        'and run this again with --data and its data directory (api_key_missing)',
    );
  }
}

async function onFile<T>(
  data: string,
  { may_create, is_given }: { may_create: boolean; is_given: boolean },
  use: (client: ConvokeClient) => Promise<T>,
): Promise<T> {
  const file = dataFile(data);
  const config = configOf(data);
  if (!may_create && config.database_url === null) await assertThere(file);
  if (!is_given) note(config.database_url === null ? `in the file ${file}` : 'in the database of CONVOKE_DATABASE_URL');
  await makeDirectory(data);
  const keys = await openFile(config, file);
  goPastProxy(keys.url);
  try {
    return await use(new ConvokeClient({ base_url: keys.url, api_key: keys.token }));
  } finally {
    await keys.close();
  }
}

/**
 * @param instead which option to use instead
 * @throws CommandFailure when the file does not exist, or this user may not look for it
 */
export async function assertThere(
  file: string,
  instead = 'give --data of a data directory, or --url of a running service',
): Promise<void> {
  try {
    await access(file);
  } catch (error) {
    const code = isSystemError(error) ? error.code : '';
    if (code === 'ENOENT' || code === 'ENOTDIR')
      throw new CommandFailure(EXIT.failed, `there is no ${file}; ${instead}`);
    throw notOpened(file, code);
  }
}

/** The failure for an error of the data file; any other error as it is. */
export function failureOfFile(error: unknown, file: string): unknown {
  if (!isSystemError(error)) return error;
  if (error.code === 'SQLITE_BUSY') return inUse(file);
  if (isDiskFull(error.code, dirname(file)))
    return new CommandFailure(EXIT.failed, `the disk of ${dirname(file)} is full; make room, and run this again`);
  const is_refused =
    error.code === 'SQLITE_CANTOPEN' ||
    error.code === 'SQLITE_READONLY' ||
    // SQLite opens a file that it may only read, and then cannot lock it.
    (error.code === 'SQLITE_IOERR' && !isWritable(file));
  return is_refused ? notOpened(file, error.code) : error;
}

function isWritable(file: string): boolean {
  try {
    accessSync(file, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

function notOpened(file: string, code: string): CommandFailure {
  return new CommandFailure(EXIT.failed, `${file} cannot be opened (${code}): run this as the user who owns the data`);
}

/** The settings that the service would have here: one of them may be the data key, which this command needs. */
function configOf(data: string): Config {
  try {
    return readConfig({ flags: { data }, env: process.env }).config;
  } catch (error) {
    if (error instanceof ConfigError) throw new CommandFailure(EXIT.usage, error.faults.join('\nconvoke: '));
    throw error;
  }
}

async function openFile(config: Config, file: string): Promise<KeysOfFile> {
  const [{ openKeys }, { assertNoFormerLog }, { pino }] = await Promise.all([
    import('../../offline.ts'),
    import('../../store/sqlite/file/former_log.ts'),
    import('pino'),
  ]);
  try {
    if (config.database_url === null) assertNoFormerLog(file);
    return await openKeys(config, { log: pino({ level: 'silent' }) });
  } catch (error) {
    if (isSystemError(error) && (error.code === 'SQLITE_NOTADB' || error.code === 'SQLITE_CORRUPT')) {
      const what = `${file} is not a data file of Convoke, or is damaged`;
      throw new CommandFailure(EXIT.failed, `${what}; restore it, or give another directory with --data`);
    }
    throw failureOfFile(error, file);
  }
}

/**
 * The failure for a file that a service has open. The text guesses no address of that service: after a wrong guess, the
 * user would make a key for another service.
 */
function inUse(file: string): CommandFailure {
  return new CommandFailure(
    EXIT.failed,
    `a running service has ${file} open: give its address with --url, and an admin key with CONVOKE_API_KEY if it ` +
      `wants one; or stop it and run this again with --data ${quoted(dirname(file))}`,
  );
}

async function isAnswered(url: string): Promise<boolean> {
  const { askService } = await import('./commands/doctor.ts');
  return (await askService(url)) !== null;
}
