import type { Recovered } from '@convoke/sdk';
import { Command } from 'commander';
import { type ApiOptions, clientFor, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { counted } from '../format.ts';
import { note, noteProgress, print, printJson } from '../terminal.ts';

interface RecoverOptions extends ApiOptions {
  since: string;
  until?: string;
  dryRun?: boolean;
}

export function recoverCommand(): Command {
  const command = new Command('recover')
    .description('queue its failed deliveries again; after Ctrl-C, those already queued are still sent')
    .argument('<instance_id>')
    .requiredOption('--since <time>', 'those that failed at or after it, such as 2026-03-01T09:30:00Z')
    .option('--until <time>', 'those that failed at or before it')
    .option('--dry-run', 'only count them')
    .action(async (instance_id: string, { since, until, dryRun = false, ...options }: RecoverOptions) => {
      const client = clientFor(options);
      const found = await client.recover(instance_id, { since, until, dry_run: true });
      const result = dryRun ? found : { ...found, dry_run: false, at_least: false, recovered: 0 };
      if (!dryRun) {
        // Ends the period at the time of the count, so that deliveries that fail again meanwhile are left out.
        for await (const queued of client.recovering(instance_id, { since, until: found.until ?? until })) {
          result.recovered = queued;
          if (queued < found.recovered) noteProgress(`queued again: ${queued} of ${amount(found)}`);
        }
      }
      if (options.json) printJson(result);
      else printRecovered(result);
    });
  return withExamples(withApi(command), {
    'convoke instances recover laptop-anna --since 2026-03-01T09:30:00Z --dry-run': 'how many failed since then',
    'convoke instances recover laptop-anna --since 2026-03-01T09:30:00Z': 'after the machine was repaired',
  });
}

function printRecovered(result: Recovered): void {
  print(`${result.dry_run ? 'would be queued again' : 'queued again'}: ${amount(result)}`);
  const { missed } = result;
  if (missed === undefined || missed.messages === 0) return;
  const messages = `${missed.at_least ? 'at least ' : ''}${counted(missed.messages, 'message')}`;
  note(`missed while it was switched off: ${messages}, without a delivery. They are in the history of the meetings.`);
}

function amount({ recovered, at_least = false }: Recovered): string {
  return `${at_least ? 'at least ' : ''}${counted(recovered, 'delivery', 'deliveries')}`;
}
