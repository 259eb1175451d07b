/** MCP over HTTP. No session is kept from one request to the next, so any node can respond. */
import { createMcpHandler } from '@modelcontextprotocol/server';
import { ConvokeClient } from '@convoke/sdk';
import type { McpCall, McpEndpoint } from '../http/routes/mcp.ts';
import { Caller } from './caller.ts';
import { NextMessages } from './events/next_messages.ts';
import { makeServer } from './server.ts';

/** A name for requests that never leave the process. */
const INSIDE_URL = 'http://inside';

/**
 * The MCP endpoint of the service. Each call gets a server of its own, whose tools call the API with the rights of the
 * caller.
 */
export function makeEndpoint(log: { warn(about: object, text: string): void }): McpEndpoint {
  const messages = new NextMessages();
  const handler = createMcpHandler(
    ({ authInfo }) => {
      const caller = callerOf(authInfo?.extra?.['call'] as McpCall, log);
      return makeServer(() => caller, messages);
    },
    { keepAliveMs: 0, maxSubscriptions: 0 },
  );
  return {
    answer(call) {
      const request = new Request(`${INSIDE_URL}/mcp`, {
        method: 'POST',
        headers: call.headers,
        signal: call.signal,
      });
      const authInfo = { token: '', clientId: '', scopes: [], extra: { call } };
      return handler.fetch(request, { parsedBody: call.body, authInfo });
    },
  };
}

function callerOf(
  { fetch, signal, onAnswered, hasRoom }: McpCall,
  log: { warn(about: object, text: string): void },
): Caller {
  // One attempt only, because the client of the model waits for the result, and the model itself can try again.
  const client = new ConvokeClient({ base_url: INSIDE_URL, fetch, send_attempts_max: 1 });
  const onUnsettled = (error: unknown): void =>
    log.warn({ err: error }, 'a message that an MCP client got could not be settled; it is pushed again');
  return new Caller({ client, signal, onAnswered, hasRoom, onUnsettled });
}
