import { Command, Option } from 'commander';
import type { SettingName } from '../../../config/settings.ts';
import { apiKeyOption } from '../api.ts';
import { withExamples } from '../examples.ts';
import { withSettings } from '../settings.ts';

/** The settings that a check needs. The others are only parsed. */
const USED: SettingName[] = [
  'host',
  'port',
  'data',
  'egress',
  'egress_allow',
  'egress_allow_http',
  'expire_after',
  'trust_clock',
  'trust_proxy',
];

export function doctorCommand(): Command {
  const command = new Command('doctor')
    .description('check the machine, the data and the service; exit code 1 when something is wrong')
    .option('--json', 'print JSON, for programs')
    .addOption(new Option('--url <url>', 'the address of Convoke; by default from host and port').env('CONVOKE_URL'))
    .addOption(apiKeyOption())
    .action(async (options: { url?: string; apiKey?: string; json?: true }, self: Command) => {
      const { doctor } = await import('./doctor.ts');
      await doctor(options, self);
    });
  withSettings(command, USED).addHelpText(
    'after',
    '\nThe other flags of `serve` are taken too, and their values checked.',
  );
  return withExamples(command, {
    'convoke doctor': 'the settings, directory and port that `convoke serve` would use here',
    'convoke doctor --port 9000 --data /srv/convoke --json': 'another service, for a program',
  });
}
