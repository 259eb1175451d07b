import type { FastifyInstance, FastifyTypeProvider, RawServerDefault } from 'fastify';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyBaseLogger } from 'fastify';
import type { Static, TSchema } from 'typebox';
import type { Log } from '../delivery/bounded_log.ts';
import type { Clock } from '../delivery/clock.ts';
import type { Engine } from '../delivery/engine.ts';
import type { NodeIdentity } from '../delivery/cluster/partitions.ts';
import type { Transport } from '../delivery/transport/transport.ts';
import type { EgressPolicy } from '../domain/address.ts';
import type { Store } from '../store/store.ts';
import type { Access } from './auth/access.ts';
import type { Connections } from './intake/connections.ts';
import type { JsonBody } from './intake/json_body.ts';
import type { AuditTrail } from './auth/audit_trail.ts';
import type { DemoMeeting } from './demo_meeting.ts';
import type { Feed } from '../feed/feed.ts';
import type { Keyring } from './auth/keyring.ts';
import type { Limits } from './auth/limits.ts';
import type { Pages } from './pages.ts';
import type { Sessions } from './auth/sessions.ts';

/** This process, as others are told of it. */
export interface ThisNode extends NodeIdentity {
  started_at: number;
}

/** What the routes work with. */
export interface HttpContext {
  store: Store;
  engine: Engine;
  transport: Transport;
  clock: Clock;
  log: Log;
  egress_policy: EgressPolicy;
  max_message_bytes: number;
  max_request_bytes_in_flight: number;
  max_connections: number;
  expire_after_ms: number;
  user_agent: string;
  /** Who may do what. While it is open, requests whose Host is not a loopback name are refused (DNS rebinding). */
  keyring: Keyring;
  limits: Limits;
  sessions: Sessions;
  node: ThisNode;
  audit_trail: AuditTrail;
  feed: Feed;
  demo: DemoMeeting;
  /** The pages as they are built; those of the repository when absent. */
  pages?: Pages;
  /** Makes the text of /metrics. */
  metrics: () => Promise<{ content_type: string; text: string }>;
}

/** The types of bodies, queries and parameters come from the routes' schemas. */
interface SchemaTypes extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown;
  serializer: this['schema'] extends TSchema ? Static<this['schema']> : unknown;
}

export type App = FastifyInstance<RawServerDefault, IncomingMessage, ServerResponse, FastifyBaseLogger, SchemaTypes>;

declare module 'fastify' {
  interface FastifyInstance {
    connections: Connections;
    /** Every route, for who has to look at all of them. */
    route_table: { methods: string[]; url: string; access: Access }[];
  }
  interface FastifyRequest {
    /** The body with the text of its fields; null when there was none. */
    json: JsonBody | null;
  }
}
