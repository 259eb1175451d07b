/** Receives pushes with the SDK: `WEBHOOK_SECRET=whsec_… node examples/receiver.ts`. */
import { createServer } from 'node:http';
import { createReceiver } from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';

const secret = process.env.WEBHOOK_SECRET;
if (!secret) throw new Error('set WEBHOOK_SECRET to the webhook_secret of the instance');
const receive = createReceiver({
  secret,
  onPush({ meeting_id, seq, target_agents, message }) {
    // Start the agents here and return: Convoke waits 5 seconds for the response.
    console.log(`${meeting_id} #${seq} for ${target_agents.join(', ')}: ${JSON.stringify(message)}`);
  },
});
const server = createServer(toNodeListener(receive)).listen(Number(process.env.PORT ?? 9000), '127.0.0.1', () => {
  console.log('listening on', server.address());
});
