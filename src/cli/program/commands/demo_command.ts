import { Command, Option } from 'commander';
import { apiKeyOption } from '../api.ts';
import { withExamples } from '../examples.ts';

export function demoCommand(): Command {
  const command = new Command('demo')
    .description('let two agents on this machine talk in a meeting, and show every push')
    .addOption(
      new Option(
        '--url <url>',
        'a running service; by default the one at http://127.0.0.1:8080, or else a new one for the demo',
      ).env('CONVOKE_URL'),
    )
    .addOption(apiKeyOption())
    .action(async ({ url, apiKey }: { url?: string; apiKey?: string }) => {
      const { demo } = await import('./demo.ts');
      await demo(url, apiKey);
    });
  return withExamples(command, {
    'convoke demo': 'with the service at http://127.0.0.1:8080, or else with a new one that leaves nothing behind',
  });
}
