import { randomUUID } from 'node:crypto';
import { setTimeout } from 'node:timers/promises';
import { ConvokeError, type Pulled, type PulledPush } from '@convoke/sdk';
import Type from 'typebox';
import { askedOf } from '../../delivery/runtimes/asked.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { agentIds, expected, madeId, MeetingId } from '../../http/schemas/fields.ts';
import type { Caller } from '../caller.ts';
import { fromChar, Notice, NOTICE, quoted, QuotedMessageSchema } from '../quoted_messages.ts';
import { AgentId, OwnInstanceId } from './meetings.ts';
import { toolOf } from './tool.ts';

/** Many clients wait for a result no longer than a minute. */
const WAIT_S = { default: 30, max: 50 };
/**
 * The most messages in one result. They are few, because no other reader gets a message
 * that is in a result, even if the model reads it much later.
 */
const MESSAGES_MAX = 3;

const { message_id, seq, from_agent, in_reply_to, message, part } = QuotedMessageSchema.properties;

export const waitForMessage = toolOf({
  name: 'wait_for_message',
  title: 'Wait for a message',
  description: `Waits until something is said for you in a meeting that you joined, and gives it to you: the next message of each meeting, in order, and perhaps one that somebody queued again. Call it again for the next one, and again when the time is up and there was none; nothing is lost between two calls. A message that was given to you counts as delivered, and does not come again.`,
  scopes: ['instance'],
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true },
  input: Type.Object(
    {
      agent_id: AgentId,
      instance_id: OwnInstanceId,
      wait_s: Type.Optional(
        Type.Integer({
          minimum: 0,
          maximum: WAIT_S.max,
          default: WAIT_S.default,
          description: `How long to wait, in seconds: ${WAIT_S.default} when absent; 0 asks what is there already.`,
          ...expected(`must be a whole number from 0 to ${WAIT_S.max}`),
        }),
      ),
      rest_of: Type.Optional(
        madeId('To read on in a message that came as a part: its message_id. Then the tool does not wait.'),
      ),
      from_char: fromChar('rest_of'),
    },
    { additionalProperties: false },
  ),
  output: Type.Object({
    notice: Notice,
    messages: Type.Array(
      Type.Object({
        meeting_id: MeetingId,
        message_id,
        seq,
        target_agents: agentIds('The agents of your instance that it is for.'),
        from_agent,
        in_reply_to,
        missed: Type.Optional(
          Type.Integer({
            description:
              'How many messages for you came before this one and were not given to you: read_messages has them.',
          }),
        ),
        message,
        part,
      }),
      { description: 'Empty when nothing was said in that time: call the tool again.' },
    ),
  }),
  async run(caller, { wait_s = WAIT_S.default, rest_of, from_char, ...who }) {
    const instance_id = await caller.instanceOf(who);
    if (rest_of !== undefined)
      return { notice: NOTICE, messages: [await restOf(caller, instance_id, rest_of, from_char)] };
    if (from_char !== undefined) throw invalidField('from_char', 'goes with rest_of');
    const pushes = await pushesOf(caller, instance_id, wait_s);
    if (pushes.length > 0) caller.onAnswered((was_written) => settle(caller, instance_id, pushes, was_written));
    return { notice: NOTICE, messages: pushes.map((push) => wireWaitedFor(push)) };
  },
});

/**
 * Pulls until there is a push or the time is up. While the service has no room for the wait, pulls again after the
 * pause that the service names.
 */
async function pushesOf({ client, signal }: Caller, instance_id: string, wait_s: number): Promise<Pulled['pushes']> {
  const pull_id = randomUUID();
  const ends_at_ms = performance.now() + wait_s * 1_000;
  try {
    for (let left_s = wait_s; ; left_s = Math.max(0, Math.floor((ends_at_ms - performance.now()) / 1_000))) {
      try {
        return (await client.pullOnce(instance_id, { max: MESSAGES_MAX, wait_s: left_s, pull_id }, { signal })).pushes;
      } catch (error) {
        const pause_ms =
          error instanceof ConvokeError && error.code === 'overloaded' ? (error.retry_after_s ?? 1) * 1_000 : null;
        if (pause_ms === null || performance.now() + pause_ms > ends_at_ms) throw error;
        await setTimeout(pause_ms, undefined, { signal });
      }
    }
  } catch (error) {
    // Pushes may be on their way. Otherwise they would hold up their meetings until their deadline, and spend an attempt.
    client.pullOnce(instance_id, { max: 0, wait_s: 0, pull_id }).catch(() => {});
    throw error;
  }
}

/**
 * A message that the instance got, from a place in its text on. A key without the scope `read`, such as that of an
 * invite, has no other way to the rest of a long message.
 */
async function restOf(
  { client, signal }: Caller,
  instance_id: string,
  message_id: string,
  from_char: number | undefined,
) {
  const { data } = await client.listDeliveries({ message_id, instance_id, limit: 1 }, { signal });
  const [delivery] = data;
  if (delivery === undefined) throw new Problem('message_does_not_exist', 'You got no such message lately.');
  return wireWaitedFor(await client.getDeliveryPush(delivery.delivery_id, { signal }), from_char);
}

/**
 * Reports how the pushes ended. When the messages were written to the client, their deliveries count as delivered. When
 * the client was gone, they are pushed again soon. When this process ends before the report, they are pushed again after
 * their deadline.
 */
function settle(
  { client, onUnsettled }: Caller,
  instance_id: string,
  pushes: Pulled['pushes'],
  was_written: boolean,
): void {
  const result = was_written ? { status_code: 200 } : { not_reached: 'the MCP client was gone before its result' };
  const results = pushes.map(({ delivery_id, attempt }) => ({ delivery_id, attempt, ...result }));
  client.pullOnce(instance_id, { results, max: 0, wait_s: 0 }).catch(onUnsettled);
}

function wireWaitedFor({ body, headers }: Pick<PulledPush, 'body' | 'headers'>, from_char?: number) {
  const { meeting_id, message_id, seq, agents, from_agent, in_reply_to, missed, message } = askedOf(body, headers, []);
  return {
    meeting_id,
    message_id,
    seq,
    target_agents: [...agents],
    ...(from_agent !== null && { from_agent }),
    ...(in_reply_to !== null && { in_reply_to }),
    ...(missed > 0 && { missed }),
    ...quoted({ message }, from_char),
  };
}
