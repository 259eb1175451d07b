/**
 * A client of openapi-typescript and openapi-fetch. It is compiled strictly with the generated files, and runs against
 * the service.
 */
import createClient from 'openapi-fetch';
import type { components, paths, webhooks } from './schema.js';

type Push = webhooks['new_message']['post']['requestBody']['content']['application/json'];
type Problem = components['schemas']['Problem'];

const { CONVOKE_URL = '', CONVOKE_API_KEY = '', WEBHOOK_URL = '' } = process.env;
const meeting_id = 'of openapi-fetch';
const instance_id = 'openapi-fetch';

const client = createClient<paths>({
  baseUrl: CONVOKE_URL,
  headers: { authorization: `Bearer ${CONVOKE_API_KEY}` },
});

function answered<Data>({ data, error }: { data?: Data; error?: Problem }): Data {
  if (data === undefined) throw new Error(error?.detail);
  return data;
}

const instance: components['schemas']['RegisteredInstance'] = answered(
  await client.POST('/api/v1/instances/register/', {
    body: { instance_id, instance_name: 'A machine', agent_ids: ['a'], webhook_url: WEBHOOK_URL },
  }),
);
answered(await client.POST('/api/v1/instances/join-meeting/', { body: { instance_id, meeting_id, agent_ids: ['a'] } }));
const sent: components['schemas']['SentMessage'] = answered(
  await client.POST('/api/v1/meetings/{meeting_id}/messages/', {
    params: { path: { meeting_id }, header: { 'idempotency-key': 'once' } },
    body: { message: { content: 'Hello', n: 1 } },
  }),
);
const { data: messages } = answered(
  await client.GET('/api/v1/meetings/{meeting_id}/messages/', { params: { path: { meeting_id } } }),
);
const { error } = await client.GET('/api/v1/instances/{instance_id}/', {
  params: { path: { instance_id: 'nobody' } },
});
const problem: Problem | undefined = error;

/** Fields that every push has: this compiles only if the generated type has them. */
const known: (keyof Push)[] = ['event', 'meeting_id', 'message', 'target_agents', 'timestamp'];
const health: components['schemas']['Health'] = instance.health;
console.log(
  JSON.stringify({
    health,
    seq: sent.seq,
    contents: messages.map(({ message }) => message['content']),
    code: problem?.code,
    known,
  }),
);
