import type { RawMessageTrace } from '@convoke/sdk';
import { Command } from 'commander';
import { parseExactly } from '../../../domain/exact_json.ts';
import { wallNow } from '../../../wall_clock.ts';
import { type ApiOptions, clientFor, withApi } from '../api.ts';
import { typed } from '../command_name.ts';
import { withExamples } from '../examples.ts';
import { ago, causeInWords, listInWords, receiversInWords, STATE_STYLES } from '../format.ts';
import { lastArgument, quoted } from '../shell_words.ts';
import { note, plain, print, printFields, printJson, printTable } from '../terminal.ts';

const DELIVERIES_MAX = 500;

type Brief = RawMessageTrace['answered'][number];

export function traceCommand(): Command {
  const command = new Command('trace')
    .description('one message: the messages that led to it, its answers, and the agents that it woke')
    .argument('<message_id>')
    .action(async (message_id: string, options: ApiOptions) => {
      const trace = await clientFor(options).getRawMessage(message_id, { limit: DELIVERIES_MAX });
      if (options.json) printJson({ ...trace, message: parseExactly(trace.message.text) });
      else printTrace(trace);
    });
  return withExamples(withApi(command), {
    'convoke trace msg_7f3k9q2m00r3vljl5tg00': 'the chain that led to it, and the state of each delivery',
  });
}

function printTrace(trace: RawMessageTrace): void {
  const now_ms = wallNow();
  const { answered, answers, deliveries, target_agents, hops } = trace;
  printFields({
    message: `${trace.message_id}, number ${trace.seq} of ${trace.meeting_id}`,
    sent: `${trace.accepted_at} (${ago(trace.accepted_at, now_ms)})`,
    from: trace.from_agent ?? 'a person, or a program that is no agent',
    to: receiversInWords(target_agents),
    ...(hops !== undefined && { hops: String(hops) }),
    ...(trace.trace_id !== undefined && { trace: trace.trace_id }),
    text: trace.message.text,
  });
  if (trace.in_reply_to !== undefined)
    printBriefs('The chain that led to it, its beginning first:', answered.toReversed());
  if (answers.length > 0) printBriefs('What answers it:', answers);
  if (trace.next_answers_after !== null) note('Later messages of the meeting may answer it as well.');
  print();
  if (deliveries.length === 0) {
    print(
      trace.deliveries_queued > 0
        ? 'Its deliveries were removed: they are kept for a time only.'
        : plain(unheard(trace)),
    );
    return;
  }
  printTable(deliveries, [
    { title: 'INSTANCE', text: (row) => row.instance_id },
    { title: 'AGENTS', text: (row) => listInWords(row.target_agents), gives_way: true },
    { title: 'DELIVERY', text: (row) => row.delivery_id },
    { title: 'ATTEMPTS', text: (row) => String(row.attempt_count) },
    { title: 'STATE', text: causeInWords, style: ({ state }) => STATE_STYLES[state], gives_way: true },
  ]);
  if (trace.deliveries_cursor !== null) {
    const all = typed(`deliveries --message ${trace.message_id} --all`);
    note(`These are the latest ${DELIVERIES_MAX} deliveries: \`${all}\` lists all of them.`);
  }
}

/** Names the command that says why nobody would get a message like this one. */
function unheard({ meeting_id, target_agents, from_agent }: RawMessageTrace): string {
  const to = (target_agents ?? []).map((agent_id) => `--to ${quoted(agent_id)} `).join('');
  const from = from_agent === undefined ? '' : `--from ${quoted(from_agent)} `;
  return `It woke nobody: \`${typed(`explain ${to}${from}${lastArgument(meeting_id)}`)}\` says why, for a message sent now.`;
}

function printBriefs(title: string, briefs: readonly Brief[]): void {
  print(`\n${title}`);
  if (briefs.length === 0) print('it was removed');
  else
    printTable(briefs, [
      { title: 'SEQ', text: (row) => String(row.seq) },
      { title: 'FROM', text: (row) => row.from_agent ?? '-' },
      { title: 'MESSAGE', text: (row) => row.message_id },
      { title: 'TEXT', text: (row) => row.excerpt, gives_way: true },
    ]);
}
