import { Command } from 'commander';
import { type ApiOptions, clientFor, collect, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { catchUpOption, maxAgeOption, type RuleOptions, rulesIn, wakeOption } from '../rule_options.ts';
import { durationInWords } from '../format.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { plain, print, printJson } from '../terminal.ts';

interface MemberOptions extends ApiOptions, RuleOptions {
  agent?: string[];
}

/** `convoke meetings member`. Unlike `convoke join`, it does not bring back an instance that has left. */
export function memberCommand(): Command {
  const command = new Command('member')
    .description('change what an instance in a meeting gets, or its agents there')
    .argument('<meeting_id>')
    .argument('<instance_id>')
    .option(
      '--agent <agent_id>',
      'an agent that takes part; repeat it for more; these replace the present agents',
      collect,
    )
    .addOption(wakeOption())
    .addOption(catchUpOption())
    .addOption(maxAgeOption())
    .action(async (meeting_id: string, instance_id: string, options: MemberOptions) => {
      const changes = { agent_ids: options.agent, ...rulesIn(options) };
      if (Object.values(changes).every((value) => value === undefined))
        throw new CommandFailure(EXIT.usage, 'give what to change: --agent, --wake, --catch-up or --max-age');
      const membership = await clientFor(options).updateMembership(meeting_id, instance_id, changes);
      if (options.json) {
        printJson(membership);
        return;
      }
      const { agent_ids, wake = 'all', catch_up = 'all', max_age_s = 0 } = membership;
      const age = max_age_s === 0 ? 'of any age' : `up to ${durationInWords(max_age_s * 1_000)} old`;
      print(plain(`${instance_id} is in ${meeting_id} with ${agent_ids.join(', ') || 'no agents'}`));
      print(`wake: ${wake}, catch up: ${catch_up}, ${age}`);
    });
  return withExamples(withApi(command), {
    'convoke meetings member standup-42 laptop-anna --wake targeted': 'only messages that name its agents are pushed',
  });
}
