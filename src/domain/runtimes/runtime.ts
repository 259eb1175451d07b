import type { Outcome } from '../outcome.ts';
import type { OptionTable, Options } from './options.ts';

/** A question to a runtime: a push of the specification, and the agents that have to answer. */
export interface Asked {
  delivery_id: string;
  message_id: string;
  seq: number;
  meeting_id: string;
  /** The message as JSON.parse read it. */
  message: Record<string, unknown>;
  /** The agents that this request is for. */
  agents: readonly string[];
  timestamp: string;
  from_agent: string | null;
  in_reply_to: string | null;
  /** Where an agent answers later; null when it cannot answer later. */
  reply_url: string | null;
  reply_token: string | null;
  /** How many messages for the agents came before this message and were not pushed: see domain/catch_up.ts. */
  missed: number;
  /** The text of the specification's body. */
  body: string;
  /**
   * Messages of the meeting before this message, the oldest first. `askRuntime` leaves out those that are only for
   * other agents.
   */
  history: readonly PastMessage[];
}

/** A message of the meeting that was sent before the pushed message. */
export interface PastMessage {
  seq: number;
  from_agent: string | null;
  /** Null or empty: the message was for everybody. */
  target_agents: readonly string[] | null;
  message: Record<string, unknown>;
}

/** One HTTP request to a runtime. */
export interface RuntimeRequest {
  method: string;
  url: string;
  /** Lower-case names. The headers of the instance, such as its credential, are added later. */
  headers: Record<string, string>;
  /** Empty for a request without a body. */
  body: string;
  /**
   * The first word of the headers that sign the request. `svix` means svix-id, svix-timestamp and svix-signature:
   * Standard Webhooks under other names. Absent: the request is not signed. `convoke connect` signs nothing, because
   * the secret of an instance never leaves the service.
   */
  signed_as?: string;
  /** The id that is signed; absent: the delivery's id. */
  signed_id?: string;
}

export interface RuntimeResponse {
  status_code: number;
  /** The whole body after a 2xx, otherwise its beginning. */
  body: string;
}

/** The answer of an agent: a text, or a message of its own, as in the response of a receiver (see domain/reply.ts). */
export type Answer = string | { message: Record<string, unknown>; from_agent?: string };

/** The meaning of a response. */
export type Meaning =
  /** The runtime took the message; `answers` is empty when the agent answers nothing. */
  | Taken
  /** The runtime did not take the message. `detail` says why. */
  | { kind: 'failed'; outcome: Outcome; detail: string }
  /**
   * The answer is not ready: send this request after the pause. `if_late`: the meaning when no time is left and the
   * answer is still not ready.
   */
  | { kind: 'later'; request: RuntimeRequest; pause_ms: number; if_late: Taken };

/** The runtime took the message. `note` is a text for people. */
export interface Taken {
  kind: 'answered';
  answers: Answer[];
  note?: string;
}

/** The result of a probe by `webhook-test`, which asks no model. `advice` is one sentence that says what to do. */
export interface Probed {
  is_ok: boolean;
  advice: string;
}

/**
 * The shape of pushes to one kind of agent runtime. All functions are pure: the same push always gives the same bytes.
 * The same shapes serve webhooks and `convoke connect`.
 */
export interface Runtime {
  /** One line for `convoke runtimes`. */
  says: string;
  options: OptionTable;
  /**
   * How long an attempt may take when the registration does not say it. A model may take up to two minutes for an
   * answer.
   */
  timeout_s: number;
  /** How many earlier messages of the meeting a request contains. */
  historyOf: (options: Options) => number;
  /** Whether each agent of a push has a request of its own. */
  asksEach: (options: Options) => boolean;
  /**
   * The most bytes of a response that are read, for a runtime that responds with a stream of events. The events take
   * many times as many bytes as the answer in them. Absent, or undefined: as for every other response.
   */
  responseBytesOf?: (options: Options) => number | undefined;
  /** @param base_url the stored webhook_url, or `--to` */
  requestOf: (asked: Asked, options: Options, base_url: string) => RuntimeRequest;
  read: (response: RuntimeResponse, asked: Asked, options: Options, base_url: string) => Meaning;
  /** The cheapest request that shows whether the runtime is there and set up; null when only a push shows that. */
  probeOf: ((options: Options, base_url: string, agents: readonly string[]) => RuntimeRequest) | null;
  readProbe: (response: RuntimeResponse, options: Options) => Probed;
}
