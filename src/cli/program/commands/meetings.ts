import type { MeetingInstance } from '@convoke/sdk';
import { Command } from 'commander';
import { HOP_LIMIT_MAX, PAIR_LIMIT_MAX, PAIR_WINDOW_S_MAX } from '../../../domain/guard_rule.ts';
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
import { note, print, printJson, printTable } from '../terminal.ts';
import { ago, durationInWords, counted, HEALTH_STYLES, listInWords } from '../format.ts';
import { lastArgument, quoted } from '../shell_words.ts';
import { typed } from '../command_name.ts';
import { memberCommand } from './member.ts';

export function meetingsCommand(): Command {
  const command = new Command('meetings')
    .description('the meetings, and who is in them; pause, resume and limit')
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(showCommand())
    .addCommand(
      brakeCommand('pause', 'hold back all deliveries of a meeting until it is resumed; messages are still accepted'),
    )
    .addCommand(limitCommand())
    .addCommand(memberCommand())
    .addCommand(brakeCommand('resume', 'push the waiting deliveries of a meeting, in order'));
  return withExamples(command, {
    'convoke meetings': 'all of them, with their last activity',
    'convoke meetings show standup-42': 'who is in it',
    'convoke meetings pause standup-42': 'agents that talk without end get no more messages',
  });
}

function listCommand(): Command {
  const command = new Command('list')
    .description('list meetings')
    .option('--search <text>', 'part of the id')
    .option('--instance <instance_id>', 'only meetings of this instance')
    .action(async ({ search, instance, ...options }: ListOptions & { search?: string; instance?: string }) => {
      const client = clientFor(options);
      const rows = await listed(options, (page) => client.listMeetings({ q: search, instance_id: instance, ...page }));
      if (options.json) {
        printJson(rows);
        return;
      }
      if (rows.length === 0) {
        note(`No meetings match. One exists as soon as an instance joins it: see \`${typed('join --help')}\`.`);
        await noteUnseen(client);
        return;
      }
      const now_ms = wallNow();
      printTable(rows, [
        { title: 'MEETING', text: (row) => row.meeting_id },
        { title: 'MESSAGES', text: (row) => String(row.last_seq) },
        { title: 'INSTANCES', text: (row) => String(row.instance_count) },
        { title: 'AGENTS', text: (row) => String(row.agent_count) },
        { title: 'PENDING', text: (row) => `${row.pending_deliveries}${row.paused ? ', paused' : ''}` },
        { title: 'LAST ACTIVITY', text: (row) => ago(row.last_activity_at, now_ms) },
      ]);
    });
  return withExamples(withList(command), {
    'convoke meetings list --search standup': 'those with standup in their id',
  });
}

interface ShowOptions extends ApiOptions {
  includeLeft?: true;
}

function showCommand(): Command {
  const command = new Command('show')
    .description('show who is in a meeting')
    .argument('<meeting_id>')
    .option('--include-left', 'also those that have left')
    .action(async (meeting_id: string, options: ShowOptions) => {
      const client = clientFor(options);
      const query = { include_left: options.includeLeft };
      const rows = await listed({ ...options, limit: 500, all: true }, (page) =>
        client.listMeetingInstances(meeting_id, { ...query, ...page }),
      );
      if (options.json) {
        printJson(rows);
        return;
      }
      if (rows.length === 0) {
        note(`Nobody is in it. \`${typed('join --help')}\` shows how to join.`);
        return;
      }
      const now_ms = wallNow();
      printTable(rows, [
        { title: 'INSTANCE', text: (row) => row.instance_id },
        { title: 'NAME', text: (row) => row.instance_name, gives_way: true },
        { title: 'AGENTS IN IT', text: (row) => listInWords(row.agent_ids) || 'none', gives_way: true },
        { title: 'WAKE', text: (row) => row.wake ?? 'all' },
        { title: 'CATCH UP', text: catchUpInWords },
        { title: 'HEALTH', text: (row) => row.health, style: ({ health }) => HEALTH_STYLES[health] },
        { title: 'JOINED', text: (row) => ago(row.joined_at, now_ms) },
        { title: 'LEFT', text: (row) => (row.left_at === null ? '' : ago(row.left_at, now_ms)) },
      ]);
    });
  return withExamples(withApi(command), {
    'convoke meetings show standup-42 --include-left': 'who is in it, and who was',
  });
}

