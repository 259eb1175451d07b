import { Command } from 'commander';
import { wallNow } from '../../../wall_clock.ts';
import { type ApiOptions, clientFor, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { printJson, printTable } from '../terminal.ts';
import { ago } from '../format.ts';

export function nodesCommand(): Command {
  const command = new Command('nodes')
    .description('the nodes that share the store, and their partitions')
    .action(async (options: ApiOptions) => {
      const { data: rows } = await clientFor(options).listNodes();
      if (options.json) {
        printJson(rows);
        return;
      }
      const now_ms = wallNow();
      printTable(rows, [
        { title: 'NODE', text: (row) => row.node_id },
        { title: 'STATE', text: (row) => row.state, style: ({ state }) => (state === 'lost' ? 'red' : null) },
        { title: 'PARTITIONS', text: (row) => String(row.partitions) },
        { title: 'VERSION', text: (row) => row.version },
        { title: 'ADDRESS', text: (row) => row.address, gives_way: true },
        { title: 'STARTED', text: (row) => ago(row.started_at, now_ms) },
        { title: 'LAST SEEN', text: (row) => ago(row.last_seen_at, now_ms) },
      ]);
    });
  return withExamples(withApi(command), {
    'convoke nodes': 'which are up, and how many of the 64 partitions each delivers',
    'convoke nodes --json': 'the same for programs',
  });
}
