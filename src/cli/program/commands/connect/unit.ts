/** Makes the operating system start `convoke connect`: a user unit of systemd, or an agent of launchd. */
import { chmod, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { makeDirectory } from '../../data_directory.ts';
import { CommandFailure, EXIT } from '../../exit.ts';
import { fileName } from './connection.ts';

export interface Unit {
  path: string;
  text: string;
  /** The commands that start the unit, and that show its log. */
  commands: string[];
}

/** How long a unit that is stopped may end its pushes: the longest `--timeout`. */
const STOP_S = 600;
/** The variables with which the program finds its connection, and trusts the certificate of the service. */
const KEPT_VARIABLES = ['XDG_CONFIG_HOME', 'NODE_EXTRA_CA_CERTS', 'NODE_USE_SYSTEM_CA'];
/** The variables of a proxy. Node uses a proxy only when the first one is set. */
const PROXY_VARIABLES = [
  'NODE_USE_ENV_PROXY',
  'HTTP_PROXY',
  'http_proxy',
  'HTTPS_PROXY',
  'https_proxy',
  'NO_PROXY',
  'no_proxy',
];

/**
 * The unit for an instance whose connection is saved.
 *
 * @param command the program and its arguments
 * @param env the variables of this shell; the unit gets those that the program needs
 * @throws CommandFailure on a system with neither systemd nor launchd
 */
export function unitFor(
  instance_id: string,
  command: readonly string[],
  platform: NodeJS.Platform,
  env: NodeJS.ProcessEnv = process.env,
): Unit {
  if (platform === 'linux') return systemdUnit(instance_id, command, env);
  if (platform === 'darwin') return launchdAgent(instance_id, command, env);
  throw new CommandFailure(
    EXIT.usage,
    '--install knows systemd and launchd; let this machine start `convoke connect` in its own way',
  );
}

export async function writeUnit({ path, text }: Unit): Promise<void> {
  await makeDirectory(dirname(path));
  await writeFile(path, text, { mode: 0o600 });
  await chmod(path, 0o600);
}

/** The name and the value of each variable that the unit gets. */
function variablesOf(env: NodeJS.ProcessEnv): [name: string, value: string][] {
  const names = env['NODE_USE_ENV_PROXY'] ? [...KEPT_VARIABLES, ...PROXY_VARIABLES] : KEPT_VARIABLES;
  const isPath = (name: string): boolean => name === 'XDG_CONFIG_HOME' || name === 'NODE_EXTRA_CA_CERTS';
  // A unit starts in another directory than this shell.
  return names.flatMap((name) => (env[name] ? [[name, isPath(name) ? resolve(env[name]) : env[name]]] : []));
}

function systemdUnit(instance_id: string, command: readonly string[], env: NodeJS.ProcessEnv): Unit {
  const name = `convoke-connect-${fileName(instance_id)}.service`;
  const environment = variablesOf(env).map(([key, value]) => `Environment=${inSystemd(`${key}=${value}`)}\n`);
  // systemd does not start again after the exit codes 2 (wrong use) and 4 (refused, or removed on purpose): another
  // start would end in the same way, or bring the instance back.
  const text = `[Unit]
Description=Convoke pulls for ${instance_id.replaceAll('%', '%%')}

[Service]
${environment.join('')}ExecStart=${command.map((word) => inSystemd(word).replaceAll('$', '$$$$')).join(' ')}
Restart=always
RestartSec=5
RestartPreventExitStatus=2 4
TimeoutStopSec=${STOP_S}

[Install]
WantedBy=default.target
`;
  return {
    path: join(env['XDG_CONFIG_HOME'] || join(homedir(), '.config'), 'systemd/user', name),
    text,
    commands: [
      // A unit that runs already is told of a new connection only by a restart.
      `systemctl --user daemon-reload && systemctl --user enable ${name} && systemctl --user restart ${name}`,
      `journalctl --user --follow --unit ${name}`,
      'loginctl enable-linger   # lets it run while you are not signed in',
    ],
  };
}

/**
 * A word in a line of a unit: see "Quoting" in systemd.syntax(7). In a command, `$` must be escaped too, which the
 * caller does: systemd.service(5).
 */
function inSystemd(word: string): string {
  const escaped = word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%');
  return `"${escaped}"`;
}

function launchdAgent(instance_id: string, command: readonly string[], env: NodeJS.ProcessEnv): Unit {
  const label = `convoke.connect.${fileName(instance_id)}`;
  const target = `gui/$(id -u)/${label}`;
  const path = join(homedir(), 'Library/LaunchAgents', `${label}.plist`);
  const log = join(homedir(), 'Library/Logs', `${label}.log`);
  const variables = variablesOf(env).map(
    ([key, value]) => `    <key>${key}</key>\n    <string>${inXml(value)}</string>\n`,
  );
  const words = command.map((word) => `    <string>${inXml(word)}</string>`).join('\n');
  const text = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>${inXml(label)}</string>
  <key>ProgramArguments</key>
  <array>
${words}
  </array>
  <key>EnvironmentVariables</key>
  <dict>
${variables.join('')}  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ExitTimeOut</key>
  <integer>${STOP_S}</integer>
  <key>StandardOutPath</key>
  <string>${inXml(log)}</string>
  <key>StandardErrorPath</key>
  <string>${inXml(log)}</string>
</dict>
</plist>
`;
  return {
    path,
    text,
    commands: [
      // launchd keeps the earlier plist of a label, and loads no other one until the earlier run has ended its pushes.
      `launchctl bootout ${target} 2>/dev/null; while launchctl print ${target} >/dev/null 2>&1; do sleep 1; done`,
      `launchctl bootstrap gui/$(id -u) '${path}'`,
      `tail -f '${log}'`,
    ],
  };
}

function inXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
