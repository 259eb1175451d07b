import { type Invite, ConvokeError } from '@convoke/sdk';
import { Command, InvalidArgumentError } from 'commander';
import { variableOf } from '../../../config/settings.ts';
import { duration } from '../../../config/value_types.ts';
import { isLoopbackHost } from '../../../domain/host.ts';
import { wallNow } from '../../../wall_clock.ts';
import { type ApiOptions, clientFor, collect, listed, type ListOptions, withApi, withList } from '../api.ts';
import { typed } from '../command_name.ts';
import { withExamples } from '../examples.ts';
import { ago, listInWords } from '../format.ts';
import { note, print, printJson, printTable } from '../terminal.ts';

const LIFETIME = duration('1m', '24h');

interface InviteOptions extends ApiOptions {
  agent: string[];
  instance?: string;
  expiresIn?: number;
}

export function inviteCommand(): Command {
  const command = new Command('invite')
    .description('make a one-time link with which the machine of an agent joins a meeting, even behind a firewall')
    .argument('<meeting_id...>', 'the meetings that it may join')
    .requiredOption('--agent <agent_id>', 'an agent that the machine runs; repeat it for more', collect)
    .option(
      '--instance <instance_id>',
      'the instance that the machine registers; an id made from the agent when absent',
    )
    .option('--expires-in <duration>', 'how long the link can be used, such as 10m; 1h when absent', lifetime)
    .action(async (meeting_ids: string[], { agent, instance, expiresIn, ...options }: InviteOptions) => {
      const input = { meeting_ids, agent_ids: agent, instance_id: instance, expires_in_s: expiresIn };
      const made = await clientFor(options).createInvite(input);
      if (options.json) return printJson(made);
      print(made.link);
      note(
        `It works once, ${until(made.expires_at)}, and is not shown again. On the machine of the agent, where Convoke is installed:`,
      );
      note(`  npx convoke connect ${made.link} --to WHERE_IT_LISTENS`);
      if (isLoopbackHost(new URL(made.link).hostname)) {
        const where = made.is_public_url ? `${variableOf('public_url')} of the service` : '--url';
        note(`Only this machine reaches the service at this address: give ${where} the address for other machines.`);
      }
    });
  return withExamples(withApi(command), {
    'convoke invite standup-42 --agent anna': 'a link for an hour',
    'convoke invite standup-42 --agent anna --expires-in 10m --url https://convoke.example.com': 'for another machine',
  });
}

/** @returns seconds */
function lifetime(text: string): number {
  const ms = LIFETIME.parse(text);
  if (ms === undefined) throw new InvalidArgumentError(`It must be ${LIFETIME.expects.replaceAll('`', '')}.`);
  return Math.ceil(ms / 1000);
}

function until(expires_at: string): string {
  return `until ${expires_at.slice(0, 16).replace('T', ' ')} UTC`;
}

export function invitesCommand(): Command {
  const command = new Command('invites')
    .description('the invites of the last 30 days: list, revoke')
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(revokeCommand());
  return withExamples(command, { 'convoke invites': 'all of them, with their states' });
}

function listCommand(): Command {
  const command = new Command('list')
    .description('list the invites, the latest first')
    .action(async (options: ListOptions) => {
      const client = clientFor(options);
      const invites = await listed(options, (query) => client.listInvites(query));
      if (options.json) return printJson(invites);
      if (invites.length === 0) return note(`There is no invite: \`${typed('invite --help')}\` shows how to make one.`);
      const now_ms = wallNow();
      printTable(invites, [
        { title: 'INVITE', text: ({ invite_id }) => invite_id },
        { title: 'AGENTS', text: ({ agent_ids }) => listInWords(agent_ids), gives_way: true },
        { title: 'MEETINGS', text: ({ meeting_ids }) => listInWords(meeting_ids), gives_way: true },
        { title: 'INSTANCE', text: ({ instance_id }) => instance_id, gives_way: true },
        {
          title: 'STATE',
          text: (invite) => stateInWords(invite, now_ms),
          style: ({ state }) => (state === 'pending' ? null : 'dim'),
        },
      ]);
    });
  return withExamples(withList(command), { 'convoke invites list --json': 'for a program' });
}

function stateInWords({ state, expires_at, redeemed_at, revoked_at, key_id }: Invite, now_ms: number): string {
  switch (state) {
    case 'pending':
      return `pending, expires ${ago(expires_at, now_ms)}`;
    case 'redeemed':
      return `redeemed ${ago(redeemed_at, now_ms)}${key_id === null ? '' : ` for the key ${key_id}`}`;
    case 'revoked':
      return `revoked ${ago(revoked_at, now_ms)}`;
    default:
      return `expired ${ago(expires_at, now_ms)}`;
  }
}

function revokeCommand(): Command {
  const command = new Command('revoke')
    .description('refuse the link of an invite from now on')
    .argument('<invite_id>')
    .action(async (invite_id: string, options: ApiOptions) => {
      await clientFor(options)
        .revokeInvite(invite_id)
        .catch((error: unknown) => {
          if (error instanceof ConvokeError && error.code === 'invite_redeemed') {
            note(`\`${typed('invites')}\` names the key that it made; \`${typed('keys revoke KEY')}\` revokes it.`);
          }
          throw error;
        });
      if (options.json) printJson({ invite_id, revoked: true });
      else print(`the invite ${invite_id} is revoked`);
    });
  return withExamples(withApi(command), { 'convoke invites revoke inv_4f7k2m9q0a1b': 'its link is refused at once' });
}
