/** A program that uses the SDK. The compiler checks it with the strictest settings. */
import {
  all,
  ConvokeClient,
  ConvokeError,
  createReceiver,
  type Instance,
  type Push,
  rawJson,
  verify,
} from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import { createServer } from 'node:http';

const convoke = new ConvokeClient({ base_url: 'http://127.0.0.1:8080' });

export async function names(): Promise<string[]> {
  const instances: Instance[] = [];
  for await (const instance of all((page) => convoke.listInstances({ health: 'down', ...page })))
    instances.push(instance);
  return instances.map(({ instance_name }) => instance_name);
}

export async function say(content: string): Promise<number> {
  try {
    return (await convoke.sendMessage('standup-42', { content }, { target_agents: ['anna-planner'] })).seq;
  } catch (error) {
    if (error instanceof ConvokeError && error.code === 'overloaded') return 0;
    throw error;
  }
}

const onPush = (push: Push): void => console.log(push.meeting_id, push.target_agents, push.message['content']);
createServer(toNodeListener(createReceiver({ secret: 'whsec_…', onPush }))).listen(9000);

export const read = (body: Uint8Array, headers: Headers): Promise<Push> => verify(body, headers, 'whsec_…');

export async function pull(signal: AbortSignal): Promise<void> {
  for await (const push of convoke.pull('laptop-anna', { signal, concurrency: 4 })) {
    onPush(push);
    push.respond({ status_code: 200, body: 'thanks' });
  }
}

export const exact = rawJson('{"id": 12345678901234567890}');

// @ts-expect-error The types are found, and are not `any`.
export const wrong: number = convoke.base_url;
// @ts-expect-error There is no such field.
void convoke.joinMeeting({ instance: 'laptop-anna' });
