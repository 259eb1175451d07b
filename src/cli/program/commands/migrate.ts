import { Command } from 'commander';
import { isoTime } from '../../../domain/time.ts';
import type { SchemaState } from '../../../store/contract/schema_state.ts';
import { dataFile } from '../data_directory.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { assertThere, failureOfFile } from '../service_or_file.ts';
import { settingsOf, withSettings } from '../settings.ts';
import { isSystemError } from '../system_error.ts';
import { print, printJson } from '../terminal.ts';
import { typed } from '../command_name.ts';

interface MigrateOptions {
  check?: true;
  json?: true;
}

export function migrateCommand(): Command {
  const command = new Command('migrate')
    .description('bring the schema of the data up to date; the start of a service does it too')
    .option('--check', 'change nothing: exit 0 when it is up to date, 1 when it is not')
    .option('--json', 'print JSON, for programs')
    .action(migrate);
  withSettings(command, ['data']);
  return withExamples(command, {
    'convoke migrate --check': 'whether the next start has something to do',
    'convoke migrate --data /var/lib/convoke': 'before the start, while no service runs',
    'CONVOKE_DATABASE_URL=postgres://convoke@db/convoke convoke migrate': 'while nodes of the previous version run',
  });
}

async function migrate({ check, json }: MigrateOptions, command: Command): Promise<void> {
  const { config } = settingsOf(command);
  const file = dataFile(config.data);
  if (config.database_url === null) await assertThere(file);
  const { schemaOf, migrateStore } = await import('../../../offline.ts');
  try {
    const state = await schemaOf(config);
    const { present, wanted } = state;
    if (check) {
      if (json) printJson(wireState(state));
      else print(describe(state));
      if (present !== wanted) process.exitCode = EXIT.failed;
      return;
    }
    if (present > wanted) throw new CommandFailure(EXIT.failed, describe(state));
    await migrateStore(config);
    if (json) printJson({ present: wanted, wanted, was: present });
    else if (present === wanted) print(describe(state));
    else print(`the schema was ${present}, and is ${wanted} now`);
  } catch (error) {
    if (!isSystemError(error) || error.code !== 'SQLITE_BUSY') throw failureOfFile(error, file);
    throw new CommandFailure(
      EXIT.failed,
      `a running service has ${file} open, and brought it up to date when it started; stop it before another version starts on it`,
    );
  }
}

function wireState({ present, wanted, may_start, upgrade_ends_at, upgrade_waits_for }: SchemaState) {
  return {
    present,
    wanted,
    may_start,
    upgrade_ends_at: upgrade_ends_at === undefined ? null : isoTime(upgrade_ends_at),
    upgrade_waits_for: upgrade_waits_for.map((node) => ({ ...node, seen_at: isoTime(node.seen_at) })),
  };
}

function describe(state: SchemaState): string {
  const { present, wanted, may_start } = state;
  if (present === wanted)
    return `the schema is ${present}, which this Convoke wants: nothing to do${describeEnd(state)}`;
  if (present > wanted) {
    const newer = `the schema is ${present}, and this Convoke knows up to ${wanted}`;
    return may_start
      ? `${newer}: a newer version made it, and this version may still start${describeEnd(state)}`
      : `${newer}: start the newer version that made it`;
  }
  return `the schema is ${present}, and this Convoke wants ${wanted}: run ${typed('migrate')}, or start the service`;
}

/** When the upgrade ends, and for which nodes its end waits; empty when no upgrade has to end. */
function describeEnd({ upgrade_ends_at, upgrade_waits_for }: SchemaState): string {
  if (upgrade_ends_at === undefined) return '';
  const end = `; nodes end its upgrade after ${isoTime(upgrade_ends_at)}, and then none of the previous version starts`;
  if (upgrade_waits_for.length === 0) return end;
  const nodes = upgrade_waits_for.map(
    ({ node_id, address, seen_at }) => `${node_id} at ${address} (last seen ${isoTime(seen_at)})`,
  );
  return `${end}; the end waits for nodes of the previous version, and for a killed one until an hour after it was last seen: ${nodes.join(', ')}`;
}
