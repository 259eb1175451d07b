import { Command, Option } from 'commander';
import { type ApiOptions, apiKeyOption, clientFor, DEFAULT_URL } from '../api.ts';
import { withExamples } from '../examples.ts';
import { goOnUnread, note } from '../terminal.ts';

export function mcpCommand(): Command {
  const command = new Command('mcp')
    .description('let an MCP client on this machine take part in meetings: it starts this command and speaks with it')
    .addOption(new Option('--url <url>', 'where Convoke listens').env('CONVOKE_URL').default(DEFAULT_URL))
    .addOption(apiKeyOption())
    .action(async (options: ApiOptions) => {
      // The message in hand is still reported as not delivered.
      goOnUnread();
      const client = clientFor(options);
      const { serveOnStdio } = await import('../../../mcp/stdio.ts');
      await serveOnStdio({
        input: process.stdin,
        output: process.stdout,
        client,
        onUnsettled: (error) =>
          note(`convoke: a message could not be settled, and will be pushed again: ${(error as Error).message}`),
      });
    });
  return withExamples(command, {
    'convoke mcp': 'the command that a desktop client starts; docs/mcp.md has its configuration',
    'CONVOKE_URL=https://convoke.example CONVOKE_API_KEY=cvk_… convoke mcp': 'with a service elsewhere',
  });
}
