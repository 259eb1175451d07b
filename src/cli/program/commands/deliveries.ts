import {
  type ConvokeClient,
  curlOf,
  type Delivery,
  type DeliveryPush,
  type DeliveryState,
  type DeliveryWithAttempts,
  type Outcome,
} from '@convoke/sdk';
import { Command, Option } from 'commander';
import { DELIVERY_STATES } from '../../../domain/delivery.ts';
import { OUTCOMES } from '../../../domain/outcome.ts';
import { wallNow } from '../../../wall_clock.ts';
import {
  type ApiOptions,
  clientFor,
  type ListOptions,
  listed,
  noteUnseen,
  wholeNumber,
  withApi,
  withList,
} from '../api.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { typed } from '../command_name.ts';
import { escaped, note, plain, print, printFields, printJson, printTable } from '../terminal.ts';
import { adviceInWords, ago, attemptInWords, causeInWords, counted, STATE_STYLES, stateInWords } from '../format.ts';

export function deliveriesCommand(): Command {
  const command = new Command('deliveries')
    .description('the deliveries: list, show, retry, drop')
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(showCommand())
    .addCommand(retryCommand())
    .addCommand(dropCommand());
  return withExamples(command, {
    'convoke deliveries --state failed': 'deliveries that did not arrive',
    'convoke deliveries --instance laptop-anna --state pending':
      'deliveries that an instance still waits for, and why they wait',
    'convoke deliveries show dlv_7f3k9q2m00r3vljl5tg01': 'every attempt of one delivery, in words',
  });
}

interface ListFilters extends ListOptions {
  instance?: string;
  meeting?: string;
  message?: string;
  state?: DeliveryState;
  since?: string;
  until?: string;
  status?: number;
  outcome?: Outcome;
  agent?: string;
  text?: string;
}

function listCommand(): Command {
  const command = new Command('list')
    .description('list deliveries, newest first')
    .option('--instance <instance_id>', 'only those to the instance')
    .option('--meeting <meeting_id>', 'only those of the meeting')
    .option('--message <message_id>', 'only those of the message')
    .addOption(new Option('--state <state>', 'only those in this state').choices([...DELIVERY_STATES]))
    .option('--since <time>', 'only those of messages sent at or after it, such as 2026-03-01T09:30:00Z')
    .option('--until <time>', 'only those of messages sent before it')
    .option('--status <code>', 'only those with an attempt that got this status, such as 500', wholeNumber(100, 999))
    .addOption(
      new Option('--outcome <outcome>', 'only those with an attempt of this outcome').choices(Object.keys(OUTCOMES)),
    )
    .option('--agent <agent_id>', 'only those for the agent, in all meetings')
    .option('--text <text>', 'only those of messages with this text')
    .action(async (given: ListFilters) => {
      const { instance, meeting, message, state, since, until, status, outcome, agent, text, ...options } = given;
      const client = clientFor(options);
      const keys = { instance_id: instance, meeting_id: meeting, message_id: message };
      const filters = { ...keys, state, since, until, status_code: status, outcome, agent_id: agent, text };
      const rows = await listed(options, (page) => client.listDeliveries({ ...filters, ...page }));
      if (options.json) printJson(rows);
      else await printDeliveries(client, rows);
    });
  return withExamples(withList(command), {
    'convoke deliveries list --message msg_7f3k9q2m00r3vljl5tg00': 'who has received a message, and who has not',
    'convoke deliveries list --status 500 --since 2026-03-01T09:30:00Z':
      'deliveries that got the response 500 since a time',
    'convoke deliveries list --agent anna-planner': 'deliveries for an agent, in all meetings',
  });
}

async function printDeliveries(client: ConvokeClient, rows: readonly Delivery[]): Promise<void> {
  if (rows.length === 0) {
    note('No delivery fits.');
    await noteUnseen(client);
    return;
  }
  const now_ms = wallNow();
  printTable(rows, [
    { title: 'DELIVERY', text: (row) => row.delivery_id },
    { title: 'MEETING', text: (row) => row.meeting_id },
    { title: 'SEQ', text: (row) => String(row.seq) },
    { title: 'INSTANCE', text: (row) => row.instance_id },
    { title: 'CREATED', text: (row) => ago(row.created_at, now_ms) },
    { title: 'ATTEMPTS', text: (row) => String(row.attempt_count) },
    { title: 'STATE', text: causeInWords, style: ({ state }) => STATE_STYLES[state], gives_way: true },
  ]);
}

function showCommand(): Command {
  const command = new Command('show')
    .description('show one delivery with every attempt')
    .argument('<delivery_id>')
    .option('--curl', 'print its request as a curl command, without the secrets')
    .action(async (delivery_id: string, { curl = false, ...options }: ApiOptions & { curl?: boolean }) => {
      const client = clientFor(options);
      if (curl) return printPush(await client.getDeliveryPush(delivery_id), options);
      const delivery = await client.getDelivery(delivery_id);
      if (options.json) printJson(delivery);
      else printDelivery(delivery);
    });
  return withExamples(withApi(command), {
    'convoke deliveries show dlv_7f3k9q2m00r3vljl5tg01': 'why it was not delivered, in words',
    'convoke deliveries show dlv_7f3k9q2m00r3vljl5tg01 --curl': 'its request, to make it by hand',
  });
}

