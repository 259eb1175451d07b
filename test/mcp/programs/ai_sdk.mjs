/** Takes part in a meeting with the MCP client of the AI SDK, and prints the results of the tools. */
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, url, token, agent_id] = process.argv.slice(2);
const module = createRequire(`${directory}/`).resolve('@ai-sdk/mcp');
const { createMCPClient } = await import(pathToFileURL(module).href);

const client = await createMCPClient({
  transport: { type: 'http', url, headers: { authorization: `Bearer ${token}` } },
});
const tools = await client.tools();
const call = async (name, args) => {
  const { structuredContent } = await tools[name].execute(args, { toolCallId: name, messages: [] });
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
console.log(`tools ${Object.keys(tools).length}`);
