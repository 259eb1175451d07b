/** Takes part in a meeting with the MCP client of TanStack AI, and prints the results of the tools. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [directory, url, token, agent_id] = process.argv.slice(2);
const module = join(directory, 'node_modules/@tanstack/ai-mcp/dist/esm/index.js');
const { createMCPClient } = await import(pathToFileURL(module).href);

const client = await createMCPClient({
  transport: { type: 'http', url, headers: { authorization: `Bearer ${token}` } },
});
const tools = await client.tools();
const call = async (name, args) => {
  const { structuredContent } = await client.callTool(name, args);
  return structuredContent;
};
const meeting_id = 'm';
await call('join_meeting', { meeting_id, agent_id });
console.log('joined');
let received;
while (received === undefined) [received] = (await call('wait_for_message', { agent_id, wait_s: 50 })).messages;
await call('reply', {
  meeting_id,
  message_id: received.message_id,
  from_agent: agent_id,
  content: `I received: ${received.message.content}`,
});
await client.close();
console.log(`tools ${tools.length}`);
