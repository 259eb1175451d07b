import { Command, Option } from 'commander';
import { collect, wholeNumber, withApi } from '../../api.ts';
import { withExamples } from '../../examples.ts';
import { withRuntime } from '../../runtime_options.ts';
import { catchUpOption, maxAgeOption, wakeOption } from '../../rule_options.ts';
import type { ConnectOptions } from './connect_with.ts';

export function connectCommand(): Command {
  const command = new Command('connect')
    .description('let an agent runtime on this machine take part in meetings, from behind a firewall too')
    .argument('[link_or_instance]', 'the link of an invite, or the instance of a connection that was saved')
    .option('--agent <agent_id>', 'an agent of the runtime; repeat it for more', collect)
    .option('--meeting <meeting_id>', 'a meeting to join; repeat it for more', collect)
    .option('--to <url>', 'where the runtime listens on this machine')
    .option(
      '--header <name: value>',
      'a header for the runtime, such as its token; it stays on this machine; repeat it for more',
      collect,
    )
    .option('--secret <whsec_…>', 'the secret that the runtime verifies pushes with, as its own configuration has it')
    .option('--instance <instance_id>', 'what it registers as; the first agent when absent')
    .option('--name <name>', 'what people see; the instance when absent')
    .addOption(new Option('--success <statuses>', 'which response statuses count as a success').choices(['200', '2xx']))
    .option(
      '--timeout <seconds>',
      'how long the runtime may take for a response; 30 when absent, or what a turn of --runtime takes',
      wholeNumber(1, 600),
    )
    .option('--replies', 'say in the meeting what the runtime responds as {"reply": …}; always with --runtime')
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
      'a local model takes part as lena: it hears each message, and what it answers is said in the meeting',
    'convoke connect --agent anna --meeting standup-42 --to http://127.0.0.1:9000/convoke':
      'each message of the meeting is POSTed to that address, and this machine needs no open port',
    "convoke connect --agent main --meeting standup-42 --to http://127.0.0.1:18789/hooks/convoke --header 'authorization: Bearer 3f9c'":
      'a runtime that wants a credential; the service does not learn of it',
    'convoke connect https://convoke.example/invite/… --to http://127.0.0.1:9000/convoke':
      'redeems an invite, and saves its key for this user alone',
    'convoke connect anna --wake targeted --catch-up latest':
      'from now on it hears only what names it, and after a night only the newest message',
    'convoke connect anna': 'again, with what was saved',
    'convoke connect anna --install': 'from now on, whenever this user is signed in',
  });
}
