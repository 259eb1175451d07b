import type { FastifyReply } from 'fastify';
import type { ServerResponse } from 'node:http';
import { FORWARDED_HEADER, type PullForwarder } from '../../delivery/cluster/pull_forwarder.ts';
import type { Engine } from '../../delivery/engine.ts';
import type { Clock } from '../../delivery/clock.ts';
import type {
  HandedOut,
  PullEnd,
  PullPermit,
  PullRequest,
  PullTransport,
  Revocable,
  WaitingPull,
} from '../../delivery/transport/pull_transport.ts';
import type { OwnerScope } from '../../domain/access.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { isoTime } from '../../domain/time.ts';
import type { Store } from '../../store/store.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import type { Limits } from '../auth/limits.ts';
import { assertStanding, type Standing } from '../auth/standing.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import type { Connections } from '../intake/connections.ts';
import { letGoOfBody } from '../intake/let_go_of_body.ts';
import { readNoBodyAsEmpty } from '../intake/no_body.ts';
import type { WaitingRequest } from '../intake/waiting_requests.ts';
import type { LateResponses } from '../late_responses.ts';
import { isAwaited, isWritten } from '../on_closed.ts';
import { responses } from '../responses.ts';
import { InstanceParams } from '../schemas/instances.ts';
import { PULL_BODY_BYTES_MAX, PullBody, PulledSchema, PUSHES, WAIT_S } from '../schemas/pull.ts';
import { existing } from './instances.ts';
import { forward, noRoom, QUIET_MS } from './pull_forward.ts';
import { takeResults, type TakenResults } from './pull_results.ts';

const CLIENT_CHARS_MAX = 200;
export interface PullContext {
  store: { instances: Pick<Store['instances'], 'find'>; deliveries: Pick<Store['deliveries'], 'get'> };
  engine: Pick<Engine, 'written' | 'isFullOfReplies'>;
  pull_transport: Pick<
    PullTransport,
    'changes' | 'permitOf' | 'pull' | 'cancel' | 'refuse' | 'giveBack' | 'lose' | 'take' | 'takeBack'
  >;
  clock: Clock;
  limits: Pick<Limits, 'addressOf'>;
  audit_trail: Pick<AuditTrail, 'standingEnded'>;
  /** Whether this node delivers to an instance, and may write the results of its deliveries. */
  takesPullsOf: (instance_id: string) => boolean;
  /** Null without a cluster. */
  pull_forwarder: Pick<PullForwarder, 'forward' | 'addressIn' | 'is_draining'> | null;
}

/** `PullContext`, and the parts of the server on which the route is registered. */
type Context = PullContext & {
  connections: Pick<Connections, 'waits' | 'endsWait'>;
  late_responses: Pick<LateResponses, 'send' | 'refuse'>;
};

export function pullRoutes(app: App, parts: PullContext): void {
  const { connections, late_responses } = app;
  const context: Context = { ...parts, connections, late_responses };
  app.post('/api/v1/instances/:instance_id/pull/', PULL, (request, reply) => pull(context, request, reply));
}

const PULL = {
  bodyLimit: PULL_BODY_BYTES_MAX,
  // No audit entry: a machine pulls all the time.
  config: {
    access: ['instance'],
    portal_link: 'A portal link does not pull: it is for a page, and no machine.',
    audit: 'none',
  },
  preValidation: readNoBodyAsEmpty,
  schema: {
    operationId: 'pull',
    tags: ['instances'],
    summary: 'Wait for pushes, and report the results of earlier ones',
    description:
      'For an instance with the transport `pull`: the machine asks, so no connection to it is needed. Responds as soon as there is a push, or without pushes after wait_s. Deliver each push to the runtime as a webhook would: the same headers and the same bytes. Report its result with one of the next pulls, before its deadline. While nobody pulls, no attempt is made and no retry is spent. Several machines may pull for one instance.',
    params: InstanceParams,
    body: PullBody,
    response: responses({
      200: ['Pushes, and whether each result counted.', PulledSchema],
      codes: ['instance_does_not_exist'],
    }),
  },
} satisfies RouteShape;

