import { all, type ApiKey, ConvokeClient, ConvokeError, type Scope } from '@convoke/sdk';
import { Command, InvalidArgumentError, Option } from 'commander';
import { access } from 'node:fs/promises';
import { resolve } from 'node:path';
import { type Config, ConfigError, readConfig, SETTINGS } from '../../config.ts';
import type { KeysOfFile } from '../../convoke.ts';
import { SCOPES } from '../../domain/api_key.ts';
import { apiKeyOption, clientFor, collect, DEFAULT_URL, wholeNumber } from './api.ts';
import { dataFile, makeDirectory } from './data_directory.ts';
import { withExamples } from './examples.ts';
import { CommandFailure, EXIT } from './exit.ts';
import { reencryptCommand } from './reencrypt.ts';
import { isSystemError } from './system_error.ts';
import { note, print, printFields, printJson, printTable } from './terminal.ts';
import { ago, listInWords, quoted } from './words.ts';

export function keysCommand(): Command {
  const command = new Command('keys')
    .description('the API keys: create, list, revoke, rotate; over the API, or on the data file while no service runs')
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(createCommand())
    .addCommand(revokeCommand())
    .addCommand(rotateCommand())
    .addCommand(reencryptCommand());
  return withExamples(command, {
    'convoke keys create --scope admin --name operator': 'the first key; from then on every request needs one',
    'convoke keys': 'all of them, with their last use',
  });
}

interface KeysOptions {
  url?: string;
  apiKey?: string;
  data?: string;
  json?: true;
}

function withKeys(command: Command): Command {
  return command
    .addOption(new Option('--url <url>', 'where Convoke answers').env('CONVOKE_URL'))
    .addOption(apiKeyOption())
    .addOption(
      new Option('--data <directory>', 'the data directory, to work on its file while no service runs').env(
        'CONVOKE_DATA',
      ),
    )
    .option('--json', 'print JSON, for programs');
}

interface CreateOptions extends KeysOptions {
  scope: Scope[];
  name?: string;
  meeting?: string[];
  instance?: string;
  expiresAt?: string;
}

function createCommand(): Command {
  const command = new Command('create')
    .description('make a key; its token is shown only now')
    .addOption(
      new Option('--scope <scope>', `what it may be used for: ${SCOPES.join(', ')}; repeat it for more`)
        .argParser(collectScope)
        .makeOptionMandatory(),
    )
    .option('--name <name>', 'what people know it by')
    .option('--meeting <meeting_id>', 'limit sending, reading and joining to it; repeat it for more', collect)
    .option('--instance <instance_id>', 'limit the scope instance to this one')
    .option('--expires-at <time>', 'refuse it from then on, such as 2027-03-01T09:30:00Z')
    .action(async ({ scope, name, meeting, instance, expiresAt, ...options }: CreateOptions) => {
      const limits = { meeting_ids: meeting, instance_id: instance, expires_at: expiresAt };
      const { token, ...key } = await onKeys(options, true, (client) =>
        client.createKey({ scopes: scope, name, ...limits }),
      );
      if (options.json) {
        printJson({ ...key, token });
        return;
      }
      print(`the key ${key.key_id} is made, for ${key.scopes.join(' and ')}`);
      print(`its token, shown only now: ${token}`);
      note('Give it as CONVOKE_API_KEY to the commands, as api_key to the SDK, or as authorization: Bearer …');
    });
  return withExamples(withKeys(command), {
    'convoke keys create --scope admin --data /var/lib/convoke': 'the first key, before the first start',
    'convoke keys create --scope instance --scope send --instance laptop-anna': 'for one machine that also speaks',
    'convoke keys create --scope read --meeting standup-42 --expires-at 2027-03-01T09:30:00Z': 'to look at one meeting',
  });
}

function collectScope(value: string, before: Scope[] | undefined): Scope[] {
  const scope = SCOPES.find((known) => known === value);
  if (scope === undefined) throw new InvalidArgumentError(`Allowed choices are ${SCOPES.join(', ')}.`);
  return [...(before ?? []), scope];
}

function listCommand(): Command {
  const command = new Command('list')
    .description('list the keys, revoked ones included')
    .action(async (options: KeysOptions) => {
      const keys = await onKeys(options, false, async (client) => {
        const found: ApiKey[] = [];
        for await (const key of all((page) => client.listKeys({ limit: 500, ...page }))) found.push(key);
        return found;
      });
      if (options.json) printJson(keys);
      else printKeys(keys);
    });
  return withExamples(withKeys(command), { 'convoke keys list --json': 'for a program' });
}

function printKeys(keys: readonly ApiKey[]): void {
  if (keys.length === 0) {
    note(
      'There is no key: whoever can reach the service may do everything. `convoke keys create --help` shows how to make one.',
    );
    return;
  }
  const now_ms = Date.now();
  printTable(keys, [
    { title: 'KEY', text: (key) => key.key_id },
    { title: 'NAME', text: (key) => key.name ?? '', gives_way: true },
    { title: 'SCOPES', text: (key) => key.scopes.join(', ') },
    { title: 'LIMITED TO', text: limitInWords, gives_way: true },
    { title: 'LAST USED', text: (key) => ago(key.last_used_at, now_ms) },
    {
      title: 'STATE',
      text: (key) => stateInWords(key, now_ms),
      style: (key) => (key.revoked_at === null ? null : 'dim'),
    },
  ]);
}

