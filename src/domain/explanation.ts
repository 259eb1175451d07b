/** Predicts for each membership whether a message that is sent now is pushed: see docs/explain.md. */
import { agentsToNotify } from './agents_to_notify.ts';
import { type CatchUpReason, isTooOld, type MemberRules } from './catch_up.ts';
import { type GuardLimits, guardReason, limitsPairs, pairsOf } from './guard_rule.ts';

/** `later`: the message waits for something first. */
export const PUSHED = ['now', 'later', 'no'] as const;
export type Pushed = (typeof PUSHED)[number];

/** Why a message is not pushed: there is no delivery, or the loop guard cancels it. */
const NOT_PUSHED = [
  'left',
  'inactive',
  'switched_off',
  'nobody_named',
  'is_sender',
  'wake',
  'hop_limit',
  'pair_limit',
] as const;

/** Why a message is pushed later. */
const WAITS = ['paused', 'connection', 'back_off'] as const;

export const WHY_NOT_NOW = [...NOT_PUSHED, ...WAITS] as const;
export type WhyNotNow = (typeof WHY_NOT_NOW)[number];

/** A membership, and what its instance may wait for. */
export interface Candidate extends MemberRules {
  agent_ids: readonly string[];
  left_at: number | null;
  is_active: boolean;
  webhook_enabled: boolean;
  /** The instance pulls, and its machine is not connected. */
  unconnected: boolean;
  backing_off: boolean;
}

/** The message to explain: nobody sends it. */
export interface Imagined {
  /** Null or empty: a broadcast. */
  targets: ReadonlySet<string> | null;
  from_agent: string | null;
  hops: number;
  accepted_at: number;
}

export interface Explained {
  pushed: Pushed;
  /** Null when it is pushed now. */
  why: WhyNotNow | null;
  /** The agents to notify; none when there is no delivery. */
  target_agents: string[];
  /** Why it may be cancelled by the rules of its membership, if it has to wait. */
  may_become: CatchUpReason[];
}

/** A message of an agent to the agents of an instance. */
interface Before {
  from_agent: string;
  target_agents: readonly string[];
  accepted_at: number;
  hops: number;
  /** Still in its lane: the guard judges it before the message to explain. */
  is_unjudged: boolean;
}

/** The agents to notify. This is the selection of a send, for one membership. */
export function notifiedOf(candidate: Candidate, { targets, from_agent }: Imagined): string[] {
  return isRecipient(candidate) ? agentsToNotify(candidate.agent_ids, targets, from_agent, candidate.wake) : [];
}

/** Whether the result depends on earlier messages of agents. If not, the caller need not read them. */
export function isGuarded({ from_agent }: Imagined, limits: GuardLimits): boolean {
  return from_agent !== null && limitsPairs(limits);
}

/**
 * @param before the messages of agents to the instance in this meeting, the oldest first, without the cancelled ones
 */
export function explained(
  candidate: Candidate,
  message: Imagined,
  { paused, limits }: { paused: boolean; limits: GuardLimits },
  before: readonly Before[],
): Explained {
  const target_agents = notifiedOf(candidate, message);
  if (target_agents.length === 0) {
    return { pushed: 'no', why: whyNobody(candidate, message), target_agents, may_become: [] };
  }
  const may_become = mayBecome(candidate);
  const stays = before.filter((sent) => !sent.is_unjudged || !isLeftOut(sent, candidate, message));
  const stopped = stoppedBy(message, target_agents, limits, stays);
  if (stopped !== null) return { pushed: 'no', why: stopped, target_agents, may_become };
  const why = paused ? 'paused' : candidate.unconnected ? 'connection' : candidate.backing_off ? 'back_off' : null;
  return { pushed: why === null ? 'now' : 'later', why, target_agents, may_become };
}

function mayBecome({ catch_up, max_age_s }: MemberRules): CatchUpReason[] {
  const superseded = catch_up === 'latest' ? (['superseded'] as const) : [];
  return max_age_s > 0 ? [...superseded, 'max_age'] : [...superseded];
}

/** Whether an earlier message that still waits is cancelled before the message to explain is judged. */
function isLeftOut(sent: Before, candidate: Candidate, { accepted_at }: Imagined): boolean {
  if (isTooOld(sent.accepted_at, candidate.max_age_s, accepted_at)) return true;
  return candidate.catch_up === 'latest' && (candidate.unconnected || candidate.backing_off);
}

function isRecipient({ left_at, is_active, webhook_enabled }: Candidate): boolean {
  return left_at === null && is_active && webhook_enabled;
}

function whyNobody(candidate: Candidate, { targets, from_agent }: Imagined): WhyNotNow {
  if (candidate.left_at !== null) return 'left';
  if (!candidate.is_active) return 'inactive';
  if (!candidate.webhook_enabled) return 'switched_off';
  if (agentsToNotify(candidate.agent_ids, targets, from_agent).length > 0) return 'wake';
  const is_broadcast = targets === null || targets.size === 0;
  // A broadcast leaves out only the agent that sends it.
  return is_broadcast && candidate.agent_ids.length > 0 ? 'is_sender' : 'nobody_named';
}

/** Runs the guard on all messages before this one in its lane, and then on this one. */
function stoppedBy(message: Imagined, target_agents: string[], limits: GuardLimits, before: readonly Before[]) {
  const { from_agent, hops, accepted_at } = message;
  if (from_agent === null) return null;
  const went = new Map<string, number[]>();
  const timesOf = (pairs: string[]): number[][] => pairs.map((pair) => went.get(pair) ?? []);
  for (const sent of before) {
    const pairs = pairsOf(sent.from_agent, sent.target_agents);
    if (sent.is_unjudged && guardReason(sent, timesOf(pairs), limits) !== null) continue;
    for (const pair of pairs) {
      const times = went.get(pair);
      if (times === undefined) went.set(pair, [sent.accepted_at]);
      else times.push(sent.accepted_at);
    }
  }
  return guardReason({ hops, accepted_at }, timesOf(pairsOf(from_agent, target_agents)), limits);
}
