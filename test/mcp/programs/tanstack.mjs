/** Takes part in a meeting with the MCP client of TanStack AI, and prints what the tools answered. */
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, url, token, agent_id] = process.argv.slice(2);
const load = async (name) =>
  import(pathToFileURL(createRequire(`${directory}/`).resolve(name)).href);
const { createMCPClient } = await load('@tanstack/ai-mcp');

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
const { messages } = await call('wait_for_message', { agent_id, wait_s: 50 });
const [heard] = messages;
await call('reply', { meeting_id, message_id: heard.message_id, from_agent: agent_id, content: `I heard: ${heard.message.content}` });
await client.close();
console.log(`tools ${tools.length}`);
