import { adviceFor } from '../../domain/advice.ts';
import type { Instance } from '../../domain/instance.ts';
import { pushBodyHead } from '../../domain/push_body.ts';
import { targetOf } from './target.ts';
import { pushOf } from './push.ts';
import type { PushResult } from './transport.ts';
import type { WebhookTransport } from './webhook_transport.ts';

export interface Diagnosis extends Omit<PushResult, 'detail' | 'retry_after'> {
  success: boolean;
  advice: string;
}

/**
 * Makes one signed push to the stored URL, like a real one, over a connection of its own. Nothing is recorded.
 *
 * @param id the id of the delivery and of the message
 */
export async function diagnose(
  transport: Pick<WebhookTransport, 'push'>,
  instance: Instance,
  id: string,
  wall_ms: number,
  user_agent: string,
): Promise<Diagnosis> {
  const created_at = new Date(wall_ms).toISOString();
  const message = { content: 'This is a test of your webhook by Convoke.', created_at };
  const push = pushOf(
    {
      delivery_id: `dlv_${id}`,
      message_id: `msg_${id}`,
      seq: 0,
      instance_id: instance.instance_id,
      body_head: pushBodyHead('webhook-test', JSON.stringify(message)),
      target_agents: JSON.stringify(instance.agent_ids),
      timestamp: created_at,
      said: null,
    },
    targetOf(instance),
    1,
    wall_ms,
    user_agent,
  );
  const {
    retry_after: _,
    detail,
    ...result
  } = await transport.push({
    ...push,
    headers: { ...push.headers, 'convoke-test': 'true' },
    fresh_connection: true,
  });
  return { success: result.outcome === 'ok', ...result, advice: adviceFor({ ...result, detail }) };
}
