import type { Outcome, SuccessStatuses } from '../../domain/outcome.ts';
import type { SigningTarget, Target } from './target.ts';

/** One request to make. The transport sends it as it is, and decides nothing about it. */
export interface Push {
  /** Connections are kept per instance and never shared between instances. */
  instance_id: string;
  /** The stored webhook_url, already accepted by `parseWebhookUrl`; not used for a machine that pulls. */
  url: string;
  /** POST when absent. */
  method?: string;
  /** Names in lower case. The transport adds content-length and host. */
  headers: Record<string, string>;
  body: Uint8Array;
  success_statuses: SuccessStatuses;
  /** Whether to keep the whole body of a success: replies may be in it. */
  keeps_body?: boolean;
  /** The most bytes of a body that is kept; RESPONSE_BYTES_MAX when absent. */
  body_bytes_max?: number | undefined;
  /** Whether to make a connection for this push alone, so that a webhook test shows every stage. */
  fresh_connection?: boolean;
  /** Agents that answered in earlier attempts. An instance with a runtime is asked only for the other agents. */
  answered_agents?: readonly string[];
}

export type Stage = 'dns' | 'connect' | 'tls' | 'request' | 'response';

/** The stages of an attempt that were reached. A stage that a kept connection made unnecessary is absent. */
export interface StageReport {
  stage: Stage;
  ok: boolean;
  duration_ms: number;
  detail: string;
}

/**
 * The whole body of a response as text, or why it is lost, in words. `is_late`: the deadline passed while the body
 * arrived.
 */
export type KeptBody = { text: string } | { lost: string; is_late?: true };

/** The result of one push. A failure of the receiver or the network is a value, never an exception. */
export interface PushResult {
  outcome: Outcome;
  /** Null without a status line. */
  status_code: number | null;
  /** In words; empty after a success. */
  detail: string;
  duration_ms: number;
  stages: StageReport[];
  /** At most RESPONSE_EXCERPT_CHARS_MAX characters of the response body. */
  response_excerpt: string;
  /** The Retry-After header as received. */
  retry_after: string | null;
  /** Whether the result is no news of the instance: the attempt counts for its delivery, and not for the health. */
  is_stale?: true;
  /** The body of a success, for a push that keeps it. */
  kept_body?: KeptBody;
  /** For an instance with a runtime, the answers of its agents. The answers count whatever the outcome is. */
  answered?: readonly AnsweredPart[];
}

/** The answers of some agents of a push. */
export interface AnsweredPart {
  agents: readonly string[];
  /** As in the response of a receiver: `{"replies": […]}`. */
  body: string;
}

/** How an instance is reached, as one version of its registration says. */
export type Way = SigningTarget &
  Pick<Target, 'transport' | 'ack_timeout_ms' | 'timeout_ms' | 'runtime' | 'headers' | 'updated_at'>;

/** A way to deliver. */
export interface Transport {
  /** Whether an attempt can be made now. When that changes from no to yes, `Engine.isReady` is called. */
  canPush(instance_id: string, way: Way): boolean;
  /**
   * Makes one attempt. Resolves within the deadline whatever the receiver does; never rejects. Null: the attempt counts
   * as not made, because the receiver certainly did not see the push, or because the push is to be made elsewhere.
   */
  push(push: Push, way: Way): Promise<PushResult | null>;
  /**
   * The engine has nothing more to read for an instance; null: for any instance. Only a transport that waits for reads
   * has this method.
   */
  readEnded?(instance_id: string | null): void;
  /**
   * The registration of an instance may have changed; null: the registrations of all instances. Only a transport that
   * remembers registrations has this method.
   */
  registrationChanged?(instance_id: string | null): void;
  /**
   * Closes the connections kept for an instance (its URL changed, or it was deleted), and ends its attempts that may
   * take long. These attempts would use up the concurrency of the instance, and their replies do not count any more.
   */
  forget(instance_id: string): void;
  /** Ends attempts that may take long, because the instances for which `isTaken` is true are reached elsewhere now. */
  handOver(isTaken: (instance_id: string) => boolean): void;
  /** Closes everything. */
  close(): Promise<void>;
}
