/**
 * The test for every runtime that answers in a meeting: one message makes one run and one reply, by webhook and by
 * `convoke connect`.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Message, RegisterInput, SentMessage } from '@convoke/sdk';
import { start } from '../support/command_line.ts';
import { messagesPath, Service } from '../support/service.ts';
import { until } from '../support/wait.ts';

/** How often to wait; each wait takes as long as that of a test. */
const LOOKS_MAX = 8;
/** How long a turn may take. The service repeats a turn that takes longer, and then the agent runs twice. */
const TIMEOUT_S = 600;

/** A line of the table in docs/runtimes.md. */
export interface Row {
  runtime: string;
  version: string;
  way: 'webhook' | 'connect';
  sent: string;
  came_back: string;
  runs: number;
  /** The answer in the meeting. */
  reply: string;
}

export interface Subject extends Pick<Row, 'runtime' | 'version' | 'sent' | 'came_back'> {
  agent_id: string;
  /** The address of the runtime. */
  to: string;
  headers?: Record<string, string>;
  /** Headers that `convoke connect` must add, and that a webhook does not need. */
  headers_of_connect?: Record<string, string>;
  registration: Pick<RegisterInput, 'runtime' | 'runtime_options' | 'replies' | 'webhook_secret'>;
  /** Whether webhook-test runs the agent, because the runtime has no other request with which to test it. */
  is_run_by_test?: true;
  /** How often the agent has run for a message with this text. */
  runsOf: (content: string) => number;
}

/** Puts the agent into a meeting in both ways, sends it a message, and waits for its answer. */
export async function converse(subject: Subject, content = 'What is the weather like?'): Promise<Row[]> {
  return [await byWebhook(subject, `${content} (by webhook)`), await byConnect(subject, `${content} (by connect)`)];
}

async function byWebhook(subject: Subject, content: string): Promise<Row> {
  const { agent_id, to, headers = {}, registration } = subject;
  const instance = {
    webhook_url: to,
    webhook_headers: headers,
    agent_ids: [agent_id],
    timeout_s: TIMEOUT_S,
    ...registration,
  };
  return withService(async (service) => {
    const { instance_id } = await service.register(instance);
    const runs_before = subject.runsOf('');
    const tested = await service.post<{ success: boolean }>('/api/v1/instances/webhook-test/', { instance_id });
    assert.equal(tested.body.success, true, tested.text);
    const runs_by_test = subject.is_run_by_test ? 1 : 0;
    assert.equal(subject.runsOf(''), runs_before + runs_by_test, 'webhook-test runs no agent where it need not');
    await service.join('m', instance_id, [agent_id]);
    return answered(service, subject, 'webhook', content);
  });
}

async function byConnect(subject: Subject, content: string): Promise<Row> {
  const { agent_id, to, headers_of_connect, headers = headers_of_connect ?? {}, registration } = subject;
  const options = Object.entries(registration.runtime_options ?? {}).flatMap(([name, value]) => [
    '--option',
    `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  ]);
  const given = Object.entries(headers).flatMap(([name, value]) => ['--header', `${name}: ${value}`]);
  const who = ['--agent', agent_id, '--meeting', 'm', '--to', to, '--runtime', registration.runtime as string];
  const limit = ['--timeout', String(TIMEOUT_S), ...(registration.replies ? ['--replies'] : [])];
  return withService(async (service) => {
    const connect = start(['connect', ...who, ...options, ...given, ...limit, '--url', service.url]);
    const ended = once(connect, 'exit');
    let lines = '';
    for (const stream of [connect.stdout!, connect.stderr!])
      stream.on('data', (chunk: Buffer) => (lines += chunk.toString()));
    try {
      await until(
        'the connection',
        () => lines,
        (text) => text.includes('takes part in'),
      );
      return await answered(service, subject, 'connect', content);
    } finally {
      connect.kill('SIGTERM');
      await ended;
    }
  });
}

/** Starts a service, runs, and ends the service. Node 22, on which `npm test` uses this, cannot parse `await using`. */
async function withService<Result>(run: (service: Service) => Promise<Result>): Promise<Result> {
  const service = new Service();
  await service.start();
  try {
    return await run(service);
  } finally {
    await service.close();
  }
}

async function answered(service: Service, subject: Subject, way: Row['way'], content: string): Promise<Row> {
  const { runtime, version, sent, came_back, agent_id } = subject;
  const message = await service.send('m', { content });
  const delivery = await pollUntil(() => service.settled(message));
  assert.equal(delivery.state, 'delivered', JSON.stringify(delivery.attempts));
  const reply = await pollUntil(() => replyTo(service, message));
  assert.equal(reply.from_agent, agent_id, JSON.stringify(reply));
  const runs = subject.runsOf(content);
  assert.equal(runs, 1, 'the agent runs once');
  return { runtime, version, way, sent, came_back, runs, reply: String(reply.message['content']) };
}

/** Waits for the answer to a message. Some runtimes answer only after the delivery counts as delivered. */
async function replyTo(service: Service, { message_id }: SentMessage): Promise<Message> {
  const found = await until(
    'the answer',
    async () => (await service.get<{ data: Message[] }>(messagesPath('m'))).body.data,
    (data) => data.some(({ in_reply_to }) => in_reply_to === message_id),
  );
  return found.find(({ in_reply_to }) => in_reply_to === message_id)!;
}

/**
 * Calls `look` until it succeeds: the first turn of a runtime that has just started takes minutes on a busy machine.
 */
export async function pollUntil<T>(look: () => Promise<T>, looks_max = LOOKS_MAX): Promise<T> {
  for (let looks = 1; looks < looks_max; looks++) {
    try {
      return await look();
    } catch {
      // The look failed; this tries again.
    }
  }
  return look();
}

/** The rows as Markdown. */
export function tableOf(rows: readonly Row[], date: string): string {
  const lines = rows.map(({ runtime, version, way, sent, came_back, runs, reply }) => {
    const said = reply.replaceAll(/\s+/g, ' ');
    return [runtime, version, way, sent, came_back, String(runs), said.length > 60 ? `${said.slice(0, 60)}…` : said];
  });
  const head = ['runtime', 'against', 'way', 'sent', 'came back', 'runs', 'said in the meeting'];
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [`On ${date}:`, '', line(head), line(head.map(() => '---')), ...lines.map(line)].join('\n');
}
