/** Predicts for each membership whether a message that is sent now is pushed: see docs/explain.md. */
import { agentsToNotify } from './agents_to_notify.ts';
import { CATCH_UP_REASONS, isTooOld, type MemberRules } from './catch_up.ts';
import { type GuardLimits, guardReason, type GuardReason, limitsPairs, mayBeOver } from './guard_rule.ts';

/** `later`: the message waits for something first. */
export const PUSHED = ['now', 'later', 'no'] as const;
export type Pushed = (typeof PUSHED)[number];

/**
 * Why a message is not pushed. With the last two reasons, the loop guard cancels the delivery. With the other reasons
 * there is no delivery.
 */
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

/**
 * What else may happen to a message while messages wait, because of the rules of its membership. The rules may cancel
 * the message itself: `superseded`, `max_age`. The rules may also cancel earlier messages that still wait, and the loop
 * guard does not count cancelled messages. So the prediction for the guard may be wrong:
 *
 * - `pair_limit`: the guard stops the message after all, because the rules cancel fewer messages than predicted.
 * - `pushed`: the guard lets the message pass after all, because the rules cancel more messages than predicted.
 */
export const MAY_BECOME = [...CATCH_UP_REASONS, 'pair_limit', 'pushed'] as const;
export type MayBecome = (typeof MAY_BECOME)[number];

/** A membership, and the reasons for which a message to it may wait. */
export interface Candidate extends MemberRules {
  agent_ids: readonly string[];
  left_at: number | null;
  is_active: boolean;
  webhook_enabled: boolean;
  /** The instance pulls, and its machine is not connected. */
  unconnected: boolean;
  backing_off: boolean;
}

/** The message to explain; it is never sent. */
export interface Imagined {
  /** Null or empty: a broadcast. */
  targets: ReadonlySet<string> | null;
  from_agent: string | null;
  hops: number;
  accepted_at: number;
}

export interface Explained {
  pushed: Pushed;
  /** Null when the message is pushed now. */
  why: WhyNotNow | null;
  /** The agents to notify; none when there is no delivery. */
  target_agents: string[];
  /** What else may happen to the message, because of the rules of the membership. */
  may_become: MayBecome[];
}

/** An earlier message of an agent to the agents of an instance. */
interface Before {
  from_agent: string;
  target_agents: readonly string[];
  accepted_at: number;
  /** How long ago the message was accepted, as the rules count it. */
  age_ms: number;
  hops: number;
  /** Whether the message is still in its lane. Then the guard judges it before the message to explain. */
  is_unjudged: boolean;
  /**
   * Whether the message is still in its lane and no attempt has reached a receiver. Then the rules may cancel the
   * message.
   */
  may_be_left_out: boolean;
}

/** The agents to notify, chosen in the same way as for a message that is sent. */
export function notifiedOf(candidate: Candidate, { targets, from_agent }: Imagined): string[] {
  return isRecipient(candidate) ? agentsToNotify(candidate.agent_ids, targets, from_agent, candidate.wake) : [];
}

/** Whether the result depends on earlier messages of agents. If not, the caller need not read these messages. */
export function isGuarded({ from_agent }: Imagined, limits: GuardLimits): boolean {
  return from_agent !== null && limitsPairs(limits);
}

/**
 * @param before the messages of agents to the instance in this meeting, the oldest first, without cancelled messages
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
  const may_become = cancelledBy(candidate);
  // Only messages of the same sender count.
  const sent = before.filter(({ from_agent }) => from_agent === message.from_agent);
  const stopped = stoppedBy(
    message,
    target_agents,
    limits,
    sent.filter((each) => !isLeftOut(each, candidate)),
  );
  // The membership has rules, and messages wait: nobody knows which of the waiting messages will be pushed.
  if (may_become.length > 0 && sent.some(({ may_be_left_out }) => may_be_left_out)) {
    const changed = stopped === null ? mayBeStopped : mayBePushed;
    if (changed(message, target_agents, limits, sent)) may_become.push(stopped === null ? 'pair_limit' : 'pushed');
  }
  if (stopped !== null) return { pushed: 'no', why: stopped, target_agents, may_become };
  const why = paused ? 'paused' : candidate.unconnected ? 'connection' : candidate.backing_off ? 'back_off' : null;
  return { pushed: why === null ? 'now' : 'later', why, target_agents, may_become };
}

/** How the rules of a membership may cancel a message that has to wait. */
function cancelledBy({ catch_up, max_age_s }: MemberRules): MayBecome[] {
  const superseded = catch_up === 'latest' ? (['superseded'] as const) : [];
  return max_age_s > 0 ? [...superseded, 'max_age'] : [...superseded];
}

/**
 * Whether the rules probably cancel an earlier message before the guard judges the message to explain. They cancel an
 * earlier message that waits and is too old. With `latest`, they cancel every message that waits for a machine that is
 * away.
 */
function isLeftOut(sent: Before, candidate: Candidate): boolean {
  if (!sent.may_be_left_out) return false;
  if (isTooOld(sent.age_ms, candidate.max_age_s)) return true;
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

/** Judges the earlier messages as the guard will, in their order, and then the message to explain. */
function stoppedBy(
  message: Imagined,
  target_agents: readonly string[],
  limits: GuardLimits,
  sent: readonly Before[],
): GuardReason | null {
  const { from_agent, hops, accepted_at } = message;
  if (from_agent === null) return null;
  // All messages are of one sender, so the other agent identifies the pair.
  const went = new Map<string, number[]>();
  const timesOf = (agents: readonly string[]): number[][] => agents.map((agent_id) => went.get(agent_id) ?? []);
  for (const each of sent) {
    if (each.is_unjudged && guardReason(each, timesOf(each.target_agents), limits) !== null) continue;
    for (const agent_id of each.target_agents) {
      const times = went.get(agent_id);
      if (times === undefined) went.set(agent_id, [each.accepted_at]);
      else times.push(each.accepted_at);
    }
  }
  return guardReason({ hops, accepted_at }, timesOf(target_agents), limits);
}

/** Whether the guard lets the message pass if the rules cancel the messages that wait before it. */
function mayBePushed(
  message: Imagined,
  target_agents: readonly string[],
  limits: GuardLimits,
  sent: readonly Before[],
): boolean {
  const pushed = sent.filter(({ may_be_left_out }) => !may_be_left_out);
  return stoppedBy(message, target_agents, limits, pushed) === null;
}

/** Whether the guard stops the message if the rules cancel only some of the messages that wait before it. */
function mayBeStopped(
  { accepted_at }: Imagined,
  target_agents: readonly string[],
  limits: GuardLimits,
  sent: readonly Before[],
): boolean {
  const to_agents = new Map<string, Before[]>(target_agents.map((agent_id) => [agent_id, []]));
  for (const each of sent) for (const agent_id of each.target_agents) to_agents.get(agent_id)?.push(each);
  return [...to_agents.values()].some((to_agent) => mayBeOver(to_agent, accepted_at, limits));
}
