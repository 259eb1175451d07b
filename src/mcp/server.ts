import { type CallToolResult, ProtocolError, ProtocolErrorCode, Server } from '@modelcontextprotocol/server';
import { ConvokeError } from '@convoke/sdk';
import { invalidField, Problem } from '../domain/problem.ts';
import { VERSION } from '../version.ts';
import type { Caller } from './caller.ts';
import {
  ListParams,
  LISTED_EVENTS,
  paramsOf,
  PollParams,
  StreamParams,
  SubscribeParams,
  UnsubscribeParams,
} from './events/event_types.ts';
import { eventFailure } from './events/failures.ts';
import type { NextMessages } from './events/next_messages.ts';
import { pollEvents } from './events/poll.ts';
import { streamEvents } from './events/stream.ts';
import { subscribe, unsubscribe } from './events/subscriptions.ts';
import { INSTRUCTIONS, promptOf, PROMPTS } from './prompts.ts';
import { type OwnWords, refusalInWords } from './refusal.ts';
import { listResources, readResource, RESOURCE_TEMPLATES } from './resources.ts';
import { TOOLS } from './tools/tools.ts';

/** Clients from before the final version of the extension look for `events` beside the other capabilities. */
const EVENTS = { events: {}, extensions: { 'io.modelcontextprotocol/events': {} } };
const CAPABILITIES = { tools: {}, resources: {}, prompts: {}, ...EVENTS };

/** A request of a client. */
export interface AskedBy {
  id: string | number;
  /** Aborted when the client cancels the request. */
  signal: AbortSignal;
}

/**
 * Handles the messages of one client: over HTTP the messages of one request, on stdio all messages of the process.
 *
 * @param callerOf returns the caller of a request
 * @param messages the messages that the streams of all servers of the process share
 */
export function makeServer(callerOf: (asked_by: AskedBy) => Caller, messages: NextMessages): Server {
  const server = new Server(
    { name: 'convoke', title: 'Convoke', version: VERSION },
    { capabilities: CAPABILITIES, instructions: INSTRUCTIONS },
  );
  server.setRequestHandler('tools/list', async (_request, { mcpReq }) => ({
    tools: await offered(callerOf(mcpReq)),
  }));
  server.setRequestHandler('tools/call', ({ params }, { mcpReq }) =>
    callTool(callerOf(mcpReq).within(params._meta), params.name, params.arguments ?? {}),
  );
  server.setRequestHandler('resources/list', ({ params }, { mcpReq }) =>
    refusing(listResources(callerOf(mcpReq), params?.cursor)),
  );
  server.setRequestHandler('resources/templates/list', async () => ({ resourceTemplates: RESOURCE_TEMPLATES }));
  server.setRequestHandler('resources/read', ({ params }, { mcpReq }) =>
    refusing(readResource(callerOf(mcpReq), params.uri)),
  );
  server.setRequestHandler('prompts/list', async () => ({ prompts: [...PROMPTS] }));
  server.setRequestHandler('prompts/get', async ({ params }) => promptOf(params.name, params.arguments));
  offerEvents(server, callerOf, messages);
  return server;
}

function offerEvents(server: Server, callerOf: (asked_by: AskedBy) => Caller, messages: NextMessages): void {
  server.setRequestHandler('events/list', { params: paramsOf(ListParams) }, async () => ({
    resultType: 'complete',
    events: [...LISTED_EVENTS],
  }));
  server.setRequestHandler('events/poll', { params: paramsOf(PollParams) }, (params, { mcpReq }) =>
    inEventWords(pollEvents(callerOf(mcpReq), params)),
  );
  server.setRequestHandler('events/subscribe', { params: paramsOf(SubscribeParams) }, (params, { mcpReq }) =>
    inEventWords(subscribe(callerOf(mcpReq), params)),
  );
  server.setRequestHandler('events/unsubscribe', { params: paramsOf(UnsubscribeParams) }, (params, { mcpReq }) =>
    inEventWords(unsubscribe(callerOf(mcpReq), params)),
  );
  server.setRequestHandler('events/stream', { params: paramsOf(StreamParams) }, (params, { mcpReq }) =>
    streamEvents(callerOf(mcpReq), params, { id: mcpReq.id, notify: mcpReq.notify, messages }),
  );
}

async function inEventWords<Result>(result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (error) {
    throw eventFailure(error);
  }
}

/**
 * The tools that the key permits. A model should not see tools that the service would refuse.
 *
 * @throws ProtocolError without a key: an empty list would not say what is missing
 */
async function offered(caller: Caller) {
  const { scopes, state } = await caller.session();
  if (state === 'signed_out')
    throw new ProtocolError(
      ProtocolErrorCode.InvalidRequest,
      'api_key_missing: the service needs a key. Give it to `convoke mcp` as CONVOKE_API_KEY.',
    );
  const may = (needed: readonly string[]): boolean =>
    [...needed, 'admin'].some((each) => scopes.includes(each as never));
  return [...TOOLS.values()].filter((tool) => may(tool.scopes)).map(({ listed }) => listed);
}

/** A failure within a tool becomes a result, so that the model can read it and do better. */
async function callTool(caller: Caller, name: string, given: unknown): Promise<CallToolResult> {
  const tool = TOOLS.get(name);
  if (tool === undefined) {
    throw new ProtocolError(ProtocolErrorCode.InvalidParams, `There is no tool ${JSON.stringify(name)}.`);
  }
  try {
    return await tool.call(caller, given);
  } catch (error) {
    return { content: [{ type: 'text', text: wordsOf(error, given, tool.words) }], isError: true };
  }
}

/**
 * @param given the arguments of the tool
 * @throws the error, when it is no refusal
 */
function wordsOf(error: unknown, given: unknown, words: OwnWords): string {
  if (error instanceof ConvokeError || error instanceof Problem) return refusalInWords(error, words);
  // The SDK refuses an id that cannot be part of a path, such as ".", before it asks the service.
  const dots = Object.entries(given as object).find(([, value]) => value === '.' || value === '..');
  if (error instanceof TypeError && dots !== undefined)
    return refusalInWords(invalidField(dots[0], `cannot be ${JSON.stringify(dots[1])}`));
  throw error;
}

/** A refused resource is an error of the protocol, because resources have no results for refusals. */
async function refusing<Result>(result: Promise<Result>): Promise<Result> {
  try {
    return await result;
  } catch (error) {
    if (!(error instanceof ConvokeError)) throw error;
    throw new ProtocolError(ProtocolErrorCode.InvalidRequest, refusalInWords(error));
  }
}
