import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls';
import type { EgressPolicy } from '../../domain/address.ts';
import { ConnectionPools } from './connection_pools.ts';
import type { ConnectorOptions } from './connector.ts';
import { Deadlines } from './deadlines.ts';
import { idleConnectionsMax } from './idle_connections.ts';
import { PushAttempt, type PushContext } from './push_attempt.ts';
import { createHostResolver } from './resolver.ts';
import { KeptBodies } from './response.ts';
import type { Push, PushResult, Transport } from './transport.ts';

/**
 * Pushes over HTTP/1.1 with undici's `dispatch`: `fetch` costs ten times as much, and `request` ignores signals until
 * the socket is connected. undici gets a connected socket and one request at a time, so nothing ever queues inside it.
 * undici has no deadline for a body that arrives byte by byte, or for an endless series of 103. Convoke's own deadline
 * ends such a push.
 */
export interface WebhookTransportOptions {
  policy: EgressPolicy;
  /**
   * Monotonic milliseconds (`performance.now`). With a clock that somebody can set, pushes could end early, or never.
   */
  now?: () => number;
  /** The time from the call to the result, whatever the receiver does. */
  deadline_ms?: number;
  /** `address:port` of the name servers; the name servers of the system when absent. */
  name_servers?: readonly string[];
  /** The file in which names are looked up before DNS; the system's hosts file when absent. */
  hosts_path?: string;
  /** Certificate authorities in PEM, trusted beside those that Node trusts. */
  extra_ca?: readonly string[];
  /** How many unused connections are kept at most, over all instances. Their memory has a limit too. */
  idle_connections_max?: number;
}

export interface WebhookTransport extends Transport {
  push(push: Push): Promise<PushResult>;
  /**
   * Makes a push with a deadline of its own. Null: the attempt counts as not made, because another node takes over, the
   * service stops, or the signal ended the push.
   */
  pushFor(push: Push, timeout_ms: number, signal?: AbortSignal): Promise<PushResult | null>;
  counts(): { pushes: number; connections: number; idle_connections: number; instances: number };
}

const DEADLINE_MS = 5000;

/** @throws on a malformed `extra_ca` */
export function createWebhookTransport(options: WebhookTransportOptions): WebhookTransport {
  return new PooledTransport(options);
}

class PooledTransport implements WebhookTransport, PushContext {
  readonly policy: EgressPolicy;
  readonly now: () => number;
  readonly deadline_ms: number;
  readonly deadlines: Deadlines;
  readonly own_deadlines = new Set<PushAttempt>();
  readonly connector: ConnectorOptions;
  readonly pools: ConnectionPools;
  readonly kept_bodies = new KeptBodies();
  readonly kept_long_bodies = new KeptBodies();
  is_closed = false;

  constructor({ policy, name_servers, hosts_path, extra_ca, ...options }: WebhookTransportOptions) {
    this.policy = policy;
    this.now = options.now ?? (() => performance.now());
    this.deadline_ms = options.deadline_ms ?? DEADLINE_MS;
    this.deadlines = new Deadlines(this.deadline_ms, this.now);
    this.pools = new ConnectionPools(policy, options.idle_connections_max ?? idleConnectionsMax(null, 0));
    this.connector = {
      policy,
      resolver: createHostResolver({ ...(name_servers && { name_servers }), ...(hosts_path && { hosts_path }) }),
      secure_context: secureContextOf(extra_ca),
    };
  }

  /** A webhook can always be tried. */
  canPush(): boolean {
    return true;
  }

  push(push: Push): Promise<PushResult> {
    return new Promise((resolve) => {
      new PushAttempt(this, push, resolve as (result: PushResult | null) => void).start();
    });
  }

  pushFor(push: Push, timeout_ms: number, signal?: AbortSignal): Promise<PushResult | null> {
    if (signal?.aborted === true) return Promise.resolve(null);
    return new Promise((resolve) => {
      const attempt = new PushAttempt(this, push, resolve, timeout_ms);
      signal?.addEventListener('abort', () => attempt.giveUp(), { once: true });
      attempt.start();
    });
  }

  forget(instance_id: string): void {
    this.pools.forget(instance_id);
  }

  /** Gives up only attempts whose deadline is longer than `deadline_ms`. The others end within 5 s by themselves. */
  handOver(isTaken: (instance_id: string) => boolean): void {
    for (const attempt of this.own_deadlines)
      if (attempt.timeout_ms > this.deadline_ms && isTaken(attempt.instance_id)) attempt.giveUp();
  }

  async close(): Promise<void> {
    this.is_closed = true;
    this.deadlines.close();
    for (const attempt of this.own_deadlines) attempt.giveUp();
    await this.pools.close();
  }

  counts() {
    return { pushes: this.deadlines.size + this.own_deadlines.size, ...this.pools.counts };
  }
}

/**
 * One context for all connections, because each context would read every trusted certificate again.
 *
 * @throws on a malformed `extra_ca`
 */
function secureContextOf(extra_ca: readonly string[] = []): () => SecureContext {
  if (extra_ca.length > 0) {
    const context = createSecureContext({ ca: [...getCACertificates(), ...extra_ca] });
    return () => context;
  }
  // Made when it is first needed: many services never push over TLS.
  let context: SecureContext | undefined;
  return () => (context ??= createSecureContext());
}
