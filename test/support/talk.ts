/** Agents that answer every message, on a node without HTTP. */
import type { TestContext } from 'node:test';
import type { EngineSettings } from '../../src/delivery/engine.ts';
import type { Store } from '../../src/store/store.ts';
import { startNode, type TestNode } from './node.ts';

export interface Talk {
  node: TestNode;
  /** How many messages of agents were pushed, by sending and receiving agent. */
  received: Map<string, number>;
  /** How many messages agents sent, or tried to send. */
  said: () => number;
}

export interface AgentOf {
  agent: string;
  instance_id: string;
  meeting_id: string;
  /** What the agent answers: meeting, sender, and targets (null for everybody). Null when the agent never answers. */
  answers: { meeting_id: string; from_agent: string; to: string[] | null } | null;
}

/**
 * Each agent whose `answers` is not null answers every message that it gets, `after_ms` later. After `said_max` answers
 * nobody answers, so that a conversation without an end stops.
 */
export async function talk(
  t: TestContext,
  agents: AgentOf[],
  {
    after_ms = 100,
    said_max = 300,
    store,
    ...settings
  }: Partial<EngineSettings> & { after_ms?: number; said_max?: number; store?: Store } = {},
): Promise<Talk> {
  const node = await startNode(t, { settings, ...(store !== undefined && { store }) });
  const received = new Map<string, number>();
  let said = 0;
  for (const instance_id of new Set(agents.map((each) => each.instance_id))) await node.register(instance_id);
  for (const { agent, instance_id, meeting_id } of agents)
    await node.store.meetings.join(meeting_id, instance_id, [agent], node.clock.wall());
  node.transport.onPush = ({ instance_id, meeting_id, message_id, headers }) => {
    const me = agents.find((each) => each.instance_id === instance_id && each.meeting_id === meeting_id)!;
    const from = headers['convoke-from-agent'];
    if (from !== undefined) {
      const pair = `${from} ${me.agent} ${meeting_id}`;
      received.set(pair, (received.get(pair) ?? 0) + 1);
    }
    if (me.answers === null || ++said > said_max) return;
    const { answers } = me;
    const in_reply_to = answers.meeting_id === meeting_id ? { in_reply_to: message_id } : {};
    node.clock.after(after_ms, () => {
      const to = answers.to === null ? {} : { target_agents: answers.to };
      void node.send(answers.meeting_id, { from_agent: answers.from_agent, ...in_reply_to, ...to }).catch(() => {});
    });
  };
  return { node, received, said: () => said };
}

/** An agent on its own instance, which answers in the same meeting. */
export const answering = (agent: string, to: string[] | null, meeting_id = 'm'): AgentOf => ({
  agent,
  instance_id: `i-${agent}`,
  meeting_id,
  answers: { meeting_id, from_agent: agent, to },
});

/** A number of agents that answer everybody. */
export const crowd = (agents: number): AgentOf[] => Array.from({ length: agents }, (_, k) => answering(`a${k}`, null));

export const total = ({ received }: Talk): number => [...received.values()].reduce((sum, count) => sum + count, 0);
