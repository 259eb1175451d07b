import { Command } from 'commander';
import { withExamples } from '../examples.ts';
import { settingsOf, withSettings } from '../settings.ts';

export function serveCommand(): Command {
  const command = new Command('serve')
    .description('run the service until SIGTERM or Ctrl-C')
    .action(async (_options: unknown, self: Command) => {
      const { config } = settingsOf(self);
      const { serve } = await import('./serve.ts');
      await serve(config);
    });
  withSettings(command);
  return withExamples(command, {
    'convoke serve': 'on http://127.0.0.1:8080, data in ./data',
    'convoke serve --port 0 --data /tmp/try': 'on any free port; the ready line on stdout has it',
    'CONVOKE_LOG_FORMAT=json convoke serve': 'every setting is a variable too; `convoke config` shows them',
  });
}