type PullingRequest = RequestFor<typeof PULL>;

async function pull(context: Context, request: PullingRequest, reply: FastifyReply) {
  const { pull_transport, takesPullsOf } = context;
  const { instance_id } = request.params;
  const { owner_scope } = request.principal;
  if (!takesPullsOf(instance_id)) return forward(context, request, reply);
  if (context.engine.isFullOfReplies && request.body.results?.some(({ body }) => Boolean(body)))
    throw noRoomForReplies();
  const permit =
    pull_transport.permitOf(instance_id, owner_scope) ?? (await readPermit(context, instance_id, owner_scope));
  // While this process waited for the store, the key may have been revoked, or another node may deliver now.
  assertStanding(request.standing);
  if (!takesPullsOf(instance_id)) return forward(context, request, reply);
  const { max = PUSHES.default, wait_s = WAIT_S.default, pull_id = null } = request.body;
  const given = request.body.results ?? [];
  const results = given.length > 0 ? await takeResults(context, instance_id, given) : NO_RESULTS;
  const address = await addressOf(context, request);
  letGoOfBody(request);
  const { raw: response } = reply;
  // When the client has left, its next pull may already wait under this pull_id, and `takeBack` would end that pull.
  if (!isAwaited(response)) return reply.hijack();
  // No other code may run between these calls and the wait. So no key ends between the check and the wait, where nothing
  // would end the pull. And of two requests with the same pull_id, only one waits.
  assertStanding(request.standing);
  if (pull_id !== null) pull_transport.takeBack(instance_id, pull_id);
  // A machine that is about to end takes no more pushes. And when another node delivers by now, the next pull of the
  // machine is forwarded to that node.
  if (max === 0 || !takesPullsOf(instance_id)) return { pushes: [], results };
  new Pulling(context, response, {
    instance_id,
    pull_id,
    permit,
    max,
    wait_ms: wait_s * 1000,
    address,
    client: clientOf(request.headers['user-agent']),
    standing: request.standing as Standing,
    results,
    key_id: request.principal.key_id,
  }).begin();
  return reply.hijack();
}

/**
 * @throws Problem `instance_does_not_exist`, also for an instance of another owner; `invalid_fields` when the instance
 * does not pull
 */
async function readPermit(
  { store, pull_transport }: PullContext,
  instance_id: string,
  owner_scope: OwnerScope | null,
): Promise<PullPermit> {
  const as_of = pull_transport.changes;
  const visibility = owner_scope === null ? null : { owner_scope, meeting_ids: [] };
  const row = existing(await store.instances.find(instance_id, visibility), instance_id);
  if (row.transport !== 'pull')
    throw invalidField('instance_id', 'is pushed to: register it with the transport `pull` to pull');
  const { owner_key_id, updated_at } = row;
  return { owner_scope, owner_key_id, updated_at, as_of };
}

/** The address of the client. For a forwarded request, the forwarding node names this address. */
async function addressOf({ limits, pull_forwarder }: PullContext, request: PullingRequest): Promise<string | null> {
  const mark = request.headers[FORWARDED_HEADER];
  const forwarded =
    pull_forwarder !== null && typeof mark === 'string' ? await pull_forwarder.addressIn(mark) : undefined;
  return forwarded === undefined ? limits.addressOf(request) : forwarded;
}

/** Too many replies wait to be stored, and the results in a request may have more of them. */
function noRoomForReplies(): Problem {
  return new Problem('overloaded', 'Too many replies wait to be stored. Pull again, with the same results.', {
    retry_after_s: 1,
  });
}

/** Shared by the thousands of pulls that bring no results and wait for pushes. */
const NO_RESULTS: TakenResults = [];
const NO_PUSHES: readonly HandedOut[] = [];

const PULLING: unique symbol = Symbol('pull');

type PullResponse = ServerResponse & { [PULLING]?: Pulling };

