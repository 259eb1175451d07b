/**
 * The runtime `dify` with an app as Dify's published API describes it. This shows what Convoke sends and what the
 * meeting gets. It does not prove that a real Dify works, which runs in containers.
 */
import { type DifyMode, DifyServer } from '../support/dify_server.ts';
import { converse, type Row } from './conversation.ts';
import type { Proof } from './main.ts';

const KEY = 'app-the-key';
const STAND_IN = 'a server written from the API of Dify, no Dify';

const APPS = [
  { mode: 'chat', response_mode: 'blocking', came_back: 'answer' },
  { mode: 'agent-chat', response_mode: 'streaming', came_back: 'agent_message, then message_end' },
] as const satisfies { mode: DifyMode; response_mode: string; came_back: string }[];

export async function proveDify(): Promise<Proof> {
  const rows: Row[] = [];
  for (const { mode, response_mode, came_back } of APPS) {
    await using app = await DifyServer.start({ name: 'Sky', mode, key: KEY, answer: (query) => `I heard: ${query}` });
    const shown = await converse({
      runtime: `dify, ${mode}`,
      version: STAND_IN,
      sent: `POST /v1/chat-messages, ${response_mode}`,
      came_back,
      agent_id: 'lena',
      to: app.url,
      headers: { authorization: `Bearer ${KEY}` },
      registration: { runtime: 'dify', runtime_options: { response_mode } },
      runsOf: (content) => app.runs.filter(({ query }) => query.includes(content)).length,
    });
    rows.push(...shown);
  }
  return {
    runtime: `UNPROVEN against a real Dify: ${STAND_IN}`,
    shown: ['by webhook and by connect: one run for each message, and its answer in the meeting'],
    rows,
  };
}