function printPush(push: DeliveryPush, { json }: ApiOptions): void {
  if (json) return printJson(push);
  const { url, body } = push;
  // A terminal would obey some characters of the URL and of the body, so both are escaped.
  const command = curlOf({ ...push, url: url && new URL(url).href, body: escaped(body) });
  if (command === null) {
    const why =
      push.runtime === null ? 'its instance has no address' : `its runtime ${push.runtime} gets another shape`;
    throw new CommandFailure(EXIT.failed, `there is no command: ${why}`);
  }
  print(command);
}

function printDelivery(delivery: DeliveryWithAttempts): void {
  const now_ms = wallNow();
  const { next_attempt_at } = delivery;
  printFields({
    delivery: delivery.delivery_id,
    message: `${delivery.message_id}, number ${delivery.seq} of ${delivery.meeting_id}`,
    to: `${delivery.target_agents.join(', ')} at ${delivery.instance_id}`,
    state: stateInWords(delivery),
    created: `${delivery.created_at} (${ago(delivery.created_at, now_ms)})`,
    ...(delivery.settled_at !== null && { settled: `${delivery.settled_at} (${ago(delivery.settled_at, now_ms)})` }),
    // Leaves out a time that has passed: the delivery now waits for something else, such as its instance.
    ...(next_attempt_at !== null &&
      Date.parse(next_attempt_at) > now_ms && {
        'next attempt': `${next_attempt_at} (${ago(next_attempt_at, now_ms)})`,
      }),
    attempts: delivery.attempt_count === 0 ? 'none yet' : String(delivery.attempt_count),
  });
  for (const attempt of delivery.attempts) {
    print(`  ${attempt.attempt}. ${attempt.started_at}  ${plain(attemptInWords(attempt))}`);
    if (attempt.response_excerpt !== '') print(`     the receiver said: ${plain(attempt.response_excerpt)}`);
  }
  const advice = adviceInWords(delivery);
  if (advice !== '') print(`\n${advice.split('\n').map(plain).join('\n')}`);
}

function retryCommand(): Command {
  const command = new Command('retry')
    .description('queue a failed, cancelled or pending delivery again, at once')
    .argument('<delivery_id>')
    .action(async (delivery_id: string, options: ApiOptions) => {
      const delivery = await clientFor(options).retryDelivery(delivery_id);
      if (options.json) printJson(delivery);
      else print(`${delivery_id} is queued again; \`${typed(`deliveries show ${delivery_id}`)}\` shows the result`);
    });
  return withExamples(withApi(command), {
    'convoke deliveries retry dlv_7f3k9q2m00r3vljl5tg01': 'after the machine was repaired',
  });
}

interface DropOptions extends ApiOptions {
  instance?: string;
  meeting?: string;
  yes?: boolean;
}

function dropCommand(): Command {
  const command = new Command('drop')
    .description('cancel the waiting deliveries of an instance, or in a meeting; without --yes it only counts them')
    .option('--instance <instance_id>', 'deliveries to the instance')
    .option('--meeting <meeting_id>', 'deliveries of the meeting')
    .option('--yes', 'drop it')
    .action(async ({ instance, meeting, yes = false, ...options }: DropOptions) => {
      if (instance === undefined && meeting === undefined) {
        throw new CommandFailure(EXIT.usage, 'give --instance, --meeting, or both');
      }
      const client = clientFor(options);
      const of = { instance_id: instance, meeting_id: meeting };
      const dropped = await client.dropDeliveries({ ...of, dry_run: yes ? undefined : true });
      if (!dropped.done) {
        const { deliveries: first, up_to } = dropped;
        for await (const further of client.dropping({ ...of, up_to: up_to ?? undefined }))
          dropped.deliveries = first + further;
        dropped.done = true;
      }
      if (options.json) {
        printJson(dropped);
        return;
      }
      const at_least = dropped.at_least === true ? 'at least ' : '';
      const deliveries = `${at_least}${counted(dropped.deliveries, 'delivery', 'deliveries')}`;
      if (yes) print(`dropped: ${deliveries}; \`${typed('deliveries --state cancelled')}\` lists the cancelled ones`);
      else print(`would be dropped: ${deliveries}; --yes drops them`);
    });
  return withExamples(withApi(command), {
    'convoke deliveries drop --meeting standup-42': 'how many deliveries wait in a meeting',
    'convoke deliveries drop --meeting standup-42 --yes': 'nobody gets it any more',
    'convoke deliveries drop --instance laptop-anna --meeting standup-42 --yes':
      'only the deliveries that wait for one instance',
  });
}