function limitInWords({ meeting_ids, instance_id }: ApiKey): string {
  const meetings = meeting_ids === null ? [] : [`meetings ${listInWords(meeting_ids)}`];
  const instance = instance_id === null ? [] : [`instance ${instance_id}`];
  return [...meetings, ...instance].join('; ');
}

function stateInWords({ revoked_at, expires_at }: ApiKey, now_ms: number): string {
  if (revoked_at !== null) return `revoked ${ago(revoked_at, now_ms)}`;
  if (expires_at === null) return 'active';
  return Date.parse(expires_at) <= now_ms ? `expired ${ago(expires_at, now_ms)}` : `expires ${ago(expires_at, now_ms)}`;
}

function revokeCommand(): Command {
  const command = new Command('revoke')
    .description('refuse a key from now on; the instances that it owns stay')
    .argument('<key_id>')
    .action(async (key_id: string, options: KeysOptions) => {
      await onKeys(options, false, (client) => client.revokeKey(key_id));
      if (options.json) printJson({ key_id, revoked: true });
      else print(`the key ${key_id} is revoked`);
    });
  return withExamples(withKeys(command), { 'convoke keys revoke 4f7k2m9q0a1b': 'it is refused at once' });
}

interface RotateOptions extends KeysOptions {
  overlap?: number;
}

function rotateCommand(): Command {
  const command = new Command('rotate')
    .description('make a new token for a key; the former one is taken as well for a day')
    .argument('<key_id>')
    .option('--overlap <seconds>', 'how long the former token is taken as well', wholeNumber(0, 2_592_000))
    .action(async (key_id: string, { overlap, ...options }: RotateOptions) => {
      const key = await onKeys(options, false, (client) => client.rotateKey(key_id, { overlap_seconds: overlap }));
      if (options.json) {
        printJson(key);
        return;
      }
      printFields({
        key: key.key_id,
        'new token, shown only now': key.token,
        'the former one is taken until': key.previous_token_expires_at ?? 'now',
      });
    });
  return withExamples(withKeys(command), {
    'convoke keys rotate 4f7k2m9q0a1b': 'both tokens work for a day, so that nothing stops',
    'convoke keys rotate 4f7k2m9q0a1b --overlap 0': 'the former token leaked: it is refused at once',
  });
}

/**
 * Calls the API of keys where they are: that of the service that `--url` names, or else of the file in the directory that
 * `--data` names, or else of the service at the usual place, or else of the file in the usual directory.
 */
async function onKeys<T>(
  options: KeysOptions,
  may_create: boolean,
  use: (client: ConvokeClient) => Promise<T>,
): Promise<T> {
  const { url, data } = options;
  if (url !== undefined) return onService(url, options, use);
  if (data === undefined && (await isAnswered(DEFAULT_URL))) return onService(DEFAULT_URL, options, use);
  return onFile(resolve(data ?? SETTINGS.data.default), may_create, use);
}

async function onService<T>(url: string, options: KeysOptions, use: (client: ConvokeClient) => Promise<T>): Promise<T> {
  try {
    return await use(clientFor({ ...options, url }));
  } catch (error) {
    if (!(error instanceof ConvokeError) || error.code !== 'api_key_missing') throw error;
    throw new CommandFailure(
      EXIT.refused,
      `the service at ${url} wants an admin key: set CONVOKE_API_KEY to one; if there is none any more, stop the service ` +
        'and run this again with --data and its data directory (api_key_missing)',
    );
  }
}

async function onFile<T>(data: string, may_create: boolean, use: (client: ConvokeClient) => Promise<T>): Promise<T> {
  const file = dataFile(data);
  const exists = await access(file).then(
    () => true,
    () => false,
  );
  if (!exists && !may_create) {
    throw new CommandFailure(
      EXIT.failed,
      `there is no ${file}; give --data of a data directory, or --url of a running service`,
    );
  }
  await makeDirectory(data);
  const keys = await openFile(configOf(data), file);
  try {
    return await use(new ConvokeClient({ base_url: keys.url, api_key: keys.token }));
  } finally {
    await keys.close();
  }
}

/** The settings that the service would have here: without the data key the file does not open. */
function configOf(data: string): Config {
  try {
    return readConfig({ flags: { data }, env: process.env }).config;
  } catch (error) {
    if (error instanceof ConfigError) throw new CommandFailure(EXIT.usage, error.faults.join('\nconvoke: '));
    throw error;
  }
}

async function openFile(config: Config, file: string): Promise<KeysOfFile> {
  const [{ openKeys }, { pino }] = await Promise.all([import('../../convoke.ts'), import('pino')]);
  try {
    return await openKeys(config, { log: pino({ level: 'silent' }) });
  } catch (error) {
    // Which service it is cannot be seen from here, and a guess could make a key for another one.
    if (!isSystemError(error) || error.code !== 'SQLITE_BUSY') throw error;
    throw new CommandFailure(
      EXIT.failed,
      `a running service has ${file} open: give its address with --url, and an admin key with CONVOKE_API_KEY if it ` +
        `wants one; or stop it and run this again with --data ${quoted(config.data)}`,
    );
  }
}

async function isAnswered(url: string): Promise<boolean> {
  const { askService } = await import('./doctor.ts');
  return (await askService(url)) !== null;
}
