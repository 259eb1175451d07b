import { Command } from 'commander';
import { fileVariableOf, flagOf, type SettingName, settingNames, variableOf } from '../../../config/settings.ts';
import type { Source } from '../../../config/read_config.ts';
import { withExamples } from '../examples.ts';
import { settingsOf, withSettings } from '../settings.ts';
import { printJson, printTable } from '../terminal.ts';

export function configCommand(): Command {
  const command = new Command('config')
    .description('show the settings in effect, and the source of each value')
    .option('--json', 'print JSON, for programs')
    .action((options: { json?: true }, self: Command) => {
      const { sources } = settingsOf(self);
      const rows = settingNames().map((name) => ({ name, ...sources[name] }));
      if (options.json) {
        printJson(rows);
        return;
      }
      printTable(rows, [
        { title: 'SETTING', text: ({ name }) => name },
        { title: 'VALUE', text: ({ value }) => (value === '' ? '(empty)' : value) },
        {
          title: 'FROM',
          text: ({ name, from }) => originOf(name, from),
          style: ({ from }) => (from === 'default' ? 'dim' : 'green'),
        },
      ]);
    });
  withSettings(command);
  return withExamples(command, {
    'convoke config': 'the settings of a `convoke serve` here',
    'CONVOKE_LOG_LEVEL=debug convoke config --port 9000': 'with a variable and a flag',
  });
}

function originOf(name: SettingName, from: Source['from']): string {
  return { default: 'default', environment: variableOf(name), file: fileVariableOf(name), flag: flagOf(name) }[from];
}
