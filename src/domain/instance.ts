import type { Outcome, SuccessStatuses } from './outcome.ts';
import type { Earlier } from './rotation.ts';
import type { RuntimeSettings } from './runtimes/runtimes.ts';

export const HEALTH = ['unknown', 'up', 'failing', 'down'] as const;
export type Health = (typeof HEALTH)[number];

/** How messages reach the machine of an instance: the service POSTs them to it, or the machine asks for them. */
export const TRANSPORTS = ['webhook', 'pull'] as const;
export type TransportName = (typeof TRANSPORTS)[number];

/** How long a machine that pulls has for the result of a push, when its registration does not say it. */
export const ACK_TIMEOUT_S = 30;
export const ACK_TIMEOUT_S_MAX = 600;

/** How long a subscription of MCP Events lasts unless it is renewed. */
export const LEASE_S = { min: 60, max: 86_400, default: 3_600 };

/** The connection of a machine that pulls. The node that delivers to the instance sees it and records it. */
export interface Connection {
  /** Since when the machine pulls without a long pause, in milliseconds since the epoch. */
  since: number;
  /** The address of its latest pull; null when that is not known. */
  address: string | null;
  /** The program of its latest pull, from the header user-agent. */
  client: string | null;
}

/** Failures in a row, of any kind, after which an instance counts as down. */
export const DOWN_AFTER_FAILURES = 5;

/**
 * How many characters of a response body a last failure keeps. The number is low, because a list of instances has a
 * last failure for each instance.
 */
export const FAILURE_EXCERPT_CHARS_MAX = 300;

export interface LastFailure {
  at: string;
  outcome: Outcome;
  status_code: number | null;
  detail: string;
  /** The first characters of the response body; absent when it was empty, or when an earlier version wrote the row. */
  response_excerpt?: string;
}

/** The health of an instance, as its attempts so far show it. Times are milliseconds since the epoch. */
export interface InstanceHealth {
  consecutive_failures: number;
  /**
   * Since when the instance has its present health; null while the health is unknown, and when that time was not
   * stored.
   */
  health_since: number | null;
  last_success_at: number | null;
  last_failure: LastFailure | null;
  /** How many back-offs began since the last success or reset; 0: the instance does not back off. */
  backoff_step: number;
  /** No attempt starts before this time. */
  backoff_until: number | null;
}

export const NO_HEALTH: Readonly<InstanceHealth> = {
  consecutive_failures: 0,
  health_since: null,
  last_success_at: null,
  last_failure: null,
  backoff_step: 0,
  backoff_until: null,
};

/** A registered instance with its secrets: never returned to a client. */
export interface Instance extends InstanceHealth {
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  transport: TransportName;
  ack_timeout_s: number;
  /** How long an attempt at its webhook may take. */
  timeout_s: number;
  /** The agent runtime at its webhook, if pushes have a shape of their own; null: the shape of the specification. */
  runtime: RuntimeSettings | null;
  /** When the service removes the instance unless it registers again, in milliseconds since the epoch; null: never. */
  lease_until: number | null;
  /** Empty for an instance that pulls and gave no URL. */
  webhook_url: string;
  webhook_headers: Record<string, string>;
  webhook_secret: string;
  /** The secrets before the last rotations, the newest first. Until they end, pushes are signed with them too. */
  earlier_secrets: Earlier[];
  success_statuses: SuccessStatuses;
  /** Whether the instance may reply in its response to a push. Replies are sent in the meeting: see domain/reply.ts. */
  replies: boolean;
  /** Whether a membership of the instance has rules, or had rules once. If so, the rules are read before a push. */
  has_rules: boolean;
  webhook_enabled: boolean;
  is_active: boolean;
  last_seen_at: number | null;
  created_at: number;
  updated_at: number;
  /** The key that owns the instance; null when no key does. */
  owner_key_id: string | null;
}

/**
 * The health in a word: `down` from DOWN_AFTER_FAILURES failures in a row on, `failing` from the first failure on, and
 * `unknown` before the first attempt has ended.
 */
export function healthOf(health: Pick<InstanceHealth, 'consecutive_failures' | 'last_success_at'>): Health {
  if (health.consecutive_failures >= DOWN_AFTER_FAILURES) return 'down';
  if (health.consecutive_failures > 0) return 'failing';
  return health.last_success_at === null ? 'unknown' : 'up';
}

/** The states that counts of instances distinguish: the health while the instance is switched on, and `off`. */
export const INSTANCE_STATES = [...HEALTH, 'off'] as const;
export type InstanceState = (typeof INSTANCE_STATES)[number];

/** Instances that are switched off get no new deliveries, and their pending ones wait. */
export function isSwitchedOn(instance: Pick<Instance, 'is_active' | 'webhook_enabled'>): boolean {
  return instance.is_active && instance.webhook_enabled;
}
