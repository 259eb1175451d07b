/**
 * The rule of the loop guard: whether agents that answer each other may continue, or are stopped. The guard judges only
 * messages of agents. It judges a delivery to several agents as a whole: when one pair is over its limit, none of the
 * agents gets the message. So no pair ever exceeds its limit.
 */
/** The largest values that the limits of a meeting may have. */
export const HOP_LIMIT_MAX = 10_000;
export const PAIR_LIMIT_MAX = 1_000;
export const PAIR_WINDOW_S_MAX = 3_600;

/**
 * To find the earlier messages of a pair, the guard reads the latest deliveries of the receiving instance: at most
 * `rows_max` deliveries, whose lists of agents have at most `bytes_max` bytes together. It ignores older deliveries. A
 * list has up to 40 KB, so without the second limit one read takes 80 MB.
 */
export const GUARD_READ = { rows_max: 2_000, bytes_max: 4 << 20 };

export interface GuardLimits {
  /** The most messages of agents in a row; 0: any number. */
  hop_limit: number;
  /** The most messages from one agent to another within the window; 0: any number. */
  pair_limit: number;
  /** In seconds; 0: no window, and so no limit of pairs. */
  pair_window_s: number;
}

/** The limits that hold for a meeting. Where its own limit is null, the limit of the service holds. */
export function limitsInForce(
  own: { [Name in keyof GuardLimits]: number | null },
  { hop_limit, pair_limit, pair_window_s }: GuardLimits,
): GuardLimits {
  return {
    hop_limit: own.hop_limit ?? hop_limit,
    pair_limit: own.pair_limit ?? pair_limit,
    pair_window_s: own.pair_window_s ?? pair_window_s,
  };
}

export type GuardReason = 'hop_limit' | 'pair_limit';

/**
 * Whether a message may be delivered: null, or the reason why not.
 *
 * @param accepted_at when the message was accepted, in milliseconds of the wall clock
 * @param pairs a list for each agent that gets the message: when the delivered messages of this sender to that agent
 * were accepted, the newest last. A list needs only the newest `pair_limit` of these messages
 */
export function guardReason(
  { hops, accepted_at }: { hops: number; accepted_at: number },
  pairs: Iterable<readonly number[]>,
  limits: GuardLimits,
): GuardReason | null {
  if (limits.hop_limit > 0 && hops > limits.hop_limit) return 'hop_limit';
  for (const times of pairs) if (isOver(times, times.length, accepted_at, limits)) return 'pair_limit';
  return null;
}

/**
 * Whether the limit of a pair may stop a message, when nobody knows which of the earlier messages are delivered.
 *
 * @param sent the earlier messages of the pair, the newest last; the rules may cancel those with `may_be_left_out`
 */
export function mayBeOver(
  sent: readonly { accepted_at: number; may_be_left_out: boolean }[],
  accepted_at: number,
  limits: GuardLimits,
): boolean {
  const times = sent.map((each) => each.accepted_at);
  // Assumes of each message, from the newest on, that it is the last delivered message, and that all messages before it
  // are delivered too. With this assumption, the most messages are within the window.
  for (let count = sent.length; count > 0; count--) {
    if (isOver(times, count, accepted_at, limits)) return true;
    if (sent[count - 1]?.may_be_left_out !== true) return false;
  }
  return false;
}

/** Names a pair for each agent that gets a message. A line feed separates the two ids, because no id contains one. */
export function pairsOf(from_agent: string, target_agents: readonly string[]): string[] {
  return target_agents.map((agent) => `${from_agent}\n${agent}`);
}

/** Whether pairs have a limit. */
export function limitsPairs({ pair_limit, pair_window_s }: GuardLimits): boolean {
  return pair_limit > 0 && pair_window_s > 0;
}

/**
 * Whether a pair used up its limit within one window. Then the pair is silent until a window has passed since its last
 * delivered message. The result depends only on delivered messages, so a node can compute the same result from the
 * store after a restart.
 *
 * @param count only the oldest `count` of the times are considered
 */
function isOver(times: readonly number[], count: number, at: number, limits: GuardLimits): boolean {
  const { pair_limit, pair_window_s } = limits;
  if (!limitsPairs(limits) || count < pair_limit) return false;
  const window_ms = pair_window_s * 1_000;
  const first = times[count - pair_limit] as number;
  const last = times[count - 1] as number;
  // Uses absolute values, so that a clock that was set back silences a pair for no longer than a window.
  return Math.abs(last - first) < window_ms && Math.abs(at - last) < window_ms;
}
