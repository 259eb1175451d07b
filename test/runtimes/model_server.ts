/** A model server on loopback that speaks OpenAI's chat completions: it waits for the configured time, then responds. */
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
}

export interface ModelServer {
  /** Ends with `/v1`. */
  url: string;
  /** In the order in which the calls arrived. */
  turns: readonly Turn[];
  /** How long each call takes that arrives from now on. */
  turn_ms: number;
  /** How many of the next calls are answered with 500. */
  failures: number;
  close(): Promise<void>;
}

interface Completion {
  messages: unknown[];
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
        const number = turns.push({ prompt: JSON.stringify(messages) });
        await pause(model.turn_ms);
        if (model.failures > 0) {
          model.failures--;
          response.statusCode = 500;
          sendJson(response, { error: { message: 'the model has no memory left' } });
        } else if (stream) sendStream(response, number);
        else sendJson(response, completion('chat.completion', number, { message: said(number) }));
      })
      .catch((error: Error) => response.destroy(error));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const model: ModelServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    turns,
    turn_ms: 0,
    failures: 0,
    async close() {
      server.close().closeAllConnections();
      await once(server, 'close');
    },
  };
  return model;
}

function said(number: number): object {
  return { role: 'assistant', content: `Answer ${number}` };
}

/** Each has an id of its own: an agent may know its messages by it. */
function completion(object: string, number: number, choice: object, finish_reason: string | null = 'stop'): object {
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

/** As server-sent events: the text in one piece, then the end. */
function sendStream(response: ServerResponse, number: number): void {
  response.setHeader('content-type', 'text/event-stream');
  const write = (event: object): void => void response.write(`data: ${JSON.stringify(event)}\n\n`);
  write(completion('chat.completion.chunk', number, { delta: said(number) }, null));
  write(completion('chat.completion.chunk', number, { delta: {} }));
  response.end('data: [DONE]\n\n');
}
