import type { Diagnosis } from '@convoke/sdk';
import { Command } from 'commander';
import { type ApiOptions, clientFor, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { EXIT } from '../exit.ts';
import { plain, print, printJson, printTable, styled } from '../terminal.ts';
import { durationInWords } from '../format.ts';

export function webhookTestCommand(): Command {
  const command = new Command('webhook-test')
    .description('send a sample push to an instance and show the result; exit code 1 when it failed')
    .argument('<instance_id>')
    .action(async (instance_id: string, options: ApiOptions) => {
      const diagnosis = await clientFor(options).testWebhook(instance_id);
      if (options.json) printJson(diagnosis);
      else printDiagnosis(diagnosis);
      if (!diagnosis.success) process.exitCode = EXIT.failed;
    });
  return withExamples(withApi(command), {
    'convoke webhook-test laptop-anna': 'one signed push, stage by stage',
    'convoke webhook-test laptop-anna --json': 'the diagnosis for a program',
  });
}

function printDiagnosis({ success, stages, response_excerpt, advice, duration_ms }: Diagnosis): void {
  printTable(stages, [
    { title: 'STAGE', text: ({ stage }) => stage },
    { title: '', text: ({ ok }) => (ok ? 'ok' : 'failed'), style: ({ ok }) => (ok ? 'green' : 'red') },
    { title: 'TOOK', text: (stage) => durationInWords(stage.duration_ms) },
    { title: 'DETAIL', text: ({ detail }) => detail, gives_way: true },
  ]);
  if (response_excerpt !== '') print(`the receiver said: ${plain(response_excerpt)}`);
  const verdict = success ? styled('green', 'The push was delivered') : styled('red', 'The push failed');
  print(`${verdict} after ${durationInWords(duration_ms)}. ${plain(advice)}`);
}
