import type { FastifyReply } from 'fastify';
import { randomUUID } from 'node:crypto';
import { FORWARDED_HEADER, type PullForwarder } from '../../delivery/cluster/pull_forwarder.ts';
import { Problem } from '../../domain/problem.ts';
import type { Limits } from '../auth/limits.ts';
import type { RequestFor, RouteShape } from '../context.ts';
import type { Connections } from '../intake/connections.ts';
import { letGoOfBody } from '../intake/let_go_of_body.ts';
import type { WaitingRequest } from '../intake/waiting_requests.ts';
import { isWritten, onClosed } from '../on_closed.ts';
import type { InstanceParams } from '../schemas/instances.ts';
import { type PullBody, WAIT_S } from '../schemas/pull.ts';

/**
 * How long the connection of a pull may be idle: longer than the pull waits, because idle connections are otherwise
 * closed after 60 s.
 */
export const QUIET_MS = 90_000;

interface PullForwardContext {
  limits: Pick<Limits, 'addressOf'>;
  connections: Pick<Connections, 'waits' | 'endsWait'>;
  /** Null without a cluster. */
  pull_forwarder: Pick<PullForwarder, 'forward' | 'is_draining'> | null;
}

type PullingRequest = RequestFor<RouteShape & { schema: { params: typeof InstanceParams; body: typeof PullBody } }>;

/** The only headers that are forwarded, besides the cookie of a session: the other node recognizes the caller by them. */
const PASSED_ON = ['authorization', 'convoke-csrf', 'user-agent'];
const PASSED_BACK = ['content-type', 'retry-after', 'www-authenticate'];

/**
 * This node does not deliver to the instance: it forwards the request to the node that does.
 *
 * @throws Problem `overloaded` when that node did not respond, or when the pull made room for another request
 */
export async function forward(
  { pull_forwarder, limits, connections }: PullForwardContext,
  request: PullingRequest,
  reply: FastifyReply,
) {
  // A request is forwarded only once, even if a third node has taken over meanwhile.
  if (pull_forwarder === null || FORWARDED_HEADER in request.headers) throw holderNotReached();
  const { body, params, headers, raw, principal, signed_in } = request;
  let waiting: WaitingRequest | null = null;
  let made_room = false;
  const named = [...PASSED_ON.map((name) => [name, headers[name]]), ['cookie', signed_in?.forwarded_cookie]];
  raw.socket.setTimeout(QUIET_MS);
  const from = {
    instance_id: params.instance_id,
    headers: Object.fromEntries(named.filter(([, value]) => typeof value === 'string')) as Record<string, string>,
    address: limits.addressOf(request),
  };
  const own_name = body.pull_id === undefined ? randomUUID() : null;
  let has_response = false;
  const forwarded = pull_forwarder.forward(
    { ...from, body: JSON.stringify({ pull_id: own_name, ...body }), wait_ms: (body.wait_s ?? WAIT_S.default) * 1000 },
    (cancel) => {
      onClosed(reply.raw, () => {
        cancel();
        // A client that named its request makes it again under this name, and so takes back its pushes itself.
        if (own_name === null || (has_response && isWritten(reply.raw))) return;
        // The other node may have written a response that did not reach the client.
        const take_back = JSON.stringify({ pull_id: own_name, max: 0 });
        const ended = pull_forwarder.forward({ ...from, body: take_back, wait_ms: 0 }, () => {});
        // When the store does not respond, the push waits for its deadline.
        ended.then(
          (response) => response?.resume(),
          () => {},
        );
      });
      const makeRoom = (): void => {
        made_room = true;
        cancel();
      };
      waiting = connections.waits(raw, principal.key_id, { makeRoom });
    },
  );
  const brings_results = (body.results ?? []).length > 0;
  letGoOfBody(request);
  const response = await forwarded.finally(() => {
    if (waiting !== null) connections.endsWait(waiting);
  });
  if (response === null) {
    if (made_room) throw noRoom();
    // If the request brought results, nobody knows whether they count. So the request fails, and the machine brings the
    // results again.
    if (pull_forwarder.is_draining && !brings_results) return { pushes: [], results: [] };
    throw holderNotReached();
  }
  has_response = true;
  for (const name of PASSED_BACK) {
    const value = response.headers[name];
    if (value !== undefined) void reply.header(name, value);
  }
  return reply.code(response.statusCode ?? 502).send(response);
}

function holderNotReached(): Problem {
  return new Problem(
    'overloaded',
    'The node that delivers to this instance did not respond. Pull again, with the results that got no response.',
    { retry_after_s: 1 },
  );
}

/** All connections are in use, and this pull made room for another request. */
export function noRoom(): Problem {
  return new Problem('overloaded', 'All connections were needed. Pull again, with the results that got no response.', {
    retry_after_s: 1,
  });
}
