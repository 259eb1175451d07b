import { all, type ConvokeClient, ConvokeError } from '@convoke/sdk';
import { Command } from 'commander';
import { type ApiOptions, clientFor, collect, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { catchUpOption, maxAgeOption, type RuleOptions, rulesIn, wakeOption } from '../rule_options.ts';
import { note, plain, print, printJson } from '../terminal.ts';

interface JoinOptions extends ApiOptions, RuleOptions {
  agent?: string[];
}

export function joinCommand(): Command {
  const command = new Command('join')
    .description('let an instance join a meeting')
    .argument('<instance_id>')
    .argument('<meeting_id>')
    .option(
      '--agent <agent_id>',
      'an agent that takes part; repeat it for more; all of the instance when absent',
      collect,
    )
    .addOption(wakeOption())
    .addOption(catchUpOption())
    .addOption(maxAgeOption())
    .action(async (instance_id: string, meeting_id: string, options: JoinOptions) => {
      const client = clientFor(options);
      const hosted = (await client.getInstance(instance_id)).agent_ids;
      const before = await agentsIn(client, meeting_id, instance_id);
      const membership = await client.joinMeeting({
        instance_id,
        meeting_id,
        agent_ids: options.agent ?? hosted,
        ...rulesIn(options),
      });
      if (options.json) {
        printJson(membership);
        return;
      }
      print(plain(`${instance_id} is in ${meeting_id} with ${membership.agent_ids.join(', ') || 'no agents'}`));
      noteSurprises(instance_id, before, membership.agent_ids, hosted);
      if (membership.agent_ids.length === 0) note('Without agents it gets no pushes: name some with --agent.');
    });
  return withExamples(withApi(command), {
    'convoke join laptop-anna standup-42': 'with all of its agents',
    'convoke join laptop-anna standup-42 --agent anna-planner': 'with one of them',
    'convoke join laptop-anna standup-42 --wake targeted': 'only messages that name its agents are pushed',
    'convoke join laptop-anna standup-42 --catch-up latest': 'when it was away, only the newest message is pushed',
  });
}

/** The agents of an instance in a meeting now; none when it is not in the meeting. */
async function agentsIn(client: ConvokeClient, meeting_id: string, instance_id: string): Promise<string[]> {
  try {
    for await (const member of all((start) => client.listMeetingInstances(meeting_id, { limit: 500, ...start }))) {
      if (member.instance_id === instance_id) return member.agent_ids;
    }
    return [];
  } catch (error) {
    // Either this join creates the meeting, or the key may not read the meeting before the join.
    if (!(error instanceof ConvokeError) || (error.status !== 404 && error.status !== 403)) throw error;
    return [];
  }
}

/**
 * Prints a note about likely mistakes: an unknown agent gets no messages, and a join replaces the agents of an earlier
 * join.
 */
function noteSurprises(instance_id: string, before: string[], now: string[], hosted: string[]): void {
  const replaced = before.filter((agent_id) => !now.includes(agent_id));
  if (replaced.length > 0)
    note(`These agents no longer take part: ${replaced.join(', ')}. A join replaces the list of agents.`);
  const strange = now.filter((agent_id) => !hosted.includes(agent_id));
  if (strange.length > 0) {
    note(
      `${instance_id} does not host ${strange.join(', ')}; it is registered with ${hosted.join(', ') || 'no agents'}.`,
    );
  }
}

export function leaveCommand(): Command {
  const command = new Command('leave')
    .description('let an instance leave a meeting')
    .argument('<instance_id>')
    .argument('<meeting_id>')
    .action(async (instance_id: string, meeting_id: string, options: ApiOptions) => {
      const left = await clientFor(options).leaveMeeting({ instance_id, meeting_id });
      if (options.json) printJson(left);
      else if (left.left_at === null) print(`${instance_id} was not in ${meeting_id}; nothing to leave`);
      else print(`${instance_id} has left ${meeting_id}`);
    });
  return withExamples(withApi(command), { 'convoke leave laptop-anna standup-42': 'no more pushes of that meeting' });
}
