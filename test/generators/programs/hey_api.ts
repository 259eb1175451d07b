/** A client of @hey-api/openapi-ts. It is compiled strictly with the generated files, and runs against the service. */
import { client } from './generated/client.gen.js';
import {
  getInstance,
  type Health,
  joinMeeting,
  listMessages,
  type NewMessageWebhookPayload,
  type Problem,
  register,
  type RegisteredInstance,
  sendMessage,
  type SentMessage,
} from './generated/index.js';

const { CONVOKE_URL = '', CONVOKE_API_KEY = '', WEBHOOK_URL = '' } = process.env;
const meeting_id = 'of hey-api';
const instance_id = 'hey-api';

client.setConfig({ baseUrl: CONVOKE_URL, auth: CONVOKE_API_KEY });

function answered<Data>({ data, error }: { data?: Data; error?: Problem }): Data {
  if (data === undefined) throw new Error(error?.detail);
  return data;
}

const instance: RegisteredInstance = answered(
  await register({
    body: { instance_id, instance_name: 'A machine', agent_ids: ['a'], webhook_url: WEBHOOK_URL },
  }),
);
answered(await joinMeeting({ body: { instance_id, meeting_id, agent_ids: ['a'] } }));
const sent: SentMessage = answered(
  await sendMessage({
    path: { meeting_id },
    headers: { 'idempotency-key': 'once' },
    body: { message: { content: 'Hello', n: 1 } },
  }),
);
const { data: messages } = answered(await listMessages({ path: { meeting_id } }));
const { error } = await getInstance({ path: { instance_id: 'nobody' } });
const problem: Problem | undefined = error;

/** Fields that every push has: this compiles only if the generated type has them. */
const known: (keyof NewMessageWebhookPayload)[] = ['event', 'meeting_id', 'message', 'target_agents', 'timestamp'];
const health: Health = instance.health;
console.log(
  JSON.stringify({
    health,
    seq: sent.seq,
    contents: messages.map(({ message }) => message['content']),
    code: problem?.code,
    known,
  }),
);
