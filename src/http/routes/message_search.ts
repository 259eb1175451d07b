import type { FastifyReply } from 'fastify';
import type { Clock } from '../../delivery/clock.ts';
import { assertMeeting, maySeeMeeting } from '../../domain/access.ts';
import { holdsText } from '../../domain/search_text.ts';
import type { FoundMessage, MessageStore } from '../../store/contract/messages.ts';
import type { MessageSearch, SearchPage } from '../../store/contract/search.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { FindMessagesQuery, FoundMessagePageSchema } from '../schemas/message_search.ts';
import { foundMessageText } from '../wire.ts';
import { SEARCH_MS_MAX, searchOn, wireSearched } from './searches.ts';

export interface MessageSearchContext {
  store: { messages: Pick<MessageStore, 'get' | 'ofDelivery' | 'search'> };
  clock: Clock;
}

export function messageSearchRoutes(app: App, context: MessageSearchContext): void {
  app.get('/api/v1/messages/', FIND_MESSAGES, (request, reply) => findMessages(context, request, reply));
}

const FIND_MESSAGES = {
  config: { access: ['read'] },
  schema: {
    operationId: 'findMessages',
    tags: ['messages'],
    summary: 'Find messages by an id, by their number in a meeting, or by their text; newest first',
    description:
      'Messages of all meetings that the key may see, even those that nobody got. A search reads the messages themselves, and one request reads a limited number. When it stops at that limit, `searched_to` says how far it came, and next_cursor continues there.',
    querystring: FindMessagesQuery,
    response: responses({ 200: ['A page of messages.', FoundMessagePageSchema], codes: [] }),
  },
} satisfies RouteShape;

type Request = RequestFor<typeof FIND_MESSAGES>;

async function findMessages(context: MessageSearchContext, request: Request, reply: FastifyReply) {
  const page = await pageFor(context, request);
  const { data, ...rest } = { data: page.data.map(foundMessageText), ...wireSearched(page) };
  void reply.type('application/json');
  return reply
    .serializer((text: string) => text)
    .send(`{"data":[${data.join(',')}],${JSON.stringify(rest).slice(1)}` as never);
}

async function pageFor(
  { store, clock }: MessageSearchContext,
  { query, principal }: Request,
): Promise<SearchPage<FoundMessage>> {
  const { id, seq, meeting_id, text, since, until, cursor, limit = 50 } = query;
  if (meeting_id !== undefined) assertMeeting(principal, meeting_id);
  const { meeting_ids } = principal;
  const wanted = {
    meeting_id,
    // `assertMeeting` has checked a single meeting_id, so the list of the key is not needed.
    ...(meeting_ids !== null && meeting_id === undefined && { meeting_ids: [...meeting_ids] }),
    seq,
    text,
    since_ms: since === undefined ? undefined : Date.parse(since),
    until_ms: until === undefined ? undefined : Date.parse(until),
  };
  if (id !== undefined) {
    const message = id.startsWith('dlv_') ? await store.messages.ofDelivery(id) : await store.messages.get(id);
    const fits = message !== null && maySeeMeeting(principal, message.meeting_id) && isWanted(message, wanted);
    return { data: fits ? [message] : [], next_cursor: null, searched_to: null };
  }
  return searchOn(
    { limit, cursor },
    { clock, ms_max: SEARCH_MS_MAX },
    ({ message }) => message.length,
    (page, reads) => store.messages.search({ ...wanted, ...page }, reads),
  );
}

/** Whether a message that was found by its id fits the other filters too. */
function isWanted(
  message: FoundMessage,
  { meeting_id, seq, text, since_ms = -Infinity, until_ms = Infinity }: Omit<MessageSearch, 'limit'>,
): boolean {
  const { accepted_at } = message;
  return (
    (meeting_id === undefined || message.meeting_id === meeting_id) &&
    (seq === undefined || message.seq === seq) &&
    (text === undefined || holdsText(message.message, text)) &&
    accepted_at >= since_ms &&
    accepted_at < until_ms
  );
}
