import { Command } from 'commander';
import { dirname } from 'node:path';
import { dataFile } from '../data_directory.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { assertThere, failureOfFile } from '../service_or_file.ts';
import { settingsOf, withSettings } from '../settings.ts';
import { isSystemError } from '../system_error.ts';
import { print, printJson } from '../terminal.ts';
import { bytesInWords } from '../format.ts';

export function compactCommand(): Command {
  const command = new Command('compact')
    .description('rewrite the data file without its free space, while no service runs')
    .option('--json', 'print JSON, for programs')
    .action(compact);
  withSettings(command, ['data']);
  return withExamples(command, {
    'convoke compact': 'of ./data; once for a file of an older version, which does not get smaller by itself',
    'convoke compact --data /var/lib/convoke': 'as the user who runs the service',
  });
}

async function compact({ json }: { json?: true }, command: Command): Promise<void> {
  const { config } = settingsOf(command);
  if (config.database_url !== null) {
    throw new CommandFailure(EXIT.usage, 'the data is in PostgreSQL, whose autovacuum makes room by itself');
  }
  const file = dataFile(config.data);
  await assertThere(file);
  // Makes SQLite write its temporary file beside the data file, because the check of the free room looks there.
  process.env['SQLITE_TMPDIR'] ??= dirname(file);
  const { compactDataFile } = await import('../../../store/sqlite/file/compact.ts');
  try {
    const { bytes_before, bytes } = compactDataFile(file);
    if (json) printJson({ file, bytes_before, bytes });
    else print(`${file} has ${bytesInWords(bytes)} now, and had ${bytesInWords(bytes_before)}`);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    if (error.code === 'SQLITE_BUSY') {
      throw new CommandFailure(EXIT.failed, `a running service has ${file} open: stop it, and run this again`);
    }
    throw failureOfFile(error, file);
  }
}
