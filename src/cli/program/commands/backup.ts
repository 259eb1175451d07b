/**
 * A copy of all data in one file. The service may run meanwhile. The command reads the whole copy before it gives the
 * copy the name of a backup.
 */
import { Command } from 'commander';
import { randomBytes } from 'node:crypto';
import { access, link, open, readdir, rename, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { BackupProgress, ConvokeClient } from '@convoke/sdk';
import { fileVariableOf, variableOf } from '../../../config/settings.ts';
import type { CopyFacts } from '../../../store/sqlite/file/copy.ts';
import { dataFile, keyFile } from '../data_directory.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import {
  assertThere,
  failureOfFile,
  isGivenDirectory,
  onService,
  type ServiceOrFileOptions,
  whereIsData,
  withServiceOrFile,
} from '../service_or_file.ts';
import { isSystemError } from '../system_error.ts';
import { note, noteProgress, print, printJson } from '../terminal.ts';
import { bytesInWords, counted } from '../format.ts';
import { quoted } from '../shell_words.ts';

/** The end of the name of a copy that is not complete. */
const PART = /\.\d+-[\da-f]{8}\.part$/;

/** The error codes of file systems on which a file has only one name, such as FAT and many network disks. */
const WITHOUT_LINKS = new Set(['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']);

export function backupCommand(): Command {
  const command = new Command('backup')
    .description('copy all data into one file, while the service runs or not; docs/data.md says how to restore it')
    .argument('<file>', 'where the copy goes; it must not exist')
    .action(backUp);
  return withExamples(withServiceOrFile(command), {
    'convoke backup /backup/convoke-monday.db': 'of the service at the usual address, or else of ./data',
    'convoke backup copy.db --url https://convoke.example': 'of a service elsewhere; CONVOKE_API_KEY is an admin key',
    'convoke backup copy.db --data /var/lib/convoke': 'while no service runs',
  });
}

