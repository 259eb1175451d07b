/**
 * How an attempt ended. The list follows the stages of an attempt; each outcome except `ok` names the stage that
 * failed. `reached` says whether the receiver may have seen the push. See the table in docs/delivery.md.
 */
export const OUTCOMES = {
  blocked: { reached: false, says: 'address not allowed' },
  dns_failed: { reached: false, says: 'host not found' },
  connect_refused: { reached: false, says: 'connection refused' },
  connect_timeout: { reached: false, says: 'no connection in time' },
  unreachable: { reached: false, says: 'not reachable' },
  tls_failed: { reached: false, says: 'TLS failed' },
  timeout: { reached: true, says: 'no response in time' },
  broken_response: { reached: true, says: 'the response was cut off or was not HTTP' },
  bad_status: { reached: true, says: 'answered with a status that is no success' },
  gone: { reached: true, says: 'answered 410 Gone: pushing was turned off' },
  not_200: { reached: true, says: 'answered with a 2xx status that is not 200' },
  ok: { reached: true, says: 'answered with a success status' },
} as const satisfies Record<string, { reached: boolean; says: string }>;

export type Outcome = keyof typeof OUTCOMES;

/** An attempt, as it is stored and returned. */
export interface Attempt {
  /** Starts at 1. */
  attempt: number;
  started_at: string;
  duration_ms: number;
  outcome: Outcome;
  /** Null when no status line arrived. */
  status_code: number | null;
  /** In words, for people; empty after a success. */
  detail: string;
  /** The first characters of the response body. */
  response_excerpt: string;
  /**
   * When each agent has a request of its own: the agents that have answered, in this attempt or in an earlier one. A
   * retry asks only the other agents.
   */
  answered_agents?: string[];
}

/** The agents that have answered by now; none for most deliveries. */
export function answeredAgents(attempts: readonly Attempt[]): readonly string[] {
  return attempts.at(-1)?.answered_agents ?? [];
}

/**
 * The first characters of a response body. Does not cut a pair of UTF-16 units in two, because a store would refuse
 * half of a pair.
 */
export function excerptOfText(text: string, chars_max: number): string {
  const cut = text.slice(0, chars_max);
  return cut.isWellFormed() ? cut : cut.slice(0, -1);
}

/** The outcome for a status: only 200 is a success, unless the instance allows any 2xx. */
export function outcomeOfStatus(status_code: number, success_statuses: SuccessStatuses): Outcome {
  if (status_code === 200) return 'ok';
  if (status_code >= 200 && status_code < 300) return success_statuses === '2xx' ? 'ok' : 'not_200';
  if (status_code === 410) return 'gone';
  return 'bad_status';
}

/** The statuses that count as a success for an instance. */
export type SuccessStatuses = '200' | '2xx';
