/**
 * An app of Dify, as Dify's published API describes it (its service API, /info and /chat-messages). Tests cannot run
 * Dify itself: it needs containers, and is in no registry of packages.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

/** The kinds of apps: chatbot, chatflow, agent, workflow, text generator. */
export type DifyMode = 'chat' | 'advanced-chat' | 'agent-chat' | 'workflow' | 'completion';

export interface DifyApp {
  name: string;
  mode: DifyMode;
  /** The key of the app. */
  key: string;
  answer: (query: string) => string;
}

interface ChatMessage {
  inputs?: unknown;
  query?: unknown;
  response_mode?: unknown;
  user?: unknown;
  conversation_id?: unknown;
}

/** An error, which the app writes in Dify's format. */
class Refused extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export class DifyServer implements AsyncDisposable {
  readonly #app: DifyApp;
  readonly #server = createServer((request, response) => {
    const path = `${request.method} ${request.url}`;
    const said = (async () => {
      if (request.headers.authorization !== `Bearer ${this.#app.key}`)
        throw new Refused(401, 'unauthorized', 'Access token is invalid');
      if (path === 'GET /v1/info') return this.#sendInfo(response);
      if (path === 'POST /v1/chat-messages') return this.#chat((await json(request)) as ChatMessage, response);
      throw new Refused(404, 'not_found', 'The requested URL was not found on the server.');
    })();
    said.catch((error: Error) => {
      const { status, code } = error instanceof Refused ? error : { status: 400, code: 'bad_request' };
      send(response, { code, message: error.message, status }, status);
    });
  });
  /** The messages for which the app has run, with their users. */
  readonly runs: { query: string; user: string }[] = [];

  private constructor(app: DifyApp) {
    this.#app = app;
  }

  static async start(app: DifyApp): Promise<DifyServer> {
    const server = new DifyServer(app);
    await once(server.#server.listen(0, '127.0.0.1'), 'listening');
    return server;
  }

  /** The base URL of the API; it ends with `/v1`. */
  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close().closeAllConnections();
    await once(this.#server, 'close');
  }

  #sendInfo(response: ServerResponse): void {
    const { name, mode } = this.#app;
    send(response, { name, description: '', tags: [], mode, author_name: 'Dify' });
  }

  #chat(body: ChatMessage, response: ServerResponse): void {
    const { mode, answer: answerTo } = this.#app;
    if (mode === 'workflow' || mode === 'completion')
      throw new Refused(400, 'not_chat_app', 'Please check if your app mode matches the right API route.');
    const { query, user } = checked(body, mode);
    this.runs.push({ query, user });
    const conversation_id = randomUUID();
    const about = { task_id: randomUUID(), message_id: randomUUID(), conversation_id, created_at: 1705395332 };
    const answer = answerTo(query);
    const metadata = { usage: { total_tokens: 50, latency: 2.5 }, retriever_resources: [] };
    if (body.response_mode !== 'streaming')
      return send(response, { event: 'message', id: about.message_id, mode, answer, metadata, ...about });
    response.setHeader('content-type', 'text/event-stream; charset=utf-8');
    const write = (event: object): void => void response.write(`data: ${JSON.stringify({ ...event, ...about })}\n\n`);
    const piece = mode === 'agent-chat' ? 'agent_message' : 'message';
    response.write('event: ping\n\n');
    if (mode === 'agent-chat')
      write({ event: 'agent_thought', position: 1, thought: answer, tool: '', observation: '' });
    for (const word of answer.split(/(?<= )/)) write({ event: piece, answer: word });
    write({ event: 'message_end', metadata });
    response.end();
  }
}

function checked({ inputs, query, response_mode, user, conversation_id = '' }: ChatMessage, mode: DifyMode) {
  const refuse = (message: string) => new Refused(400, 'invalid_param', message);
  if (typeof user !== 'string' || user === '') throw refuse('Arg user must be provided.');
  if (typeof inputs !== 'object' || inputs === null) throw refuse('inputs is required');
  if (typeof query !== 'string' || query === '') throw refuse('query is required');
  if (response_mode !== 'blocking' && response_mode !== 'streaming')
    throw refuse('response_mode is not a valid choice');
  if (conversation_id !== '') throw new Refused(404, 'not_found', 'Conversation Not Exists.');
  if (mode === 'agent-chat' && response_mode === 'blocking')
    throw refuse('Agent Chat App does not support blocking mode');
  return { query, user };
}

function send(response: ServerResponse, body: object, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
