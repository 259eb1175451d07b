import { flagOf, isSecret, settingNames, SETTINGS, variableOf } from './settings.ts';

/** The settings as Markdown: docs/settings.md. */
export function settingsTable(): string {
  const rows = settingNames().map((name) => {
    const { default: text, expects, sentence } = SETTINGS[name];
    return `| \`${variableOf(name)}\` | ${isSecret(name) ? 'none' : `\`${flagOf(name)}\``} | ${text === '' ? 'empty' : `\`${text}\``} | ${expects} | ${sentence} |\n`;
  });
  return (
    '# Settings\n\n' +
    'Each setting is an environment variable and a flag of `convoke serve`; the flag wins. A secret has no flag, because\n' +
    'every user of a host can read a command line. `convoke config` prints the values in effect and where each is from,\n' +
    'but no secret. An environment variable that is empty counts as not set; one that starts with\n' +
    '`CONVOKE_` and is not listed here is an error, so that a typing mistake cannot go unnoticed.\n\n' +
    '| variable | flag | default | value | meaning |\n| --- | --- | --- | --- | --- |\n' +
    rows.join('') +
    '\nThe commands that call the API of a running service read two more: `CONVOKE_URL` (`--url`), the address of the service,\n' +
    '`http://127.0.0.1:8080` when absent; and `CONVOKE_API_KEY` (`--api-key`), the key to use ([keys](keys.md)).\n'
  );
}
