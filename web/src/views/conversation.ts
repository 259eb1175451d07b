/** The messages of a meeting and their deliveries, kept up to date while the page shows them. */
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { ConvokeError, type Delivery, type Message } from '@convoke/sdk';
import { errorOf, useFeed } from '../queries.ts';
import { client } from '../service.ts';

const PAGE = 50;
const DELIVERIES_PAGE = 500;
/**
 * The most pages of deliveries that are read for the visible messages. A meeting with more recipients shows marks for
 * the latest messages only.
 */
const DELIVERY_PAGES_MAX = 4;
/** The most messages that are kept while the user scrolls back through a conversation. */
const MESSAGES_MAX = 2000;

export interface Conversation {
  /** Null until it was read. */
  messages: Message[] | null;
  /** The deliveries by message_id. A message without an entry is older than all deliveries that were read. */
  deliveries: ReadonlyMap<string, Delivery[]>;
  problem: ConvokeError | null;
  has_earlier: boolean;
  earlier: () => Promise<void>;
  /** Loads earlier messages until this one is among them; false when it is removed, or too far back. */
  back: (message_id: string) => Promise<boolean>;
  again: () => void;
}

interface Read {
  messages: Message[] | null;
  deliveries: ReadonlyMap<string, Delivery[]>;
  problem: ConvokeError | null;
  has_earlier: boolean;
}

export function useConversation(meeting_id: string): Conversation {
  const [state, setState] = useState<Read>({
    messages: null,
    deliveries: new Map(),
    problem: null,
    has_earlier: false,
  });
  const latest = useRef(state);
  latest.current = state;
  const is_gone = useRef(false);
  const is_busy = useRef(false);
  const is_stale = useRef(false);

  const set = (read: Read): void => {
    if (!is_gone.current) setState((latest.current = read));
  };

  const again = useCallback(async (): Promise<void> => {
    if (is_busy.current) {
      is_stale.current = true;
      return;
    }
    is_busy.current = true;
    try {
      const { messages, has_earlier } = await newer(meeting_id, latest.current);
      const deliveries = await deliveriesOf(meeting_id, messages, latest.current.deliveries);
      set({ messages, deliveries, has_earlier, problem: null });
    } catch (error) {
      set({ ...latest.current, problem: errorOf(error) });
    } finally {
      is_busy.current = false;
      if (is_stale.current && !is_gone.current) {
        is_stale.current = false;
        void again();
      }
    }
  }, [meeting_id]);

  const earlier = useCallback(async (): Promise<void> => {
    const first = latest.current.messages?.[0];
    if (first === undefined) return;
    try {
      const page = await client.listMessages(meeting_id, { before_seq: first.seq, limit: PAGE });
      const messages = [...page.data, ...(latest.current.messages ?? [])];
      const deliveries = await deliveriesOf(meeting_id, messages, latest.current.deliveries);
      set({ messages, deliveries, has_earlier: page.has_more && messages.length < MESSAGES_MAX, problem: null });
    } catch (error) {
      set({ ...latest.current, problem: errorOf(error) });
    }
  }, [meeting_id]);

  const back = useCallback(
    async (message_id: string): Promise<boolean> => {
      for (;;) {
        const { messages, has_earlier } = latest.current;
        if (messages?.some((message) => message.message_id === message_id)) return true;
        const count = messages?.length ?? 0;
        if (!has_earlier || is_gone.current) return false;
        await earlier();
        if (latest.current.messages?.length === count) return false;
      }
    },
    [earlier],
  );

  useEffect(() => {
    is_gone.current = false;
    void again();
    return () => void (is_gone.current = true);
  }, [again]);
  useFeed(
    (event) => event.meeting_id === meeting_id,
    () => void again(),
  );
  return { ...state, earlier, back, again: () => void again() };
}

/** The messages that were loaded before, and the new ones. */
async function newer(meeting_id: string, loaded: Read): Promise<Pick<Read, 'has_earlier'> & { messages: Message[] }> {
  try {
    const last = loaded.messages?.at(-1);
    if (loaded.messages === null || last === undefined) {
      const page = await client.listMessages(meeting_id, { limit: PAGE });
      return { messages: page.data, has_earlier: page.has_more };
    }
    const messages = [...loaded.messages];
    for (let after_seq = last.seq; ;) {
      const page = await client.listMessages(meeting_id, { after_seq, limit: 500 });
      messages.push(...page.data);
      const end = page.data.at(-1);
      if (!page.has_more || end === undefined) return { messages, has_earlier: loaded.has_earlier };
      after_seq = end.seq;
    }
  } catch (error) {
    // The page was opened before the first message of the meeting.
    if (error instanceof ConvokeError && error.code === 'meeting_does_not_exist')
      return { messages: [], has_earlier: false };
    throw error;
  }
}

async function deliveriesOf(
  meeting_id: string,
  messages: readonly Message[],
  known: ReadonlyMap<string, Delivery[]>,
): Promise<ReadonlyMap<string, Delivery[]>> {
  const oldest_seq = messages[0]?.seq;
  const found = new Map<string, Delivery[]>();
  if (oldest_seq === undefined) return found;
  let cursor: string | null = null;
  let seen_seq = Infinity;
  for (let pages = 0; pages < DELIVERY_PAGES_MAX; pages++) {
    const page: Awaited<ReturnType<typeof client.listDeliveries>> = await client.listDeliveries({
      meeting_id,
      limit: DELIVERIES_PAGE,
      ...(cursor !== null && { cursor }),
    });
    for (const delivery of page.data) {
      const others = found.get(delivery.message_id);
      if (others === undefined) found.set(delivery.message_id, [delivery]);
      else others.push(delivery);
    }
    cursor = page.next_cursor;
    seen_seq = cursor === null ? 0 : (page.data.at(-1)?.seq ?? 0);
    if (seen_seq < oldest_seq) break;
  }
  const all = new Map<string, Delivery[]>();
  for (const { message_id, seq } of messages) {
    const deliveries = found.get(message_id);
    // Deliveries of the message at which reading stopped may be missing, so that message is left out.
    if (seq > seen_seq) all.set(message_id, (deliveries ?? []).toSorted(byInstance));
    else if (known.has(message_id)) all.set(message_id, known.get(message_id) as Delivery[]);
    else if (deliveries !== undefined) all.set(message_id, deliveries.toSorted(byInstance));
  }
  return all;
}

function byInstance(a: Delivery, b: Delivery): number {
  return a.instance_id < b.instance_id ? -1 : 1;
}
