/** Makes the operating system start `convoke connect`: a user unit of systemd, or an agent of launchd. */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { CommandFailure, EXIT } from '../../exit.ts';
import { fileName } from './connection.ts';

export interface Unit {
  path: string;
  text: string;
  /** The commands that start the unit, and that show its log. */
  commands: string[];
}

/**
 * The unit for an instance whose connection is saved.
 *
 * @param command the program and its arguments
 * @throws CommandFailure on a system with neither systemd nor launchd
 */
export function unitFor(instance_id: string, command: readonly string[], platform: NodeJS.Platform): Unit {
  if (platform === 'linux') return systemdUnit(instance_id, command);
  if (platform === 'darwin') return launchdAgent(instance_id, command);
  throw new CommandFailure(
    EXIT.usage,
    '--install knows systemd and launchd; let this machine start `convoke connect` in its own way',
  );
}

export async function writeUnit({ path, text }: Unit): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text, { mode: 0o600 });
  await chmod(path, 0o600);
}

function systemdUnit(instance_id: string, command: readonly string[]): Unit {
  const name = `convoke-connect-${fileName(instance_id)}.service`;
  const config_home = process.env['XDG_CONFIG_HOME'];
  const environment = config_home ? `Environment=${inSystemd(`XDG_CONFIG_HOME=${config_home}`)}\n` : '';
  // systemd does not start again after the exit codes 2 (wrong use) and 4 (refused, or removed on purpose): another
  // start would end in the same way, or bring the instance back.
  const text = `[Unit]
Description=Convoke pulls for ${instance_id.replaceAll('%', '%%')}

[Service]
${environment}ExecStart=${command.map((word) => inSystemd(word).replaceAll('$', '$$$$')).join(' ')}
Restart=always
RestartSec=5
RestartPreventExitStatus=2 4
TimeoutStopSec=600

[Install]
WantedBy=default.target
`;
  return {
    path: join(config_home || join(homedir(), '.config'), 'systemd/user', name),
    text,
    commands: [
      `systemctl --user daemon-reload && systemctl --user enable --now ${name}`,
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

function launchdAgent(instance_id: string, command: readonly string[]): Unit {
  const label = `convoke.connect.${fileName(instance_id)}`;
  const path = join(homedir(), 'Library/LaunchAgents', `${label}.plist`);
  const log = join(homedir(), 'Library/Logs', `${label}.log`);
  const config_home = process.env['XDG_CONFIG_HOME'];
  const environment = config_home
    ? `
  <key>EnvironmentVariables</key>
  <dict>
    <key>XDG_CONFIG_HOME</key>
    <string>${inXml(config_home)}</string>
  </dict>`
    : '';
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
  </array>${environment}
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>StandardOutPath</key>
  <string>${inXml(log)}</string>
  <key>StandardErrorPath</key>
  <string>${inXml(log)}</string>
</dict>
</plist>
`;
  return { path, text, commands: [`launchctl bootstrap gui/$(id -u) '${path}'`, `tail -f '${log}'`] };
}

function inXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
