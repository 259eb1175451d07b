import type { Explanation } from '@convoke/sdk';
import { Command } from 'commander';
import { type ApiOptions, clientFor, collect, listed, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { inWords, listInWords } from '../format.ts';
import { note, printJson, printTable } from '../terminal.ts';

const WHY: Record<NonNullable<Explanation['why']>, string> = {
  left: 'it has left',
  inactive: 'it is not active',
  switched_off: 'its webhook is switched off',
  nobody_named: 'the message names none of its agents',
  is_sender: 'its agent says it',
  wake: 'it does not wake it',
  hop_limit: 'the loop guard: too many messages of agents in a row',
  pair_limit: 'the loop guard: too many messages from this agent to one of its agents',
  paused: 'when the meeting goes on',
  connection: 'when its machine connects',
  back_off: 'when it is tried again',
};

const MAY_BECOME: Record<NonNullable<Explanation['may_become']>[number], string> = {
  superseded: 'unless a newer message comes first (catch up: latest)',
  max_age: 'unless it becomes too old',
  pair_limit: 'unless the loop guard counts messages that wait before it',
  pushed: 'unless messages that wait before it are left out',
};

/** In words: why the message is not pushed now or when it will be, and what may still change that. */
export function whyInWords({ why, pushed, may_become = [] }: Explanation): string {
  const may = may_become.filter((reason) => isWorthSaying(reason, pushed)).map((reason) => inWords(MAY_BECOME, reason));
  return [...(why === null ? [] : [inWords(WHY, why)]), ...may].join(', ');
}

/** The rules of a membership matter only to a message that has to wait. The loop guard matters to every message. */
function isWorthSaying(reason: NonNullable<Explanation['may_become']>[number], pushed: Explanation['pushed']): boolean {
  return pushed === 'later' || reason === 'pair_limit' || reason === 'pushed';
}

const STYLES = { now: 'green', later: 'yellow', no: 'dim' } as const;

interface ExplainOptions extends ApiOptions {
  to?: string[];
  from?: string;
  replyTo?: string;
}

export function explainCommand(): Command {
  const command = new Command('explain')
    .description('who would get a message that is sent now, and why the others would not; sends nothing')
    .argument('<meeting_id>')
    .option('--to <agent_id>', 'an agent that the message is for; repeat it for more; all agents when absent', collect)
    .option('--from <agent_id>', 'the agent that says it; a person when absent')
    .option('--reply-to <message_id>', 'the message of this meeting that the new one answers')
    .action(async (meeting_id: string, { to, from, replyTo, ...options }: ExplainOptions) => {
      const client = clientFor(options);
      const query = { target_agents: to, from_agent: from, in_reply_to: replyTo };
      const rows = await listed({ ...options, limit: 500, all: true }, (page) =>
        client.explain(meeting_id, { ...query, ...page }),
      );
      if (options.json) {
        printJson(rows);
        return;
      }
      if (rows.length === 0) {
        note('No instance has ever joined this meeting: nobody would get a message.');
        return;
      }
      printTable(rows, [
        { title: 'INSTANCE', text: (row) => row.instance_id },
        { title: 'NAME', text: (row) => row.instance_name, gives_way: true },
        { title: 'PUSHED', text: (row) => row.pushed, style: ({ pushed }) => STYLES[pushed] },
        { title: 'AGENTS TO NOTIFY', text: (row) => listInWords(row.target_agents) || 'none', gives_way: true },
        { title: 'WHY', text: whyInWords },
      ]);
    });
  return withExamples(withApi(command), {
    'convoke explain standup-42': 'a message to everybody',
    'convoke explain standup-42 --to anna-planner --from ben-coder': 'what one agent says to another',
  });
}
