import { realpathSync } from 'node:fs';
import { type ApiOptions, clientFor, withSecret } from '../../api.ts';
import { typed } from '../../command_name.ts';
import { CommandFailure, EXIT } from '../../exit.ts';
import { lastArgument } from '../../shell_words.ts';
import { headerOf } from '../../header.ts';
import { type RuleOptions, rulesIn } from '../../rule_options.ts';
import { type RuntimeChoice, runtimeChosen } from '../../runtime_options.ts';
import { note, print } from '../../terminal.ts';
import { connect } from './connect.ts';
import { type Connection, readConnection, saveConnection } from './connection.ts';
import { unitFor, writeUnit } from './unit.ts';

/** The options and arguments of `convoke connect`. */
export interface ConnectOptions extends ApiOptions, RuntimeChoice, RuleOptions {
  instance?: string;
  name?: string;
  agent?: string[];
  meeting?: string[];
  to?: string;
  header?: string[];
  secret?: string;
  success?: '200' | '2xx';
  timeout?: number;
  replies?: true;
  install?: true;
}

/**
 * Runs `convoke connect`. Options have priority over the saved connection, and the saved connection over the
 * environment.
 */
export async function connectWith(
  link_or_instance: string | undefined,
  options: ConnectOptions,
  isTyped: (option: string) => boolean,
): Promise<void> {
  const is_link = link_or_instance?.includes('://') === true;
  const make = async (): Promise<Connection> => {
    const saved =
      link_or_instance === undefined
        ? {}
        : is_link
          ? await redeemed(link_or_instance, options, isTyped)
          : await readConnection(link_or_instance);
    const chosen = await runtimeChosen(options);
    return { ...merged(saved, options, isTyped), runtime: options.runtime === undefined ? saved.runtime : chosen };
  };
  const connection = is_link || options.install ? await makeAndSave(make) : await make();
  if (options.install) await install(connection);
  else await connect(connection, options);
}

async function makeAndSave(make: () => Promise<Connection>): Promise<Connection> {
  const { connection, path } = await saveConnection(make);
  note(`saved in ${path}, which only this user can read`);
  return connection;
}

/** Redeems the link of an invite. Reports missing options first, because the link works only once. */
async function redeemed(
  link: string,
  options: ConnectOptions,
  isTyped: (option: string) => boolean,
): Promise<Partial<Connection>> {
  // Either option would take the place of what the link gives, and nobody sees the key of the link again.
  if (isTyped('apiKey') || isTyped('instance'))
    throw new CommandFailure(
      EXIT.usage,
      'a link names its instance and gives its key: leave out --instance and --api-key',
    );
  checkedTo(options.to);
  checkedHeaders(options.header);
  await runtimeChosen(options);
  const [url = '', secret] = link.split('/invite/');
  if (!URL.canParse(link) || secret === undefined) {
    throw new CommandFailure(EXIT.usage, 'the link of an invite looks like https://convoke.example/invite/…');
  }
  const { instance_id, meeting_ids, agent_ids, api_key } = await withSecret(
    clientFor({ url }).redeemInvite(link),
    'run this again; if the service says then that the link was redeemed, nobody saw its key: ask for another link',
  );
  return { url, api_key, instance_id, meeting_ids, agent_ids };
}

function merged(saved: Partial<Connection>, options: ConnectOptions, isTyped: (option: string) => boolean): Connection {
  const agent_ids = options.agent ?? saved.agent_ids ?? [];
  const instance_id = options.instance ?? saved.instance_id ?? agent_ids[0];
  if (instance_id === undefined) {
    throw new CommandFailure(EXIT.usage, 'name the agent with --agent, or give the link of an invite');
  }
  return {
    url: isTyped('url') ? options.url : (saved.url ?? options.url),
    api_key: (isTyped('apiKey') ? options.apiKey : (saved.api_key ?? options.apiKey)) ?? null,
    instance_id,
    instance_name: options.name ?? saved.instance_name ?? instance_id,
    agent_ids,
    meeting_ids: options.meeting ?? saved.meeting_ids ?? [],
    to: checkedTo(options.to ?? saved.to),
    webhook_secret: options.secret ?? saved.webhook_secret,
    headers: options.header === undefined ? (saved.headers ?? {}) : checkedHeaders(options.header),
    success_statuses: options.success ?? saved.success_statuses ?? null,
    ack_timeout_s: options.timeout ?? saved.ack_timeout_s ?? null,
    replies: options.replies ?? saved.replies ?? false,
    rules: { ...saved.rules, ...given(rulesIn(options)) },
  };
}

/** Leaves out the rules that the command line does not name. */
function given(rules: ReturnType<typeof rulesIn>): Connection['rules'] {
  return Object.fromEntries(Object.entries(rules).filter(([, value]) => value !== undefined));
}

function checkedTo(to: string | undefined): string {
  if (to === undefined) {
    throw new CommandFailure(
      EXIT.usage,
      'say with --to where the runtime listens, such as http://127.0.0.1:9000/convoke',
    );
  }
  if (!URL.canParse(to) || !/^https?:$/.test(new URL(to).protocol)) {
    throw new CommandFailure(EXIT.usage, '--to must be an http or https URL, such as http://127.0.0.1:9000/convoke');
  }
  return to;
}

function checkedHeaders(headers: readonly string[] = []): Record<string, string> {
  return Object.fromEntries(headers.map(headerOf).map(([name, value]) => [name.toLowerCase(), value]));
}

async function install({ instance_id }: Connection): Promise<void> {
  const program = [process.execPath, realpathSync(process.argv[1] ?? '')];
  const unit = unitFor(instance_id, [...program, 'connect', instance_id], process.platform);
  await writeUnit(unit);
  print(`${unit.path} is written. Start it, and watch it:`);
  for (const line of unit.commands) print(`  ${line}`);
  print(`Without it: ${typed(`connect ${lastArgument(instance_id)}`)}`);
}
