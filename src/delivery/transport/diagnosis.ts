import { adviceFor } from '../../domain/advice.ts';
import type { Instance } from '../../domain/instance.ts';
import { pushBodyHead } from '../../domain/push_body.ts';
import { OUTCOMES } from '../../domain/outcome.ts';
import { type RuntimeSettings, runtimeOf, TIMEOUT_S } from '../../domain/runtimes/runtimes.ts';
import { askedOf } from '../runtimes/asked.ts';
import { exchangedOf } from '../runtimes/exchanged.ts';
import { signatureOf } from '../runtimes/signature_of.ts';
import { targetOf } from './target.ts';
import { pushOf } from './push.ts';
import type { Push, PushResult } from './transport.ts';
import type { WebhookTransport } from './webhook_transport.ts';

export interface Diagnosis extends Omit<PushResult, 'detail' | 'retry_after' | 'kept_body' | 'answered'> {
  success: boolean;
  advice: string;
}

/** How long a test may take. The caller waits on a connection that is closed after a minute without a byte. */
const TEST_S_MAX = 30;

/**
 * Makes one signed push to the stored URL, as for a delivery, over a connection of its own. A runtime with a cheaper
 * request (`probeOf`) gets that request instead. The test has as much time as an attempt, but at most TEST_S_MAX
 * seconds, and for a probe at most TIMEOUT_S seconds. Nothing is recorded.
 *
 * @param id the id of the delivery and of the message
 */
export async function diagnose(
  transport: Pick<WebhookTransport, 'pushFor'>,
  instance: Instance,
  id: string,
  wall_ms: number,
  user_agent: string,
): Promise<Diagnosis> {
  const push = samplePush(instance, id, wall_ms, user_agent);
  const { runtime } = instance;
  const request = runtime === null ? push : requestTo(push, instance, runtime);
  const has_probe = runtime !== null && runtimeOf(runtime).probeOf !== null;
  const timeout_ms = Math.min(instance.timeout_s, has_probe ? TIMEOUT_S : TEST_S_MAX) * 1000;
  const result = (await transport.pushFor({ ...request, fresh_connection: true }, timeout_ms)) ?? GIVEN_UP;
  const { retry_after: _, detail, kept_body: __, ...shown } = result;
  const has_responded = result.status_code !== null && OUTCOMES[result.outcome].reached;
  if (runtime === null || !has_responded) {
    // When a push failed before its first stage, no stage shows the detail, so the advice has it.
    const what = result.status_code === null ? `Failed: ${detail}. ` : '';
    return { success: result.outcome === 'ok', ...shown, advice: `${what}${adviceFor(shown)}` };
  }
  if (result.kept_body !== undefined && 'lost' in result.kept_body) {
    const { lost, is_late = false } = result.kept_body;
    return {
      success: !is_late,
      ...shown,
      advice: `${result.status_code}: it is there. Nothing more was checked: ${lost}.`,
    };
  }
  const { body } = exchangedOf(result);
  const response = { status_code: result.status_code as number, body };
  const { is_ok, advice } = runtimeOf(runtime).readProbe(response, runtime.options);
  return { success: is_ok, ...shown, advice };
}

const GIVEN_UP: PushResult = {
  outcome: 'unreachable',
  status_code: null,
  detail: 'the test was given up: the instance moved or was deleted, or the service is stopping',
  duration_ms: 0,
  stages: [],
  response_excerpt: '',
  retry_after: null,
};

function samplePush(instance: Instance, id: string, wall_ms: number, user_agent: string): Push {
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
      origin: null,
      trace: null,
    },
    targetOf(instance),
    1,
    wall_ms,
    user_agent,
  );
  return { ...push, headers: { ...push.headers, 'convoke-test': 'true' } };
}

/** The cheapest request of the runtime; when the runtime has none, the request of a push of a delivery. */
function requestTo(push: Push, instance: Instance, runtime: RuntimeSettings): Push {
  const { webhook_headers, webhook_url, agent_ids } = instance;
  const { probeOf, requestOf, asksEach } = runtimeOf(runtime);
  const { options } = runtime;
  const asked = askedOf(Buffer.from(push.body).toString(), push.headers, []);
  const agents = asksEach(options) ? asked.agents.slice(0, 1) : asked.agents;
  const request = probeOf?.(options, webhook_url, agent_ids) ?? requestOf({ ...asked, agents }, options, webhook_url);
  const { url, method, headers, body } = request;
  return {
    instance_id: push.instance_id,
    url,
    method,
    headers: {
      ...headers,
      ...signatureOf(push, targetOf(instance), request),
      'user-agent': push.headers['user-agent'] ?? '',
      'convoke-test': 'true',
      ...webhook_headers,
    },
    body: Buffer.from(body),
    success_statuses: '2xx',
    keeps_body: true,
  };
}
