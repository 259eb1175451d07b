import { type Command, Option } from 'commander';
import { ConfigError, readConfig, type ReadConfig } from '../../config/read_config.ts';
import { flagOf, isSecret, type SettingName, settingNames, SETTINGS, variableOf } from '../../config/settings.ts';
import { CommandFailure, EXIT } from './exit.ts';

/**
 * Adds a flag for every setting, so that a user can give the command the same flags as `serve`.
 *
 * @param used the settings that the command uses; its help shows only these
 */
export function withSettings(command: Command, used: readonly SettingName[] = settingNames()): Command {
  for (const name of settingNames()) {
    if (isSecret(name)) continue;
    const { default: text, sentence } = SETTINGS[name];
    const what = `${sentence} [${variableOf(name)}, ${text === '' ? 'empty' : text}]`;
    // `--egress-allow-http` without a value means true. A preset of commander would do that too, but the help shows
    // presets.
    const value = text === 'false' ? '[value]' : '<value>';
    command.addOption(new Option(`${flagOf(name)} ${value}`, what).hideHelp(!used.includes(name)));
  }
  return command;
}

/** @throws CommandFailure that lists every fault */
export function settingsOf(command: Command): ReadConfig {
  const flags: Partial<Record<SettingName, string>> = {};
  const given = command.opts<Record<string, string | true | undefined>>();
  for (const name of settingNames()) {
    const value = given[name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase())];
    if (value !== undefined) flags[name] = String(value);
  }
  try {
    return readConfig({ flags, env: process.env });
  } catch (error) {
    if (error instanceof ConfigError) throw new CommandFailure(EXIT.usage, error.faults.join('\nconvoke: '));
    throw error;
  }
}
