/** A model server on loopback with OpenAI's chat completions: it waits for the configured time, then responds. */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { setTimeout as pause } from 'node:timers/promises';

export const MODEL = 'scripted';

/** One call of the model. */
export interface Turn {
  /** The messages of the call as JSON. */
  prompt: string;
  /** The text of all messages after the latest one of the model. */
  last: string;
  /** Whether this is the first call of a run. Later calls bring the result of a tool. */
  is_first: boolean;
}

/** What the model does in a call: it answers with a text, or it calls a tool of the runtime. */
export type Step = { text: string } | { tool: string; arguments: object };

export interface ModelServer {
  /** The base URL; it ends with `/v1`. */
  url: string;
  /** The calls in the order in which they arrived. */
  turns: readonly Turn[];
  /** How long each later call takes. */
  turn_ms: number;
  /** How many of the next calls get a 500. */
  failures: number;
  /** Decides what the model does in each later call. */
  stepFor: (turn: Turn, number: number) => Step;
  close(): Promise<void>;
}

interface ChatMessage {
  role: string;
  content: string | { text?: string }[] | null;
}

interface Completion {
  messages: ChatMessage[];
  stream?: boolean;
}

export async function startModelServer(): Promise<ModelServer> {
  const turns: Turn[] = [];
  const server = createServer((request, response) => {
    if (request.method === 'GET') {
      sendJson(response, { object: 'list', data: [{ id: MODEL, object: 'model' }] });
      return;
    }
    json(request)
      .then(async (body) => {
        const { messages, stream = false } = body as Completion;
        const turn = turnOf(messages);
        const number = turns.push(turn);
        const choice = choiceOf(model.stepFor(turn, number), number);
        await pause(model.turn_ms);
        if (model.failures > 0) {
          model.failures--;
          response.statusCode = 500;
          sendJson(response, { error: { message: 'the model has no memory left' } });
        } else if (stream) sendStream(response, number, choice);
        else sendJson(response, completion('chat.completion', number, { message: choice }, endOf(choice)));
      })
      .catch((error: Error) => response.destroy(error));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const model: ModelServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    turns,
    turn_ms: 0,
    failures: 0,
    stepFor: (_, number) => ({ text: `Answer ${number}` }),
    async close() {
      server.close().closeAllConnections();
      await once(server, 'close');
    },
  };
  return model;
}

/** Reads a call. Everything after the last message of the model is new; some runtimes add notes after the message. */
function turnOf(messages: ChatMessage[]): Turn {
  const since = messages.slice(messages.findLastIndex(({ role }) => role === 'assistant') + 1);
  const last = since.map(({ content }) => textOf(content)).join('\n');
  return { prompt: JSON.stringify(messages), last, is_first: !since.some(({ role }) => role === 'tool') };
}

function textOf(content: ChatMessage['content']): string {
  if (content === null || typeof content === 'string') return content ?? '';
  return content.map(({ text }) => text ?? '').join('');
}

interface Choice {
  role: 'assistant';
  content: string | null;
  tool_calls?: object[];
}

function choiceOf(step: Step, number: number): Choice {
  if ('text' in step) return { role: 'assistant', content: step.text };
  const called = { name: step.tool, arguments: JSON.stringify(step.arguments) };
  return {
    role: 'assistant',
    content: null,
    tool_calls: [{ index: 0, id: `call_${number}`, type: 'function', function: called }],
  };
}

function endOf({ tool_calls }: Choice): string {
  return tool_calls === undefined ? 'stop' : 'tool_calls';
}

/** Makes a completion with a new id, because an agent may recognise messages by their ids. */
function completion(object: string, number: number, choice: object, finish_reason: string | null): object {
  return {
    id: `chatcmpl-${number}`,
    object,
    created: 0,
    model: MODEL,
    choices: [{ index: 0, ...choice, finish_reason }],
    usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
  };
}

function sendJson(response: ServerResponse, body: object): void {
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(body));
}

/** Responds with server-sent events: the whole answer in one event, then the end. */
function sendStream(response: ServerResponse, number: number, choice: Choice): void {
  response.setHeader('content-type', 'text/event-stream');
  const write = (event: object): void => void response.write(`data: ${JSON.stringify(event)}\n\n`);
  write(completion('chat.completion.chunk', number, { delta: choice }, null));
  write(completion('chat.completion.chunk', number, { delta: {} }, endOf(choice)));
  response.end('data: [DONE]\n\n');
}
