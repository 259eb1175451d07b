import { type ConvokeClient, type ExplainQuery, rawJson, type RawJson } from '@convoke/sdk';
import { Command } from 'commander';
import { isUtf8 } from 'node:buffer';
import { buffer } from 'node:stream/consumers';
import { parseExactly } from '../../../domain/exact_json.ts';
import { wallNow } from '../../../wall_clock.ts';
import { type ApiOptions, clientFor, collect, wholeNumber, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { isTerminal, note, plain, print, printJson, printTable } from '../terminal.ts';
import { ago, counted, receiversInWords } from '../format.ts';
import { lastArgument } from '../shell_words.ts';
import { typed } from '../command_name.ts';
import { whyInWords } from './explain.ts';

/** The most instances that a send names because they get the message later. */
const LATER_MAX = 5;

interface SendOptions extends ApiOptions {
  message?: string;
  to?: string[];
  from?: string;
  replyTo?: string;
  expiresIn?: number;
  idempotencyKey?: string;
}

export function sendCommand(): Command {
  const command = new Command('send')
    .description('send a message in a meeting')
    .argument('<meeting_id>')
    .argument('[text]', 'sent as {"content": text, "created_at": now}; with --idempotency-key without the time')
    .option('--message <json>', 'a whole message instead of a text; - reads it from standard input')
    .option('--to <agent_id>', 'push only to this agent; repeat it for more; everybody when absent', collect)
    .option('--from <agent_id>', 'the agent that says it, and does not get it itself; a person when absent')
    .option('--reply-to <message_id>', 'the message of this meeting that the new one answers')
    .option('--expires-in <seconds>', 'do not push it after this time', wholeNumber(1, Number.MAX_SAFE_INTEGER))
    .option('--idempotency-key <key>', 'sending again with the same key stores the message once')
    .action(async (meeting_id: string, text: string | undefined, options: SendOptions) => {
      const client = clientFor(options);
      const sent = await client.sendMessage(meeting_id, await messageOf(text, options), {
        target_agents: options.to,
        from_agent: options.from,
        in_reply_to: options.replyTo,
        expires_in_s: options.expiresIn,
        idempotency_key: options.idempotencyKey,
      });
      if (options.json) {
        printJson(sent);
        return;
      }
      const { message_id, seq, deliveries_queued } = sent;
      const stored = `${message_id} is message ${seq} of ${meeting_id}`;
      if (deliveries_queued > 0) {
        print(`${stored}, on its way to ${counted(deliveries_queued, 'instance')}`);
        if (!isTerminal()) return;
        const query = { target_agents: options.to, from_agent: options.from, in_reply_to: options.replyTo };
        // The message is sent. When the key may not read the meeting, the command prints nothing more.
        const later = await whoIsLater(client, meeting_id, query).catch(() => []);
        for (const line of later) note(line);
      } else {
        print(`${stored}; nobody gets it`);
        const who = options.to === undefined ? 'Nobody' : `No agent of that name (${options.to.join(', ')})`;
        note(`${who} is there to receive it: \`${typed(`meetings show ${lastArgument(meeting_id)}`)}\` lists who is.`);
      }
    });
  return withExamples(withApi(command), {
    "convoke send standup-42 'Good morning'": 'to everybody in the meeting',
    "convoke send standup-42 'Your turn' --to anna-planner": 'to one agent',
    "convoke send standup-42 'Done' --from anna-planner --reply-to msg_7f3k9q2m00r3vljl5tg00 --expires-in 60":
      'an answer of an agent, valid for a minute',
    'convoke send standup-42 --message - < message.json': 'any JSON object, exactly as it is written',
  });
}

/** For each of the first instances that get the message later: a line that says why. Makes one request, of one page. */
export async function whoIsLater(client: ConvokeClient, meeting_id: string, query: ExplainQuery): Promise<string[]> {
  const { data } = await client.explain(meeting_id, { ...query, limit: 500 });
  const later = data.filter(({ pushed }) => pushed === 'later');
  const lines = later.slice(0, LATER_MAX).map((row) => `${plain(row.instance_id)} gets it later: ${whyInWords(row)}`);
  if (later.length <= LATER_MAX) return lines;
  return [
    ...lines,
    `${later.length - LATER_MAX} more get it later: \`${typed(`explain ${lastArgument(meeting_id)}`)}\` lists them`,
  ];
}

async function messageOf(
  text: string | undefined,
  { message, idempotencyKey }: Pick<SendOptions, 'message' | 'idempotencyKey'>,
): Promise<object | RawJson> {
  if ((text === undefined) === (message === undefined)) {
    throw new CommandFailure(
      EXIT.usage,
      `give either a text or --message, as in: ${typed('send standup-42 "Good morning"')}`,
    );
  }
  // A send that is repeated with its key must have the same message, so the message has no time.
  if (message === undefined && idempotencyKey !== undefined) return { content: text };
  if (message === undefined) return { content: text, created_at: new Date(wallNow()).toISOString() };
  try {
    return rawJson(message === '-' ? await standardInput() : message);
  } catch (error) {
    if (error instanceof CommandFailure) throw error;
    throw new CommandFailure(EXIT.usage, `--message must be a JSON object: ${(error as Error).message}`);
  }
}

/** Refuses other encodings: with them, each letter that is not ASCII would be sent as a replacement character. */
async function standardInput(): Promise<string> {
  const bytes = await buffer(process.stdin);
  if (!isUtf8(bytes)) throw new CommandFailure(EXIT.usage, 'standard input is not UTF-8: convert it first, with iconv');
  return new TextDecoder().decode(bytes);
}

interface HistoryOptions extends ApiOptions {
  limit: number;
  after?: number;
  before?: number;
}

export function messagesCommand(): Command {
  const seq = wholeNumber(0, Number.MAX_SAFE_INTEGER);
  const command = new Command('messages')
    .description('the latest messages of a meeting')
    .argument('<meeting_id>')
    .option('--after <seq>', 'messages after this number', seq)
    .option('--before <seq>', 'the messages just before this number', seq)
    .option('--limit <n>', 'how many to print', wholeNumber(1, 500), 50)
    .action(async (meeting_id: string, { after, before, limit, ...options }: HistoryOptions) => {
      const query = { after_seq: after, before_seq: before, limit };
      const { data, has_more } = await clientFor(options).listRawMessages(meeting_id, query);
      if (options.json) {
        printJson(data.map((row) => ({ ...row, message: parseExactly(row.message.text) })));
        return;
      }
      const now_ms = wallNow();
      printTable(data, [
        { title: 'SEQ', text: (row) => String(row.seq) },
        { title: 'SENT', text: (row) => ago(row.accepted_at, now_ms) },
        { title: 'FROM', text: (row) => row.from_agent ?? '-' },
        { title: 'TO', text: (row) => receiversInWords(row.target_agents) },
        { title: 'MESSAGE', text: (row) => row.message.text, gives_way: true },
      ]);
      if (has_more) note(moreOf(after === undefined ? 'before' : 'after', data));
    });
  return withExamples(withApi(command), {
    'convoke messages standup-42': 'the latest 50',
    'convoke messages standup-42 --after 120 --json': 'the messages after 120, for a program',
  });
}

function moreOf(direction: 'after' | 'before', data: readonly { seq: number }[]): string {
  const edge = direction === 'after' ? data.at(-1) : data[0];
  return `There are more: --${direction} ${edge?.seq ?? 0} prints them.`;
}
