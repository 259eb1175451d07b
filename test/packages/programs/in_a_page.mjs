/** What a user of the SDK does in a browser page. */
import { ConvokeClient, ConvokeError, serveAgent } from '@convoke/sdk';

/**
 * Calls, pulls, follows the live feed, and serves an agent.
 * @returns the response to a message, and the error for a refusal
 */
export async function useAll({ base_url, api_key, name }) {
  const convoke = new ConvokeClient({ base_url, api_key });
  const agent_ids = ['anna'];
  await convoke.register({ instance_id: name, instance_name: 'A tab', agent_ids, transport: 'pull' });
  await convoke.joinMeeting({ instance_id: name, meeting_id: name, agent_ids });
  await convoke.sendMessage(name, { content: 'Anybody there?' });
  const pulled = [];
  const ending = new AbortController();
  for await (const { message, respond } of convoke.pull(name, { signal: ending.signal })) {
    pulled.push(message.content);
    respond({ status_code: 200 });
    ending.abort();
  }
  const refused = await convoke.heartbeat('nobody').catch((error) => error);
  await convoke.updateInstance(name, { instance_name: 'The same tab' });

  const over = new AbortController();
  const where = { base_url, api_key, instance_id: name, meetings: [name], signal: over.signal };
  const served = serveAgent({ agent_id: 'anna', ...where }, ({ message }) => `You said: ${message.content}`);
  const said = { content: 'Good night' };
  let answer = null;
  const { signal } = over;
  // The response may arrive before the feed opens. Whenever it opens, the program reads the history.
  const { promise: opened, resolve: open } = Promise.withResolvers();
  const events = convoke.events({ meeting_id: name }, { signal, onConnection: open });
  const following = (async () => {
    for await (const event of events) {
      if (event.name !== 'message.accepted') continue;
      const { data } = await convoke.listMessages(name);
      answer = data.find(({ from_agent }) => from_agent === 'anna') ?? null;
      if (answer !== null) return;
    }
  })();
  await opened;
  await convoke.sendMessage(name, said);
  await following;
  over.abort();
  await served;
  await convoke.deleteInstance(name);
  return {
    pulled,
    refused: refused instanceof ConvokeError ? refused.code : String(refused),
    answer: answer?.message.content,
  };
}