function catchUpInWords({ catch_up = 'all', max_age_s = 0 }: MeetingInstance): string {
  return max_age_s === 0 ? catch_up : `${catch_up}, up to ${durationInWords(max_age_s * 1_000)} old`;
}

function brakeCommand(name: 'pause' | 'resume', description: string): Command {
  const command = new Command(name)
    .description(description)
    .argument('<meeting_id>')
    .action(async (meeting_id: string, options: ApiOptions) => {
      const meeting = await clientFor(options).updateMeeting(meeting_id, { paused: name === 'pause' });
      if (options.json) {
        printJson(meeting);
        return;
      }
      const pending = counted(meeting.pending_deliveries, 'delivery', 'deliveries');
      if (name === 'resume') {
        print(`${meeting_id} is resumed; pending: ${pending}`);
        return;
      }
      print(`${meeting_id} is paused; pending: ${pending}`);
      print(`next: ${typed(`meetings resume ${lastArgument(meeting_id)}`)}, or drop what waits:`);
      print(`      ${typed(`deliveries drop --meeting ${quoted(meeting_id)}`)}`);
    });
  return withExamples(withApi(command), { [`convoke meetings ${name} standup-42`]: description });
}

/** The word that removes a meeting's own limit, so that the limit of the settings applies to it again. */
const DEFAULT = 'default';
type Limit = number | typeof DEFAULT;

interface LimitOptions extends ApiOptions {
  hops?: Limit;
  pair?: Limit;
  window?: Limit;
}

/**
 * `default`, or a whole number. The parser cannot return null, because commander would turn null into an empty text.
 */
function limitUpTo(max: number): (text: string) => Limit {
  const parse = wholeNumber(0, max);
  return (text) => (text === DEFAULT ? DEFAULT : parse(text));
}

/** A limit in the API: null means that the limit of the settings applies. */
function wireLimit(limit: Limit | undefined): number | null | undefined {
  return limit === DEFAULT ? null : limit;
}

function limitCommand(): Command {
  const command = new Command('limit')
    .description('show the limits of the loop guard in a meeting, or set them')
    .argument('<meeting_id>')
    .option('--hops <n>', 'messages of agents in a row; 0: any number; `default`', limitUpTo(HOP_LIMIT_MAX))
    .option('--pair <n>', 'messages from one agent to one other within the window', limitUpTo(PAIR_LIMIT_MAX))
    .option('--window <seconds>', 'the window', limitUpTo(PAIR_WINDOW_S_MAX))
    .action(async (meeting_id: string, { hops, pair, window, ...options }: LimitOptions) => {
      const client = clientFor(options);
      const is_set = hops !== undefined || pair !== undefined || window !== undefined;
      const limits = { hop_limit: wireLimit(hops), pair_limit: wireLimit(pair), pair_window_s: wireLimit(window) };
      const meeting = is_set ? await client.updateMeeting(meeting_id, limits) : await client.getMeeting(meeting_id);
      if (options.json) {
        printJson(meeting);
        return;
      }
      const { hop_limit, pair_limit, pair_window_s } = meeting.limits;
      print(`${meeting_id}: ${hop_limit === 0 ? 'any number of' : `at most ${hop_limit}`} messages of agents in a row`);
      if (pair_limit === 0 || pair_window_s === 0) print('any number from one agent to one other');
      else print(`at most ${pair_limit} from one agent to one other in ${pair_window_s} s`);
    });
  return withExamples(withApi(command), {
    'convoke meetings limit standup-42': 'the limits at which agents are stopped',
    'convoke meetings limit standup-42 --hops 40': 'agents may talk for longer in this meeting',
    'convoke meetings limit standup-42 --hops default': 'the limit of the service again',
  });
}