/** What a request asks for. */
type Asked = Omit<PullRequest, 'onEnd'> & {
  /** The key of the request; null while no key is needed. */
  key_id: string | null;
  results: TakenResults;
};

/**
 * A pull in progress: its wait, and then the pushes of its response. Thousands of machines may wait, so a pull is one
 * object without closures, and the framework no longer has its request.
 */
class Pulling implements PullRequest {
  readonly #context: Context;
  readonly #response: PullResponse;
  readonly instance_id: string;
  readonly pull_id: string | null;
  readonly permit: PullPermit;
  readonly max: number;
  readonly wait_ms: number;
  readonly address: string | null;
  readonly client: string | null;
  readonly standing: Revocable;
  readonly #key_id: string | null;
  readonly #results: TakenResults;
  /** Null when the pull does not wait. */
  #waiting: WaitingPull | null = null;
  /** Null when the pull does not wait. */
  #makes_room: WaitingRequest | null = null;
  #pushes = NO_PUSHES;
  #has_ended = false;

  constructor(context: Context, response: ServerResponse, asked: Asked) {
    this.#context = context;
    this.#response = response;
    this.instance_id = asked.instance_id;
    this.pull_id = asked.pull_id;
    this.permit = asked.permit;
    this.max = asked.max;
    this.wait_ms = asked.wait_ms;
    this.address = asked.address;
    this.client = asked.client;
    this.standing = asked.standing;
    this.#key_id = asked.key_id;
    this.#results = asked.results;
  }

  /** Waits, and responds when the wait is over. */
  begin(): void {
    const { pull_transport, connections } = this.#context;
    const response = this.#response;
    response[PULLING] = this;
    response.on('close', endPull);
    response.req.socket.setTimeout(QUIET_MS);
    const waiting = pull_transport.pull(this);
    // The pull may have ended at once.
    if (this.#has_ended) return;
    this.#waiting = waiting;
    this.#makes_room = connections.waits(response.req, this.#key_id, this);
  }

  makeRoom(): void {
    if (this.#waiting !== null) this.#context.pull_transport.refuse(this.#waiting, noRoom());
  }

  onEnd(end: PullEnd): void {
    const { late_responses } = this.#context;
    this.#has_ended = true;
    this.#leave();
    if ('problem' in end) return this.#refuse(end.problem);
    this.#pushes = end.pushes;
    late_responses.send(this.#response, { pushes: end.pushes.map(wirePush), results: this.#results });
  }

  #refuse(problem: Problem): void {
    const { late_responses, audit_trail } = this.#context;
    if (problem.status === 401) audit_trail.standingEnded(this.address, this.#key_id, problem.code);
    late_responses.refuse(this.#response, problem);
  }

  /**
   * The response was written, or its connection is gone. Pushes that did not leave this process whole count as not
   * handed out.
   */
  close(): void {
    const { pull_transport } = this.#context;
    const response = this.#response;
    const waiting = this.#waiting;
    this.#leave();
    if (waiting !== null) pull_transport.cancel(waiting);
    if (response.statusCode !== 200) pull_transport.giveBack(this.#pushes);
    else if (!isWritten(response)) pull_transport.lose(this.#pushes);
  }

  #leave(): void {
    if (this.#makes_room !== null) this.#context.connections.endsWait(this.#makes_room);
    this.#makes_room = this.#waiting = null;
  }
}

/** One listener for all responses. */
function endPull(this: PullResponse): void {
  this[PULLING]?.close();
}

function wirePush({ delivery_id, attempt, push, deadline_at }: HandedOut) {
  const body = Buffer.from(push.body).toString();
  return { delivery_id, attempt, headers: push.headers, body, deadline_at: isoTime(deadline_at) };
}

function clientOf(user_agent: string | undefined): string | null {
  const text = user_agent?.replaceAll(/\p{Cc}/gu, '').slice(0, CLIENT_CHARS_MAX) ?? '';
  return text === '' ? null : text;
}
