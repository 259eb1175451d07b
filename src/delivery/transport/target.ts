import { type Instance, isSwitchedOn, type TransportName } from '../../domain/instance.ts';
import type { Replier } from '../../domain/reply_token.ts';
import { type RuntimeSettings, TIMEOUT_S } from '../../domain/runtimes/runtimes.ts';
import type { Earlier } from '../../domain/rotation.ts';
import { type SigningKey, signingKey } from '../../domain/signature.ts';

/** The data needed to push to an instance, decoded once per registration. */
export interface Target {
  transport: TransportName;
  /** How long a machine that pulls has for the result of a push. */
  ack_timeout_ms: number;
  /** How long an attempt at its webhook may take. */
  timeout_ms: number;
  /** Null: pushes have the shape of the specification. */
  runtime: RuntimeSettings | null;
  url: string;
  headers: Record<string, string>;
  success_statuses: Instance['success_statuses'];
  /** Whether the instance may reply, and the facts that decide about its right to reply. */
  replies: boolean;
  replier: Replier;
  /** Whether the rules of its memberships are read before a push. */
  has_rules: boolean;
  secret: string;
  /** The secrets before the last rotations, the newest first. */
  earlier_secrets: readonly Earlier[];
  /**
   * The keys of `secret` and `earlier_secrets`, in this order. Null from the end of a turn until the next push, because
   * a key takes a kilobyte of memory, most of it outside of the heap.
   */
  keys: readonly SigningKey[] | null;
  switched_on: boolean;
  /** When the registration changed, by the wall clock. Two changes in one millisecond have the same time. */
  updated_at: number;
}

/** The part of a target that signs. */
export type SigningTarget = Pick<Target, 'secret' | 'earlier_secrets' | 'keys'>;

/** The data of an instance that an attempt needs: times in milliseconds, and secrets as keys. */
export function targetOf(instance: Instance): Target {
  return {
    transport: instance.transport,
    ack_timeout_ms: instance.ack_timeout_s * 1000,
    timeout_ms: instance.timeout_s * 1000,
    runtime: instance.runtime,
    url: instance.webhook_url,
    headers: instance.webhook_headers,
    success_statuses: instance.success_statuses,
    replies: instance.replies,
    replier: replierOf(instance),
    has_rules: instance.has_rules,
    secret: instance.webhook_secret,
    earlier_secrets: instance.earlier_secrets,
    keys: keysOf(instance.webhook_secret, instance.earlier_secrets),
    switched_on: isSwitchedOn(instance),
    updated_at: instance.updated_at,
  };
}

/** Shared by all instances that do not reply: there may be fifty thousand. */
const NO_REPLIER: Replier = { created_at: 0, owner_key_id: null, transport: 'webhook', webhook_url: '' };

function replierOf({ replies, created_at, owner_key_id, transport, webhook_url }: Instance): Replier {
  return replies ? { created_at, owner_key_id, transport, webhook_url } : NO_REPLIER;
}

/**
 * Whether an attempt may take as long as an agent thinks. Such an attempt does not count against the limits of short
 * attempts.
 */
export function mayTakeLong({ transport, timeout_ms }: Pick<Target, 'transport' | 'timeout_ms'>): boolean {
  return transport === 'pull' || timeout_ms > TIMEOUT_S * 1000;
}

/** Whether two targets reach the same receiver in the same way. Then both have the same health. */
export function isSamePlace(a: Pick<Target, 'url' | 'transport'>, b: Pick<Target, 'url' | 'transport'>): boolean {
  return a.url === b.url && a.transport === b.transport;
}

/**
 * The keys that sign a push at this time: the current key, and each earlier key until the overlap after its rotation
 * ends.
 */
export function signingKeysOf(target: SigningTarget, wall_ms: number): readonly SigningKey[] {
  const { secret, earlier_secrets } = target;
  const keys = (target.keys ??= keysOf(secret, earlier_secrets));
  return keys.filter((_, i) => i === 0 || wall_ms < earlier_secrets[i - 1]!.until);
}

function keysOf(secret: string, earlier_secrets: readonly Earlier[]): SigningKey[] {
  return [signingKey(secret), ...earlier_secrets.map(({ value }) => signingKey(value))];
}
