/** The commands of `convoke`, and their exit codes. Slow modules are loaded only when their command runs. */
import { Command, CommanderError, Help, type Option } from 'commander';
import { ConvokeError } from '@convoke/sdk';
import { ID_CHARS_MAX } from '../../domain/id.ts';
import { nearestName } from '../../domain/nearest.ts';
import { VERSION } from '../../version.ts';
import { failureOf } from './api.ts';
import { commandFirst } from './command_first.ts';
import { auditCommand } from './commands/audit.ts';
import { backupCommand } from './commands/backup.ts';
import { compactCommand } from './commands/compact.ts';
import { configCommand } from './commands/config.ts';
import { connectCommand } from './commands/connect/command.ts';
import { deliveriesCommand } from './commands/deliveries.ts';
import { demoCommand } from './commands/demo_command.ts';
import { doctorCommand } from './commands/doctor_command.ts';
import { CommandFailure, EXIT } from './exit.ts';
import { explainCommand } from './commands/explain.ts';
import { findCommand } from './commands/find.ts';
import { importCommand } from './commands/import.ts';
import { instancesCommand } from './commands/instances.ts';
import { inviteCommand, invitesCommand } from './commands/invites.ts';
import { keysCommand } from './commands/keys.ts';
import { migrateCommand } from './commands/migrate.ts';
import { joinCommand, leaveCommand } from './commands/memberships.ts';
import { mcpCommand } from './commands/mcp.ts';
import { meetingsCommand } from './commands/meetings.ts';
import { nodesCommand } from './commands/nodes.ts';
import { messagesCommand, sendCommand } from './commands/messages.ts';
import { runtimesCommand } from './commands/runtimes.ts';
import { serveCommand } from './commands/serve_command.ts';
import { statusCommand } from './commands/status.ts';
import { note, watchOutput } from './terminal.ts';
import { traceCommand } from './commands/trace.ts';
import { webhookTestCommand } from './commands/webhook_test.ts';
import { typed, typedExample, withTypedCommands } from './command_name.ts';

const EXIT_CODES = `
Exit codes:
  0  it is done
  1  it failed
  2  the command was not understood, or a setting is not valid
  3  the service cannot be reached
  4  the service refused the request`;

const IDS = `
Ids:
  meetings, instances, agents  you choose them, up to ${ID_CHARS_MAX} characters, such as standup-42
  messages, deliveries         Convoke makes them, such as msg_7f3k9q2m00r3vljl5tg00 and dlv_7f3k9q2m00r3vljl5tg01`;

const START_HERE = {
  demo: 'two agents on this machine talk, and you watch each push',
  serve: 'run the service',
  'connect --help': 'let an agent on this machine take part, even behind a firewall',
  'COMMAND --help': 'options and examples of one command',
};

/** Runs the command of this process and sets its exit code. */
export async function main(): Promise<void> {
  watchOutput();
  dropEmptyVariables();
  try {
    const root = program();
    await root.parseAsync(commandFirst(root, process.argv.slice(2)), { from: 'user' });
  } catch (error) {
    process.exitCode = endOf(error);
  }
}

/** An empty variable counts as not set, as for the settings of the service. Commander takes it for the value ''. */
function dropEmptyVariables(): void {
  for (const [name, value] of Object.entries(process.env))
    if (value === '' && name.startsWith('CONVOKE_')) delete process.env[name];
}

/** The commands as a tree; parsing throws CommanderError instead of ending the process. */
export function program(): Command {
  const root = new Command('convoke')
    .description(
      'Pushes every message of a meeting, in order and signed, to the machines whose agents take part in it.',
    )
    .version(VERSION)
    .addHelpText('after', () => `${IDS}\n${EXIT_CODES}\n\nStart here:\n${startHere()}`);
  const groups: Record<string, Command[]> = {
    'The service:': [serveCommand(), demoCommand(), statusCommand(), nodesCommand(), doctorCommand(), configCommand()],
    'The data:': [backupCommand(), compactCommand(), migrateCommand(), importCommand()],
    'Messages:': [
      sendCommand(),
      messagesCommand(),
      findCommand(),
      explainCommand(),
      traceCommand(),
      deliveriesCommand(),
    ],
    'Who may do what:': [keysCommand(), auditCommand()],
    'Who takes part:': [
      connectCommand(),
      mcpCommand(),
      runtimesCommand(),
      instancesCommand(),
      webhookTestCommand(),
      joinCommand(),
      leaveCommand(),
      meetingsCommand(),
      inviteCommand(),
      invitesCommand(),
    ],
  };
  for (const [heading, commands] of Object.entries(groups)) {
    root.commandsGroup(heading);
    for (const command of commands) root.addCommand(command);
  }
  endSoftly(root);
  return root;
}

function startHere(): string {
  const lines = Object.entries(START_HERE).map(([command, what]) => [typed(command), what] as const);
  const width = Math.max(...lines.map(([line]) => line.length)) + 3;
  return lines.map(([line, what]) => `  ${line.padEnd(width)}${what}`).join('\n');
}

/** Makes every command throw an exception for a usage error, where commander would end the process. */
function endSoftly(command: Command): void {
  command
    .hook('preSubcommand', refuseUnknown)
    .exitOverride()
    .showHelpAfterError(`(${typedExample(`${pathOf(command)} `)}--help shows what is possible)`)
    .configureHelp({ optionDescription: describeOption })
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error:/, 'convoke:')) });
  command.commands.forEach(endSoftly);
}

/**
 * Refuses a mistyped command of a group. Commander takes every word that is no command as an argument of the default
 * command, `list`, and says that `list` has too many arguments.
 */
function refuseUnknown(group: Command): void {
  const [word] = group.args;
  const names = group.commands.map((command) => command.name());
  if (word === undefined || word.startsWith('-') || [...names, 'help'].includes(word)) return;
  const nearest = nearestName(word, names);
  group.error(`error: unknown command '${word}'${nearest === null ? '' : `\n(Did you mean ${nearest}?)`}`);
}

/** Commander shows the default of an option, but not whether the option is required. */
function describeOption(option: Option): string {
  const description = withTypedCommands(new Help().optionDescription(option));
  return option.mandatory ? `${description} (required)` : description;
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}

/**
 * Writes the failure to stderr.
 *
 * @returns the exit code
 */
function endOf(error: unknown): number {
  // Commander has written its own message; the code is 0 after --help and --version.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  const failure = error instanceof ConvokeError ? failureOf(error) : error;
  if (failure instanceof CommandFailure) {
    note(`convoke: ${withTypedCommands(failure.message)}`);
    return failure.exit_code;
  }
  // The SDK refuses an id that cannot be part of a path, such as ".", before it sends anything.
  if (failure instanceof TypeError && failure.message.startsWith('an id')) {
    note(`convoke: ${failure.message}`);
    return EXIT.usage;
  }
  note(`convoke: ${withTypedCommands(failure instanceof Error ? failure.message : String(failure))}`);
  return EXIT.failed;
}
