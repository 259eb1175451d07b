import { Command } from 'commander';
import { type ApiOptions, clientFor, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { print, printJson } from '../terminal.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { counted } from '../format.ts';

const unreadableHint = (instance_ids: string[]): string =>
  `no key decrypts the secrets of ${instance_ids.join(', ')}: the previous key is kept. Register each with a new secret and its headers, or delete it; then run this command again.`;

export function reencryptCommand(): Command {
  const command = new Command('reencrypt')
    .description('change the key that encrypts the stored secrets, while the service runs')
    .action(async (options: ApiOptions) => {
      const client = clientFor(options);
      let rewritten = 0;
      for (;;) {
        const step = await client.reencrypt();
        rewritten += step.rewritten;
        if (!step.done) continue;
        if (options.json) printJson({ ...step, rewritten });
        else print(`the secrets of ${counted(rewritten, 'instance')} are encrypted under the new key ${step.key_id}`);
        if (step.unreadable.length > 0) throw new CommandFailure(EXIT.failed, unreadableHint(step.unreadable));
        return;
      }
    });
  return withExamples(withApi(command), {
    'convoke keys reencrypt': 'a new key; after a crash, the same command finishes the change',
  });
}
