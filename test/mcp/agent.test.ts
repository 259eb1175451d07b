/** A whole agent: a model that only reads texts and calls tools takes part in a meeting. */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { Message, Page } from '@convoke/sdk';
import { connectMcp, type McpClient } from '../support/mcp.ts';
import { messagesPath, type Service, useService } from '../support/service.ts';
import { until } from '../support/wait.ts';

/** The next turn of a model: a tool to call, or null when it has finished. */
type Turn = { tool: string; args: object } | null;

/**
 * A scripted model. It gets the prompt, the list of tools, and the texts of results. When somebody asks it to add
 * numbers, it answers with the sum, until somebody ends the conversation.
 */
class Model {
  readonly #tools: Set<string>;
  readonly #meeting_id: string;
  readonly #agent_id: string;

  constructor(prompt: string, tools: string[]) {
    this.#tools = new Set(tools);
    [this.#meeting_id = '', this.#agent_id = ''] = [...prompt.matchAll(/"([^"]+)"/g)].map(([, text]) => text as string);
  }

  /** @param result the text of the latest result; null at first */
  next(result: string | null): Turn {
    const [agent_id, meeting_id] = [this.#agent_id, this.#meeting_id];
    const listen = this.#call('wait_for_message', { agent_id, wait_s: 20 });
    if (result === null) return this.#call('join_meeting', { meeting_id, agent_id });
    const { messages = [] } = JSON.parse(result) as {
      messages?: { message_id: string; message: { content: string } }[];
    };
    const [received] = messages;
    if (received === undefined) return listen;
    const { content } = received.message;
    if (content === 'That is all.') return null;
    const sum = content.match(/\d+/g)?.reduce((total, number) => total + Number(number), 0);
    return this.#call('reply', {
      meeting_id,
      message_id: received.message_id,
      from_agent: agent_id,
      content: `${sum}`,
    });
  }

  #call(tool: string, args: object): Turn {
    assert.ok(this.#tools.has(tool), tool);
    return { tool, args };
  }
}

/** The loop of every agent: the model chooses a tool, the client calls the tool, the model reads the result. */
async function run(client: McpClient, prompt: string): Promise<void> {
  const model = new Model(prompt, await client.tools());
  let result: string | null = null;
  for (let turn = model.next(null); turn !== null; turn = model.next(result)) {
    const called = await client.call(turn.tool, turn.args);
    assert.ok(!called.is_error, called.text);
    result = called.text;
  }
}

describe('an agent with nothing but MCP', () => {
  const service = useService();
  before(() => service.endOpenMode());
  const historyOf = async (of: Service, meeting_id: string) =>
    (await of.get<Page<Message>>(messagesPath(meeting_id))).body.data;

  test('joins, waits, and answers each question; its answers are in the meeting, each to its question', async (t) => {
    const { token } = await service.createKey({ scopes: ['instance'] });
    const client = await connectMcp(t, service, token);
    const { messages } = await client.client.getPrompt({
      name: 'take_part',
      arguments: { meeting_id: 'sums', agent_id: 'adder' },
    });
    const agent = run(client, (messages[0]!.content as { text: string }).text);
    await until(
      'the agent to join',
      () => service.get<{ agent_count?: number }>('/api/v1/meetings/sums/'),
      ({ body }) => body.agent_count === 1,
    );
    const questions = [];
    for (const content of ['What is 2 and 3?', 'And 40 and 2?'])
      questions.push(await service.send('sums', { content }));
    const answers = await until(
      'both answers',
      async () => (await historyOf(service, 'sums')).filter(({ from_agent }) => from_agent === 'adder'),
      (found) => found.length === 2,
    );
    await service.send('sums', { content: 'That is all.' });
    await agent;
    assert.deepEqual(
      answers.map(({ message, in_reply_to, hops }) => [message, in_reply_to, hops]),
      [
        [{ content: '5' }, questions[0]?.message_id, 1],
        [{ content: '42' }, questions[1]?.message_id, 1],
      ],
    );
  });
});
