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
        const text = `Answer ${turns.push({ prompt: JSON.stringify(messages) })}`;
        await pause(model.turn_ms);
        if (stream) sendStream(response, text);
        else sendJson(response, completion('chat.completion', { message: { role: 'assistant', content: text } }));
      })
      .catch((error: Error) => response.destroy(error));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const model: ModelServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    turns,
    turn_ms: 0,
    async close() {
      server.close().closeAllConnections();
      await once(server, 'close');
    },
  };
  return model;
}

function completion(object: string, choice: object, finish_reason: string | null = 'stop'): object {
  return {
    id: 'chatcmpl-scripted',
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
function sendStream(response: ServerResponse, text: string): void {
  response.setHeader('content-type', 'text/event-stream');
  const write = (event: object): void => void response.write(`data: ${JSON.stringify(event)}\n\n`);
  write(completion('chat.completion.chunk', { delta: { role: 'assistant', content: text } }, null));
  write(completion('chat.completion.chunk', { delta: {} }));
  response.end('data: [DONE]\n\n');
}
