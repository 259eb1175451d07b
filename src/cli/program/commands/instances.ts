import type { ConvokeClient, Health, Instance, RegisterInput, SuccessStatuses } from '@convoke/sdk';
import { Command, Option } from 'commander';
import { HEALTH } from '../../../domain/instance.ts';
import { wallNow } from '../../../wall_clock.ts';
import type { RuntimeSettings } from '../../../domain/runtimes/runtimes.ts';
import {
  type ApiOptions,
  clientFor,
  collect,
  type ListOptions,
  listed,
  noteUnseen,
  wholeNumber,
  withApi,
  withList,
  withSecret,
} from '../api.ts';
import { withExamples } from '../examples.ts';
import { note, print, printFields, printJson, printTable } from '../terminal.ts';
import {
  ago,
  counted,
  failureInWords,
  HEALTH_STYLES,
  keyStateInWords,
  listInWords,
  nextTryInWords,
} from '../format.ts';
import { headerOf } from '../header.ts';
import { recoverCommand } from './recover.ts';
import { type RuntimeChoice, runtimeChosen, withRuntime } from '../runtime_options.ts';
import { typed } from '../command_name.ts';
import { lastArgument } from '../shell_words.ts';

export function instancesCommand(): Command {
  const command = new Command('instances')
    .description('the machines that are registered: list, show, register, enable, disable, remove, recover')
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(showCommand())
    .addCommand(registerCommand())
    .addCommand(switchCommand('enable', 'send it pushes again, and end its back-off'))
    .addCommand(switchCommand('disable', 'send it no pushes; pending ones wait'))
    .addCommand(removeCommand())
    .addCommand(rotateSecretCommand())
    .addCommand(recoverCommand());
  return withExamples(command, {
    'convoke instances': 'all of them, with their health',
    'convoke instances --health down': 'those that cannot be reached',
    'convoke instances show laptop-anna': 'one of them, with its last failure',
  });
}

interface ListFilters extends ListOptions {
  agent?: string;
  meeting?: string;
  health?: Health;
  active?: boolean;
  paused?: boolean;
  search?: string;
}

function listCommand(): Command {
  const command = new Command('list')
    .description('list instances')
    .option('--agent <agent_id>', 'only those that host the agent')
    .option('--meeting <meeting_id>', 'only those in the meeting')
    .addOption(new Option('--health <health>', 'only those of this health').choices([...HEALTH]))
    .option('--active', 'only active ones')
    .option('--no-active', 'only inactive ones')
    .option('--paused', 'only paused ones: inactive, or with its webhook switched off')
    .option('--no-paused', 'only those that are not paused')
    .option('--search <text>', 'part of the id or the name')
    .action(async ({ agent, meeting, health, active, paused, search, ...options }: ListFilters) => {
      const filters = { agent_id: agent, meeting_id: meeting, health, is_active: active, paused, q: search };
      const client = clientFor(options);
      const rows = await listed(options, (page) => client.listInstances({ ...filters, ...page }));
      if (options.json) printJson(rows);
      else await printInstances(client, rows);
    });
  return withExamples(withList(command), {
    'convoke instances list --agent anna-planner': 'the machines that host an agent',
    'convoke instances list --all --json | jq -r .[].instance_id': 'every id, for a script',
  });
}

async function printInstances(client: ConvokeClient, rows: readonly Instance[]): Promise<void> {
  if (rows.length === 0) {
    note(`No instance fits. \`${typed('instances register --help')}\` shows how to register one.`);
    await noteUnseen(client);
    return;
  }
  const now_ms = wallNow();
  printTable(rows, [
    { title: 'INSTANCE', text: (row) => row.instance_id },
    { title: 'NAME', text: (row) => row.instance_name, gives_way: true },
    { title: 'AGENTS', text: (row) => listInWords(row.agent_ids), gives_way: true },
    { title: 'HEALTH', text: healthInWords, style: ({ health }) => HEALTH_STYLES[health] },
    { title: 'PENDING', text: (row) => String(row.pending_deliveries) },
    { title: 'LAST SUCCESS', text: (row) => ago(row.last_success_at, now_ms) },
    { title: 'WEBHOOK', text: wayInWords, gives_way: true },
  ]);
}

/** The address of an instance's pushes, or that its machine pulls them. */
function wayInWords({ transport, webhook_url, connected }: Instance): string {
  if (transport !== 'pull') return webhook_url;
  if (connected === null || connected === undefined) return 'pulls; not connected';
  return connected.address === null ? 'pulls; connected' : `pulls; connected from ${connected.address}`;
}

function healthInWords({ health, is_active, webhook_enabled }: Instance): string {
  return is_active && webhook_enabled ? health : `${health}, disabled`;
}

