import type { ConvokeClient, FindMessagesQuery, RawFoundMessage } from '@convoke/sdk';
import { Command } from 'commander';
import { parseExactly } from '../../../domain/exact_json.ts';
import { wallNow } from '../../../wall_clock.ts';
import { clientFor, type ListOptions, listed, noteUnseen, wholeNumber, withList } from '../api.ts';
import { typed } from '../command_name.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { ago } from '../format.ts';
import { note, printJson, printTable } from '../terminal.ts';

interface FindOptions extends ListOptions {
  meeting?: string;
  seq?: number;
  since?: string;
  until?: string;
}

/** The form of an id of a message or of a delivery. */
const MADE_ID = /^(?:msg|dlv)_[0-9a-v]+$/;

export function findCommand(): Command {
  const command = new Command('find')
    .description('find messages by their text, by a message_id, by a webhook-id, or by their number in a meeting')
    .argument('[text]', 'a part of the message, or an id')
    .option('--meeting <meeting_id>', 'only messages of the meeting')
    .option('--seq <n>', 'with --meeting: the message with this number', wholeNumber(0, Number.MAX_SAFE_INTEGER))
    .option('--since <time>', 'sent at or after it, such as 2026-03-01T09:30:00Z')
    .option('--until <time>', 'sent before it')
    .action(async (text: string | undefined, options: FindOptions) => {
      const { meeting: meeting_id, seq, since, until } = options;
      if (text === undefined && seq === undefined)
        throw new CommandFailure(EXIT.usage, 'give a text, an id, or --meeting and --seq');
      const wanted: FindMessagesQuery =
        text !== undefined && MADE_ID.test(text) ? { id: text } : { text, seq, since, until };
      const client = clientFor(options);
      const rows = await listed(options, (page) =>
        client.findRawMessages(
          wanted.text === undefined ? { ...wanted, meeting_id } : { ...wanted, meeting_id, ...page },
        ),
      );
      if (options.json) printJson(rows.map((row) => ({ ...row, message: parseExactly(row.message.text) })));
      else await printMessages(client, rows);
    });
  return withExamples(withList(command), {
    "convoke find 'quarterly report'": 'the latest messages with this text, in all meetings',
    "convoke find 'quarterly report' --meeting standup-42 --since 2026-03-01T00:00:00Z": 'in one meeting, since a time',
    'convoke find dlv_7f3k9q2m00r3vljl5tg01': 'the message behind a webhook-id',
    'convoke find --meeting standup-42 --seq 9': 'message 9 of a meeting',
  });
}

async function printMessages(client: ConvokeClient, rows: readonly RawFoundMessage[]): Promise<void> {
  if (rows.length === 0) {
    note('No message fits.');
    await noteUnseen(client);
    return;
  }
  const now_ms = wallNow();
  printTable(rows, [
    { title: 'MEETING', text: (row) => row.meeting_id },
    { title: 'SEQ', text: (row) => String(row.seq) },
    { title: 'SENT', text: (row) => ago(row.accepted_at, now_ms) },
    { title: 'FROM', text: (row) => row.from_agent ?? '-' },
    { title: 'PUSHED TO', text: (row) => String(row.deliveries_queued) },
    { title: 'MESSAGE_ID', text: (row) => row.message_id },
    { title: 'MESSAGE', text: (row) => row.message.text, gives_way: true },
  ]);
  const [first, another] = rows;
  if (first !== undefined && another === undefined)
    note(`\`${typed(`trace ${first.message_id}`)}\` shows where it went.`);
}
