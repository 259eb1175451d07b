import type {
  FastifyBaseLogger,
  FastifyContextConfig,
  FastifyInstance,
  FastifyRequest,
  FastifySchema,
  FastifyTypeProvider,
  preValidationAsyncHookHandler,
  RawServerDefault,
  RouteGenericInterface,
} from 'fastify';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Static, TSchema } from 'typebox';
import type { Log } from '../delivery/bounded_log.ts';
import type { Clock } from '../delivery/clock.ts';
import type { Stall } from '../store/contract/stall.ts';
import type { Access } from './auth/access.ts';
import type { AuditTrail } from './auth/audit_trail.ts';
import type { Keyring } from './auth/keyring.ts';
import type { Limits } from './auth/limits.ts';
import type { Sessions } from './auth/sessions.ts';
import type { Connections } from './intake/connections.ts';
import type { JsonBody } from '../domain/request_body.ts';
import type { LateResponses } from './late_responses.ts';
import type { Pages } from './pages.ts';

/**
 * The parts that the server needs for every request. Each file of routes names the other parts that its routes need.
 */
export interface HttpContext {
  clock: Clock;
  log: Log;
  max_request_bytes_in_flight: number;
  max_connections: number;
  /** The origins whose pages may call the API with a key. */
  cors_origins?: readonly string[];
  /**
   * Identifies callers by their keys. While no key exists, the server refuses every request whose Host is not a
   * loopback name (DNS rebinding).
   */
  keyring: Keyring;
  limits: Limits;
  sessions: Sessions;
  audit_trail: AuditTrail;
  /** Detects a storage that stalls; when absent, requests wait for the storage without end. */
  stall?: Stall | undefined;
  /** The built pages; when absent, those of the repository. */
  pages?: Pages;
}

/** The types of bodies, queries and parameters come from the routes' schemas. */
interface SchemaTypes extends FastifyTypeProvider {
  validator: this['schema'] extends TSchema ? Static<this['schema']> : unknown;
  serializer: this['schema'] extends TSchema ? Static<this['schema']> : unknown;
}

export type App = FastifyInstance<RawServerDefault, IncomingMessage, ServerResponse, FastifyBaseLogger, SchemaTypes>;

/** The properties of a route, besides its method, its path and its handler. */
export interface RouteShape {
  config: FastifyContextConfig & { access: Access };
  schema: FastifySchema;
  bodyLimit?: number;
  exposeHeadRoute?: boolean;
  preValidation?: preValidationAsyncHookHandler;
}

/** A request with the body, the query and the parameters that a route's schema describes. */
export type RequestFor<Shape extends RouteShape> = FastifyRequest<
  RouteGenericInterface,
  RawServerDefault,
  IncomingMessage,
  Shape['schema'],
  SchemaTypes
>;

declare module 'fastify' {
  interface FastifyInstance {
    connections: Connections;
    late_responses: LateResponses;
    /** All routes, for tests that check each of them. */
    route_table: { methods: string[]; url: string; access: Access }[];
  }
  interface FastifyContextConfig {
    /** Whether the route judges the items of `messages` one by one: see `parseJsonBody`. */
    checks_items?: boolean;
  }
  interface FastifyRequest {
    /** The body with the text of its fields; null when there was none. */
    json: JsonBody | null;
  }
}
