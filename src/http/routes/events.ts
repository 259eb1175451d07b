import type { FastifyReply } from 'fastify';
import type { ServerResponse } from 'node:http';
import { assertMeeting } from '../../domain/access.ts';
import type { Feed } from '../../feed/feed.ts';
import { isAwaited, onClosed } from '../on_closed.ts';
import { responses } from '../responses.ts';
import type { FeedSink } from '../../feed/listener.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { EventsHeaders, EventsQuery, EventStream, StreamHeaders } from '../schemas/events.ts';
import type { Standing } from '../auth/standing.ts';

/** How soon a browser connects again when the connection is lost. */
const RETRY_MS = 1_000;

export interface EventContext {
  feed: Pick<Feed, 'open'>;
}

export function eventRoutes(app: App, context: EventContext): void {
  app.get('/api/v1/events/', STREAM_EVENTS, (request, reply) => streamEvents(context, request, reply));
}

const STREAM_EVENTS = {
  // A HEAD request would have to wait for an end that the stream does not have.
  exposeHeadRoute: false,
  config: { access: ['read', 'instance'], portal_link: true },
  schema: {
    operationId: 'streamEvents',
    tags: ['events'],
    summary: 'The live feed: events as they happen, as server-sent events',
    description:
      'message.accepted, delivery.attempted, delivery.settled, delivery.queued, instance.registered, instance.changed, instance.connected, instance.disconnected, instance.removed, instance.joined, instance.left, membership.changed, meeting.changed, instance.up, instance.failing, instance.down; gap when events were lost: read your view again; overflow and end before the service closes the connection. Send the id of the last event that has one as Last-Event-ID, to resume after it. docs/events.md has the data of each.',
    querystring: EventsQuery,
    headers: EventsHeaders,
    response: responses({
      200: ['The stream; it does not end by itself.', EventStream, StreamHeaders],
      codes: ['shutting_down'],
    }),
  },
} satisfies RouteShape;

async function streamEvents({ feed }: EventContext, request: RequestFor<typeof STREAM_EVENTS>, reply: FastifyReply) {
  const { query, headers, principal, standing } = request;
  const { instance_id, meeting_id } = query;
  if (meeting_id !== undefined) assertMeeting(principal, meeting_id);
  const { visibility } = principal;
  const opened = await feed.open({
    viewer: { visibility, instance_id, meeting_id },
    last_event_id: headers['last-event-id'] ?? query.last_event_id ?? null,
    standing: standing as Standing,
  });
  if (isAwaited(reply.raw)) opened.begin(streamTo(reply.raw));
  else opened.giveUp();
  return reply.hijack();
}

/** Begins the response. */
function streamTo(response: ServerResponse): FeedSink {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    // Otherwise nginx would buffer the stream.
    'x-accel-buffering': 'no',
    'x-content-type-options': 'nosniff',
    connection: 'close',
  });
  response.write(`retry: ${RETRY_MS}\n\n`);
  return {
    write: (bytes) => response.write(bytes),
    end: (text) => void response.end(text),
    destroy: () => void response.destroy(),
    onDrain: (callback) => void response.on('drain', callback),
    onClose: (callback) => onClosed(response, callback),
  };
}