function showCommand(): Command {
  const command = new Command('show')
    .description('show one instance')
    .argument('<instance_id>')
    .action(async (instance_id: string, options: ApiOptions) => {
      const client = clientFor(options);
      const instance = await client.getInstance(instance_id);
      if (options.json) printJson(instance);
      else printInstance(instance, await ownerInWords(client, instance));
    });
  return withExamples(withApi(command), { 'convoke instances show laptop-anna': 'all about one instance' });
}

/** The key that owns the instance, and whether it has ended, if the caller may know that. */
async function ownerInWords(client: ConvokeClient, { owner_key_id }: Instance): Promise<string> {
  if (owner_key_id === null) return 'no key; only admins may change it';
  const now_ms = wallNow();
  // Only an admin may read keys. Other callers see only the id.
  const key = await client.getKey(owner_key_id).catch(() => null);
  const has_ended = key !== null && (key.revoked_at !== null || Date.parse(key.expires_at ?? '') <= now_ms);
  const state = has_ended ? `, ${keyStateInWords(key, now_ms)}: only admins may change the instance` : '';
  return `the key ${owner_key_id}${state}`;
}

function printInstance(instance: Instance, owner: string): void {
  const now_ms = wallNow();
  const { last_failure } = instance;
  printFields({
    instance: instance.instance_id,
    name: instance.instance_name,
    agents: instance.agent_ids.join(', '),
    webhook: wayInWords(instance),
    owner,
    'sent with': instance.webhook_header_names.join(', ') || 'no headers of its own',
    success: instance.success_statuses === '2xx' ? 'every 2xx status' : 'status 200',
    ...(instance.runtime !== undefined && {
      runtime: `${instance.runtime} (${instance.runtime_option_names?.join(', ') ?? ''})`,
    }),
    ...(instance.timeout_s !== undefined && { timeout: `${instance.timeout_s} s for an attempt` }),
    replies: instance.replies === true ? 'its answers are sent in the meeting' : 'no',
    active: yesNo(instance.is_active),
    'webhook enabled': yesNo(instance.webhook_enabled),
    health: healthSinceInWords(instance, now_ms),
    ...(instance.next_try_at !== undefined && { 'next try': nextTryInWords(instance.next_try_at, now_ms) }),
    pending: String(instance.pending_deliveries),
    'last success': timeInWords(instance.last_success_at, now_ms),
    'last failure':
      last_failure === null ? 'never' : `${timeInWords(last_failure.at, now_ms)}: ${failureInWords(last_failure)}`,
    ...(last_failure?.response_excerpt !== undefined && { 'the receiver said': last_failure.response_excerpt }),
    ...(last_failure !== null && instance.health !== 'up' && { 'what to do': last_failure.advice }),
    'last seen': timeInWords(instance.last_seen_at, now_ms),
    registered: timeInWords(instance.created_at, now_ms),
  });
}

function healthSinceInWords({ health, health_since, consecutive_failures }: Instance, now_ms: number): string {
  const failures = consecutive_failures === 0 ? '' : `, ${counted(consecutive_failures, 'failure')} in a row`;
  return health_since === undefined
    ? health + failures
    : `${health} since ${timeInWords(health_since, now_ms)}${failures}`;
}

function deliveries(count: number): string {
  return counted(count, 'delivery', 'deliveries');
}

function yesNo(value: boolean): string {
  return value ? 'yes' : 'no';
}

function timeInWords(time: string | null, now_ms: number): string {
  return time === null ? 'never' : `${time} (${ago(time, now_ms)})`;
}

interface RegisterOptions extends ApiOptions, RuntimeChoice {
  webhook: string;
  name?: string;
  agent?: string[];
  header?: string[];
  secret?: string;
  success?: SuccessStatuses;
  replies?: boolean;
  timeout?: number;
}

