import Type from 'typebox';
import { WAKES } from '../../domain/agents_to_notify.ts';
import { MAY_BECOME, PUSHED, WHY_NOT_NOW } from '../../domain/explanation.ts';
import { agentId, agentIds, AgentIds, enumOf, InstanceId, instanceId, madeId, named, nullable } from './fields.ts';
import { InstanceName } from './instances.ts';
import { cursor, limit } from './page.ts';

const WhyNotNow = enumOf(
  WHY_NOT_NOW,
  named(
    'WhyNotNow',
    'Why a message would not be pushed: the instance has `left`, it is `inactive`, its webhook is `switched_off`, the message is for none of its agents (`nobody_named`), its only agent says it (`is_sender`), it does not `wake` this membership, or the loop guard would stop it (`hop_limit`, `pair_limit`). Or why it would be pushed later: the meeting is `paused`, the machine does not pull (`connection`), the instance backs off (`back_off`).',
  ),
);

export const ExplanationSchema = Type.Object(
  {
    instance_id: InstanceId,
    instance_name: InstanceName,
    agent_ids: AgentIds,
    wake: Type.Optional(enumOf(WAKES, { description: 'Which messages for these agents are pushed; absent: all.' })),
    pushed: enumOf(PUSHED, {
      description:
        'Whether it would be pushed: `now`, after the deliveries that already wait in its lane; `later`; or `no`.',
    }),
    why: nullable(WhyNotNow, 'Why it would not be pushed now; null when it would.'),
    target_agents: agentIds('The agents to notify; empty when there would be no delivery.'),
    may_become: Type.Optional(
      Type.Array(enumOf(MAY_BECOME, { description: 'A possibility.' }), {
        description:
          'What else may become of the message, because of the rules of the membership. If the message has to wait, a newer message may arrive before the machine is back (`superseded`), or the message may become too old (`max_age`). When other messages wait before this one, the loop guard may stop it if they are pushed (`pair_limit`), or let it through if the rules cancel them (`pushed`). Absent when none of these can happen.',
      }),
    ),
  },
  named('Explanation', 'The prediction for a message that is sent now, for one instance of a meeting.'),
);

/** The agents are in the URL, percent-encoded, and must fit into the head of a request together with its headers. */
const TARGETS_MAX = 100;
const TARGETS_BYTES_MAX = 4_000;

export const ExplainQuery = Type.Object(
  {
    target_agents: Type.Optional(
      agentIds(
        `An agent that the message is for; repeat the parameter for more agents, at most ${TARGETS_MAX}. Absent: all agents of the meeting but from_agent.`,
        TARGETS_MAX,
        TARGETS_BYTES_MAX,
      ),
    ),
    from_agent: Type.Optional(agentId('The agent that says it; absent: a person, or a program that is no agent.')),
    in_reply_to: Type.Optional(madeId('The message_id, in the same meeting, that it answers.')),
    instance_id: Type.Optional(instanceId('Only the membership of this instance.')),
    limit,
    cursor,
  },
  { additionalProperties: false },
);