async function backUp(file: string, options: ServiceOrFileOptions, command: Command): Promise<void> {
  refusePostgres(options, command);
  const to = resolve(file);
  await assertAbsent(to);
  await noteParts(dirname(to));
  // Until the copy is complete it has another name, so every file with the name of a backup is a complete backup.
  // Another process uses another name, so two backups do not disturb each other.
  const part = `${to}.${process.pid}-${randomBytes(4).toString('hex')}.part`;
  const where = await whereIsData(options);
  try {
    if ('url' in where) await onService(where.url, options, (client) => fetchCopy(client, part));
    else await copyFile(where.data, part);
    const { inspectCopy } = await import('../../../store/sqlite/file/copy.ts');
    const facts = inspectCopy(part);
    await give(part, to);
    report(to, facts, 'data' in where ? keyFile(where.data) : null, options);
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
}

/**
 * Refuses to back up PostgreSQL, because it has better tools: replicas, and backups that lead back to any point in
 * time. A data file in CONVOKE_DATA is older than the import into PostgreSQL. So a copy of that file would be no
 * backup.
 */
function refusePostgres({ url }: ServiceOrFileOptions, command: Command): void {
  const is_in_file = Boolean(process.env[fileVariableOf('database_url')]);
  const is_postgres = is_in_file || Boolean(process.env[variableOf('database_url')]);
  if (!is_postgres || url !== undefined || isGivenDirectory(command)) return;
  const address = is_in_file ? '$(cat "$CONVOKE_DATABASE_URL_FILE")' : '$CONVOKE_DATABASE_URL';
  throw new CommandFailure(
    EXIT.usage,
    `the data is in PostgreSQL (CONVOKE_DATABASE_URL), which has its own tools: ` +
      `pg_dump --format=custom --file=convoke.dump "${address}"`,
  );
}

async function assertAbsent(file: string): Promise<void> {
  const exists = await access(file).then(
    () => true,
    () => false,
  );
  if (exists) throw existsAlready(file);
  const directory = dirname(file);
  // When the directory is missing, its disk may not be mounted. So the command does not make the directory.
  await access(directory).catch(() => {
    throw new CommandFailure(EXIT.failed, `there is no directory ${directory}: make it, or mount its disk`);
  });
}

function existsAlready(file: string): CommandFailure {
  return new CommandFailure(EXIT.failed, `${file} exists, and a backup overwrites nothing: give another name`);
}

/** Names the copies that are not complete: a process that was killed leaves its copy, which may be large. */
async function noteParts(directory: string): Promise<void> {
  const parts = (await readdir(directory)).filter((name) => PART.test(name));
  for (const part of parts) {
    note(
      `${join(directory, part)} is the file of a backup that still runs, or that was killed; if it was killed, remove the file`,
    );
  }
}

/** Lets the service make a copy, waits for it and writes it to the file. */
async function fetchCopy(client: ConvokeClient, part: string): Promise<void> {
  // Opens the file before the service makes a copy. If that failed later, nobody would read the response, and it would
  // keep this process alive.
  const file = await open(part, 'wx', 0o600);
  try {
    const { backup_id } = await client.beginBackup();
    let answer = await client.fetchBackup(backup_id);
    while ('pages_total' in answer) {
      showProgress(answer);
      answer = await client.fetchBackup(backup_id);
    }
    await file.writeFile(answer);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function copyFile(data: string, part: string): Promise<void> {
  const file = dataFile(data);
  await assertThere(file);
  const { copyDataFile } = await import('../../../store/sqlite/file/copy.ts');
  try {
    await copyDataFile(file, part, showProgress);
  } catch (error) {
    throw failureOfFile(error, file);
  }
}

/**
 * Gives a complete copy its name.
 *
 * @param linkFile tests replace it
 * @throws CommandFailure when another process took the name meanwhile
 */
export async function give(part: string, to: string, linkFile: typeof link = link): Promise<void> {
  try {
    await linkFile(part, to).catch(async (error: unknown) => {
      if (!isSystemError(error) || !WITHOUT_LINKS.has(error.code)) throw error;
      // Takes the name first: `rename` alone would replace a file that another process has made under this name.
      await (await open(to, 'wx', 0o600)).close();
      await rename(part, to);
    });
  } catch (error) {
    throw isSystemError(error) && error.code === 'EEXIST' ? existsAlready(to) : error;
  }
  await rm(part, { force: true });
  const directory = await open(dirname(to), 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function showProgress({ pages_total, pages_left }: BackupProgress): void {
  if (pages_total > 0) noteProgress(`${Math.floor((100 * (pages_total - pages_left)) / pages_total)} % are copied`);
}

function report(file: string, facts: CopyFacts, key_file: string | null, { json }: ServiceOrFileOptions): void {
  if (json) {
    printJson({ file, ...facts });
    return;
  }
  const { audit_head, key_ids } = facts;
  print(`${file} is whole: ${bytesInWords(facts.bytes)}, every page and the audit log checked`);
  print(
    [
      counted(facts.instances, 'instance'),
      counted(facts.meetings, 'meeting'),
      counted(facts.memberships, 'membership'),
      counted(facts.messages, 'message'),
      `${counted(facts.deliveries, 'delivery', 'deliveries')} (${facts.pending_deliveries} pending)`,
      counted(facts.api_keys, 'API key'),
      counted(facts.audit_entries, 'audit entry', 'audit entries'),
    ].join(', '),
  );
  if (audit_head.seq > 0) print(`the head of its audit log; keep it elsewhere: ${audit_head.seq}:${audit_head.hash}`);
  if (key_ids.length > 0) {
    const where =
      key_file === null
        ? `in encryption.key in the service's data directory, or its setting ${variableOf('encryption_key')}`
        : `in ${quoted(key_file)}, or the setting ${variableOf('encryption_key')}`;
    note(
      `Its secrets are under the data key ${key_ids.join(' and ')}. The copy does not have that key: it is ${where}. ` +
        'Keep a copy of the key too, apart from this one: without the key the secrets are lost.',
    );
  }
}
