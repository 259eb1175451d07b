import { Command } from 'commander';
import { resolve } from 'node:path';
import type { Imported } from '../../../store/postgres/import.ts';
import { variableOf } from '../../../config/settings.ts';
import { keyFile, makeDirectory } from '../data_directory.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { assertThere } from '../service_or_file.ts';
import { settingsOf, withSettings } from '../settings.ts';
import { isSystemError } from '../system_error.ts';
import { note, noteProgress, print, printJson } from '../terminal.ts';
import { counted } from '../format.ts';
import { quoted } from '../shell_words.ts';

export function importCommand(): Command {
  const command = new Command('import')
    .description('move everything from a data file of SQLite into an empty PostgreSQL database, pending deliveries too')
    .requiredOption('--from <file>', 'the data file, or a backup of it; no service may have it open')
    .option('--json', 'print JSON, for programs')
    .action(importAll);
  withSettings(command, ['data']);
  return withExamples(command, {
    'CONVOKE_DATABASE_URL=postgres://convoke@db/convoke convoke import --from data/convoke.db':
      'after the service was stopped; the nodes use its data key',
  });
}

async function importAll({ from, json }: { from: string; json?: true }, command: Command): Promise<void> {
  const { config } = settingsOf(command);
  const { data, database_url } = config;
  const file = resolve(from);
  if (database_url === null) {
    throw new CommandFailure(EXIT.usage, `set ${variableOf('database_url')} to the database to import into`);
  }
  await assertThere(file, 'give --from of a data file, such as data/convoke.db');
  await makeDirectory(data);
  const { importFile } = await import('../../../offline.ts');
  const imported = await importFile({ ...config, database_url }, file, ({ table, rows }) =>
    noteProgress(`${table}: ${rows}`),
  ).catch((error: unknown) => {
    if (!isSystemError(error) || error.code !== 'SQLITE_BUSY') throw error;
    throw new CommandFailure(EXIT.failed, `a running service has ${file} open: stop it, and run this again`);
  });
  if (json) printJson({ from: file, ...imported });
  else report(file, imported, config.encryption_key === null ? keyFile(data) : null);
}

function report(file: string, { counts, pending_deliveries, key_id, audit_head }: Imported, key_file: string | null) {
  print(`all of ${file} is in the database: counts and lengths were compared before the commit`);
  print(
    [
      counted(counts.instances, 'instance'),
      counted(counts.meetings, 'meeting'),
      counted(counts.memberships, 'membership'),
      counted(counts.messages, 'message'),
      `${counted(counts.deliveries, 'delivery', 'deliveries')} (${pending_deliveries} pending)`,
      counted(counts.api_keys, 'API key'),
      counted(counts.audit_log, 'audit entry', 'audit entries'),
    ].join(', '),
  );
  print(`the head of its audit log; keep it elsewhere: ${audit_head.seq}:${audit_head.hash}`);
  const where = key_file === null ? variableOf('encryption_key') : quoted(key_file);
  note(`Its secrets are under the data key ${key_id} (${where}), which every node needs.`);
  note(`Never start a service on ${quoted(file)} again: receivers would get pushes from both.`);
}
