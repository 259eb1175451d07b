import { fileVariableOf, flagOf, isSecret, settingNames, SETTINGS, variableOf } from './settings.ts';

/** The settings as Markdown: docs/settings.md. */
export function settingsTable(): string {
  const rows = settingNames().map((name) => {
    const { default: text, expects, sentence } = SETTINGS[name];
    const variables = isSecret(name)
      ? `\`${variableOf(name)}\` or \`${fileVariableOf(name)}\``
      : `\`${variableOf(name)}\``;
    return `| ${variables} | ${isSecret(name) ? 'none' : `\`${flagOf(name)}\``} | ${text === '' ? 'empty' : `\`${text}\``} | ${expects} | ${sentence} |\n`;
  });
  return (
    '# Settings\n\n' +
    'Each setting is an environment variable and a flag of `convoke serve`; the flag wins. A secret has no flag, because\n' +
    'every user of a host can read a command line. `convoke config` prints the values in effect and their sources,\n' +
    'but no secret. An empty environment variable counts as not set. A variable that starts with `CONVOKE_` and is not\n' +
    'in this list is an error, so that you notice a typing mistake.\n\n' +
    'A secret may come from a file, as Docker and Kubernetes mount one: `CONVOKE_ENCRYPTION_KEY_FILE=/run/secrets/key`.\n' +
    'A line break at the end of the file is no part of the secret. Convoke reads the file once, at its start, and does\n' +
    'not start if the file is missing, unreadable or empty, or if the variable without `_FILE` is set too.\n\n' +
    '| variable | flag | default | value | meaning |\n| --- | --- | --- | --- | --- |\n' +
    rows.join('') +
    '\nThe commands that call the API of a running service read two more: `CONVOKE_URL` (`--url`), the address of the service,\n' +
    '`http://127.0.0.1:8080` by default; and `CONVOKE_API_KEY` (`--api-key`), the key to use ([keys](keys.md)).\n'
  );
}
