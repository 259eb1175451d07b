import { Command, Option } from 'commander';
import { collect, wholeNumber, withApi } from '../../api.ts';
import { withExamples } from '../../examples.ts';
import { withRuntime } from '../../runtime_options.ts';
import { catchUpOption, maxAgeOption, wakeOption } from '../../rule_options.ts';
import type { ConnectOptions } from './connect_with.ts';

export function connectCommand(): Command {
  const command = new Command('connect')
    .description('let an agent runtime on this machine take part in meetings, even behind a firewall')
    .argument('[link_or_instance]', 'the link of an invite, or the instance of a saved connection')
    .option('--agent <agent_id>', 'an agent of the runtime; repeat it for more', collect)
    .option('--meeting <meeting_id>', 'a meeting to join; repeat it for more', collect)
    .option('--to <url>', 'where the runtime listens on this machine')
    .option(
      '--header <name: value>',
      'a header for the runtime, such as its token; it stays on this machine; repeat it for more',
      collect,
    )
    .option('--secret <whsec_…>', 'the secret with which the runtime verifies pushes, from its own configuration')
    .option('--instance <instance_id>', 'the id to register; the first agent when absent')
    .option('--name <name>', 'the name that people see; the instance when absent')
    .addOption(new Option('--success <statuses>', 'which response statuses count as a success').choices(['200', '2xx']))
    .option(
      '--timeout <seconds>',
      'how long the runtime may take for a response; 30 when absent, or the time that --runtime needs',
      wholeNumber(1, 600),
    )
    .option('--replies', 'send the replies of the runtime ({"reply": …}) in the meeting; always with --runtime')
    .addOption(wakeOption())
    .addOption(catchUpOption())
    .addOption(maxAgeOption())
    .option('--install', 'save the connection, and write a unit that starts it (systemd, launchd)')
    .action(async (link_or_instance: string | undefined, options: ConnectOptions, self: Command) => {
      const { connectWith } = await import('./connect_with.ts');
      const isTyped = (name: string): boolean => self.getOptionValueSource(name) === 'cli';
      await connectWith(link_or_instance, options, isTyped);
    });
  return withExamples(withApi(withRuntime(command)), {
    'convoke connect --runtime openai --to http://127.0.0.1:11434/v1 --model llama3.2 --agent lena --meeting standup-42':
      'a local model takes part as lena: it gets each message, and its answers are sent in the meeting',
    'convoke connect --agent anna --meeting standup-42 --to http://127.0.0.1:9000/convoke':
      'each message of the meeting is POSTed to that address, and this machine needs no open port',
    "convoke connect --agent main --meeting standup-42 --to http://127.0.0.1:18789/hooks/convoke --header 'authorization: Bearer 3f9c'":
      'a runtime that wants a credential, which the service never gets',
    'convoke connect https://convoke.example/invite/… --to http://127.0.0.1:9000/convoke':
      'redeems an invite, and saves its key so that only this user can read it',
    'convoke connect anna --wake targeted --catch-up latest':
      'from now on it gets only messages that name it, and after a night only the newest one',
    'convoke connect anna': 'again, with the saved connection',
    'convoke connect anna --install': 'from now on, whenever this user is signed in',
  });
}