function registerCommand(): Command {
  const command = new Command('register')
    .description('register an instance, or overwrite one that exists')
    .argument('<instance_id>')
    .requiredOption('--webhook <url>', 'where pushes are sent')
    .option('--name <name>', 'the name that people see; the id when absent')
    .option('--agent <agent_id>', 'an agent that it hosts; repeat it for more', collect)
    .option('--header <name: value>', 'a header sent with every push; repeat it for more', collect)
    .option('--secret <whsec_…>', 'the secret that signs pushes; Convoke makes one when absent')
    .addOption(new Option('--success <statuses>', 'which response statuses count as a success').choices(['200', '2xx']))
    .option('--replies', 'send its replies to pushes in the meeting')
    .option('--no-replies', 'ignore its replies')
    .option(
      '--timeout <seconds>',
      'how long an attempt may take; 5 when absent, or the time that --runtime needs',
      wholeNumber(1, 600),
    )
    .action(async (instance_id: string, options: RegisterOptions) => {
      const { webhook_secret, dropped_header_names, ...instance } = await withSecret(
        clientFor(options).register(registration(instance_id, options, await runtimeChosen(options))),
        `if it is registered all the same, it may have a secret that nobody saw: register it again, and if no secret is printed then, \`${typed(`instances rotate-secret ${lastArgument(instance_id)}`)}\``,
      );
      if (options.json) {
        printJson({
          ...instance,
          ...(webhook_secret !== undefined && { webhook_secret }),
          ...(dropped_header_names !== undefined && { dropped_header_names }),
        });
        return;
      }
      print(`${instance.instance_id} is registered; pushes go to ${instance.webhook_url}`);
      if (dropped_header_names !== undefined) {
        note(
          `The address is of another server: ${dropped_header_names.join(', ')} is not sent any more. Give it again if that server may have it.`,
        );
      }
      if (webhook_secret !== undefined) {
        print(`its webhook secret, shown only now: ${webhook_secret}`);
      }
      print(`next: ${typed(`webhook-test ${lastArgument(instance_id)}`)}`);
    });
  return withExamples(withApi(withRuntime(command)), {
    'convoke instances register laptop-anna --agent anna-planner --webhook http://127.0.0.1:9000/convoke':
      'a runtime on this machine',
    "convoke instances register box --agent a1 --webhook https://box.example/hooks --header 'authorization: Bearer 3f9c'":
      'a runtime that wants a credential',
    'convoke instances register lena --agent lena --webhook http://127.0.0.1:11434/v1 --runtime openai --model llama3.2':
      'a model behind a server of chat completions, without a program between the two',
  });
}

function registration(
  instance_id: string,
  options: RegisterOptions,
  runtime: RuntimeSettings | undefined,
): RegisterInput {
  return {
    instance_id,
    instance_name: options.name ?? instance_id,
    agent_ids: options.agent ?? [],
    webhook_url: options.webhook,
    webhook_secret: options.secret,
    success_statuses: options.success,
    replies: options.replies,
    timeout_s: options.timeout,
    runtime: runtime?.name,
    runtime_options: runtime?.options,
    webhook_headers: options.header === undefined ? undefined : Object.fromEntries(options.header.map(headerOf)),
  };
}

function switchCommand(name: 'enable' | 'disable', description: string): Command {
  const command = new Command(name)
    .description(description)
    .argument('<instance_id>')
    .action(async (instance_id: string, options: ApiOptions) => {
      const changes = name === 'enable' ? { is_active: true, webhook_enabled: true } : { is_active: false };
      const instance = await clientFor(options).updateInstance(instance_id, changes);
      if (options.json) printJson(instance);
      else print(`${instance_id} is ${name}d; pending: ${deliveries(instance.pending_deliveries)}`);
    });
  return withExamples(withApi(command), { [`convoke instances ${name} laptop-anna`]: description });
}

function removeCommand(): Command {
  const command = new Command('remove')
    .description('remove an instance; its pending deliveries are cancelled')
    .argument('<instance_id>')
    .action(async (instance_id: string, options: ApiOptions) => {
      await clientFor(options).deleteInstance(instance_id);
      if (options.json) printJson({ instance_id, removed: true });
      else print(`${instance_id} is removed`);
    });
  return withExamples(withApi(command), {
    'convoke instances remove laptop-anna': 'it is deleted, and in no meeting any more',
  });
}

interface RotateSecretOptions extends ApiOptions {
  overlap?: number;
}

function rotateSecretCommand(): Command {
  const command = new Command('rotate-secret')
    .description('make a new webhook secret; for a day the old one signs too')
    .argument('<instance_id>')
    .option('--overlap <seconds>', 'how long the old secret still signs', wholeNumber(0, 2_592_000))
    .action(async (instance_id: string, { overlap, ...options }: RotateSecretOptions) => {
      const rotated = await withSecret(
        clientFor(options).rotateSecret(instance_id, { overlap_seconds: overlap }),
        `if the instance has a new secret all the same, nobody saw it: rotate again${overlap === 0 ? '' : ', because each earlier secret signs until its own end'}`,
      );
      if (options.json) {
        printJson(rotated);
        return;
      }
      print(`its new webhook secret, shown only now: ${rotated.webhook_secret}`);
      print(`the old one signs too until ${rotated.previous_secret_expires_at}`);
      const { earlier_secrets_expire_at: ends } = rotated;
      if (ends !== undefined) print(`earlier ones sign too until ${ends.join(', ')}`);
    });
  return withExamples(withApi(command), {
    'convoke instances rotate-secret laptop-anna': 'a new secret, shown once',
    'convoke instances rotate-secret laptop-anna --overlap 0': 'the old secret leaked: it signs no push any more',
  });
}
