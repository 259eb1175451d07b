import { all, type AuditEntry, type ConvokeClient, type ListAuditQuery, type Page } from '@convoke/sdk';
import { Command, InvalidArgumentError, Option } from 'commander';
import { AUDIT_ACTIONS, type AuditHead, type ChainFault, ChainVerifier } from '../../../domain/audit.ts';
import { wholeNumber } from '../api.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { onServiceOrFile, type ServiceOrFileOptions, withServiceOrFile } from '../service_or_file.ts';
import { note, print, printJson, printTable } from '../terminal.ts';
import { counted } from '../format.ts';
import { typed } from '../command_name.ts';

const PAGE = 500;

export function auditCommand(): Command {
  const command = new Command('audit')
    .description('the audit log: who changed what, from where and when; through the API, or in the data file')
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(exportCommand())
    .addCommand(verifyCommand());
  return withExamples(command, {
    'convoke audit': 'the latest entries',
    'convoke audit verify': 'whether an entry was changed, removed or inserted',
  });
}

interface ListOptions extends ServiceOrFileOptions, Filter {
  limit: number;
}

interface Filter {
  action?: NonNullable<ListAuditQuery['action']>;
  key?: string;
  instance?: string;
  since?: string;
  until?: string;
}

function withFilter(command: Command): Command {
  return command
    .addOption(new Option('--action <action>', 'only this one').choices(AUDIT_ACTIONS))
    .option('--key <key_id>', 'only changes by this key; or open, local command, service, unknown')
    .option('--instance <instance_id>', 'only changes of this instance')
    .option('--since <time>', 'at or after it, such as 2026-03-01T09:30:00Z')
    .option('--until <time>', 'before it');
}

function queryOf({ action, key, instance, since, until }: Filter): ListAuditQuery {
  return { action, key_id: key, instance_id: instance, since, until };
}

function listCommand(): Command {
  const command = withFilter(new Command('list').description('the latest entries'))
    .option('--limit <n>', 'how many to print', wholeNumber(1, PAGE), 50)
    .action(async ({ limit, ...options }: ListOptions) => {
      const query = { ...queryOf(options), limit };
      const { data, next_cursor } = await onServiceOrFile(options, false, (client) => latest(client, query));
      if (options.json) printJson(data);
      else printEntries(data);
      if (next_cursor !== null) note(`These are the latest ${data.length}; ${typed('audit export')} prints them all.`);
    });
  return withExamples(withServiceOrFile(command), {
    'convoke audit list --instance laptop-anna': 'the changes of one instance',
    'convoke audit list --action authenticate': 'who tried a wrong key',
  });
}

/** Reads on until there are `limit` entries: a page may have fewer, although more follow. */
export async function latest(
  client: Pick<ConvokeClient, 'listAudit'>,
  query: ListAuditQuery & { limit: number },
): Promise<Page<AuditEntry>> {
  const data: AuditEntry[] = [];
  for (let cursor: string | undefined; ;) {
    const page = await client.listAudit({ ...query, limit: query.limit - data.length, cursor });
    data.push(...page.data);
    if (page.next_cursor === null || data.length === query.limit) return { data, next_cursor: page.next_cursor };
    cursor = page.next_cursor;
  }
}

function printEntries(entries: readonly AuditEntry[]): void {
  printTable(entries, [
    { title: 'SEQ', text: ({ seq }) => String(seq) },
    { title: 'AT', text: ({ at }) => at },
    { title: 'WHO', text: ({ principal }) => principal },
    { title: 'FROM', text: ({ address }) => address ?? '' },
    { title: 'ACTION', text: ({ action }) => action },
    { title: 'TO', text: ({ target_id }) => target_id ?? '', gives_way: true },
    {
      title: 'OUTCOME',
      text: ({ outcome, code }) => (code === null ? outcome : `${outcome}: ${code}`),
      style: ({ outcome }) => (outcome === 'done' ? null : 'yellow'),
    },
  ]);
}

function exportCommand(): Command {
  const command = withFilter(
    new Command('export').description('every entry, one JSON object a line, oldest first'),
  ).action((options: ServiceOrFileOptions & Filter) =>
    onServiceOrFile(options, false, async (client) => {
      for await (const entry of everyEntry(client, queryOf(options))) printJson(entry, 0);
    }),
  );
  return withExamples(withServiceOrFile(command), {
    'convoke audit export > audit.ndjson': 'all of it',
    'convoke audit export --since 2026-03-01T00:00:00Z': 'the changes since a time',
  });
}

interface VerifyOptions extends ServiceOrFileOptions {
  head?: AuditHead;
}

function verifyCommand(): Command {
  const command = new Command('verify')
    .description('follow the chain of hashes from the first entry to the last')
    .option(
      '--head <seq:hash>',
      'a head that verify printed earlier: finds out whether later entries were cut off',
      parseHead,
    )
    .action(async ({ head, ...options }: VerifyOptions) => {
      const { fault, verifier } = await onServiceOrFile(options, false, (client) => verified(client, head ?? null));
      const { seq, hash } = verifier.head;
      const { removed } = verifier;
      if (fault !== null) {
        if (options.json) printJson({ whole: false, ...fault });
        throw new CommandFailure(EXIT.failed, `the audit log is not whole: entry ${fault.seq}: ${fault.reason}`);
      }
      if (options.json) {
        printJson({ whole: true, head: { seq, hash }, removed });
        return;
      }
      print(`the audit log is whole: ${counted(seq - (removed?.entries ?? 0), 'entry', 'entries')}`);
      if (removed !== null) {
        print(
          `${counted(removed.entries, 'entry was', 'entries were')} removed before them, the last one of ${removed.until}`,
        );
      }
      print(`its head; keep it elsewhere: ${seq}:${hash}`);
    });
  return withExamples(withServiceOrFile(command), {
    'convoke audit verify --data /var/lib/convoke': 'on the data file, while no service runs',
    'convoke audit verify --head 812:5f0c…': 'whether the log still has all entries up to 812',
  });
}

/** Verifies again after a fault: entries may have been removed while they were read. */
async function verified(
  client: ConvokeClient,
  kept: AuditHead | null,
): Promise<{ fault: ChainFault | null; verifier: ChainVerifier }> {
  for (let last_time = false; ; last_time = true) {
    const verifier = new ChainVerifier(kept);
    const fault = await firstFault(client, verifier);
    if (fault === null || last_time) return { fault, verifier };
  }
}

async function firstFault(client: ConvokeClient, verifier: ChainVerifier): Promise<ChainFault | null> {
  for await (const entry of everyEntry(client)) {
    const fault = verifier.next(entry);
    if (fault !== null) return fault;
  }
  return verifier.end();
}

function everyEntry(client: ConvokeClient, query: ListAuditQuery = {}): AsyncGenerator<AuditEntry, void, undefined> {
  return all((start) => client.listAudit({ ...query, order: 'oldest', limit: PAGE, ...start }));
}

function parseHead(text: string): AuditHead {
  const [, seq, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? [];
  if (seq === undefined || hash === undefined) {
    throw new InvalidArgumentError(`It must be SEQ:HASH, as ${typed('audit verify')} prints it.`);
  }
  return { seq: Number(seq), hash };
}
