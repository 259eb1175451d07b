import { Command } from 'commander';
import { type ApiOptions, clientFor, collect, withApi } from './api.ts';
import { withExamples } from './examples.ts';
import { note, print, printJson } from './terminal.ts';

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
    .action(async (instance_id: string, meeting_id: string, options: ApiOptions & { agent?: string[] }) => {
      const client = clientFor(options);
      const agent_ids = options.agent ?? (await client.getInstance(instance_id)).agent_ids;
      const membership = await client.joinMeeting({ instance_id, meeting_id, agent_ids });
      if (options.json) {
        printJson(membership);
        return;
      }
      print(`${instance_id} is in ${meeting_id} with ${membership.agent_ids.join(', ') || 'no agents'}`);
      if (membership.agent_ids.length === 0) note('Without agents it gets no pushes: name some with --agent.');
    });
  return withExamples(withApi(command), {
    'convoke join laptop-anna standup-42': 'with all of its agents',
    'convoke join laptop-anna standup-42 --agent anna-planner': 'with one of them',
  });
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
