/** The messages of a meeting: the visible ones and some around them. Scrolling loads the others. */
import type { JSX } from 'preact';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { MeetingInstance } from '@convoke/sdk';
import { feed } from '../feed.ts';
import { counted } from '../format.ts';
import { useObservable } from '../observable.ts';
import { notify, showProblem } from '../parts/notice.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { useFeed } from '../queries.ts';
import { go, usePlace } from '../router.ts';
import { client, inThisSession } from '../service.ts';
import { Conversation } from './conversation.ts';
import { MessageLine } from './message.tsx';
import { threadsOf } from './thread.tsx';

/** More messages are loaded when fewer screens than this are left to the end of the loaded ones. */
const SPARE_SCREENS = 2;
/** A reader who is at most this many pixels from the end counts as at the end. */
const END_PX = 2;

interface TranscriptProps {
  meeting_id: string;
  members: readonly MeetingInstance[];
  /** The seq of the newest message, as far as the meeting was read. */
  last_seq: number;
  /** Rises when the user sends a message: then the page shows the end. */
  sent: number;
}

export function Transcript({ meeting_id, members, last_seq, sent }: TranscriptProps): JSX.Element {
  const conversation = useConversation(meeting_id);
  const { lines, deliveries, problem, has_earlier, is_to_end, newest_seq } = useObservable(conversation.stretch);
  const names = useMemo(() => namesOf(members), [members]);
  const threads = useMemo(() => threadsOf(lines ?? []), [lines]);
  const [found, setFound] = useState<number | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  /** The message that is scrolled to as soon as it is in the document. */
  const wanted = useRef<number | 'end' | null>(null);
  const held = heldIn(scroller.current, conversation.is_followed);

  const grow = (): void => {
    const box = scroller.current;
    if (box === null || lines === null) return;
    // In a reversed column the end is 0, and positions above it are negative.
    const below = -box.scrollTop;
    const above = box.scrollHeight - box.clientHeight - below;
    // With few messages on a high screen the spare room is smaller. Otherwise a load at one end would trigger a load at
    // the other end.
    const spare = Math.min(SPARE_SCREENS * box.clientHeight, Math.max(END_PX, box.scrollHeight / 3 - box.clientHeight));
    conversation.is_followed = is_to_end && below <= END_PX;
    if (above <= spare) conversation.earlier();
    if (below <= spare) conversation.later();
  };
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    // The end is wanted, but the page may still show the messages from before the end was read.
    const is_early = wanted.current === 'end' && !is_to_end;
    if (is_early || !reach(box, wanted)) hold(box, held);
    // After a failure the user asks again, by scrolling or with the button.
    if (problem === null) grow();
  });

  const show = useCallback(
    async (seq: number | null): Promise<void> => {
      wanted.current = seq ?? 'end';
      setFound(seq);
      const is_there = await conversation.open(seq);
      // The user has left the page of the meeting meanwhile.
      if (scroller.current === null) return;
      // The wanted message may already be in the document: then nothing is drawn again.
      reach(scroller.current, wanted);
      const { problem, lines } = conversation.stretch.value;
      // When nothing was read, the page says so, and the next try leads to the message.
      if (is_there || (problem !== null && lines === null)) return;
      wanted.current = null;
      if (problem !== null) showProblem(problem);
      else notify(`Message #${seq} is not here: it was removed, or not sent yet.`, { is_bad: true });
    },
    [conversation],
  );
  const { hash, path } = usePlace();
  useEffect(() => void show(seqIn(hash)), [show, hash]);
  const showEnd = (): void => {
    // Removes the message from the address, which would lead back to it.
    go(path + location.search, { replace: true });
    void show(null);
  };
  useEffect(() => {
    if (sent > 0) showEnd();
  }, [sent]);
  const jump = useCallback(
    async (message_id: string): Promise<void> => {
      const here = conversation.stretch.value.lines?.find((line) => line.message_id === message_id);
      try {
        await show((here ?? (await inThisSession(client.getMessage(message_id, { limit: 1 })))).seq);
      } catch (error) {
        showProblem(error);
      }
    },
    [conversation, show],
  );
  const onJump = useCallback((message_id: string) => void jump(message_id), [jump]);

  const last = lines?.at(-1);
  const is_behind = last !== undefined && !(is_to_end && conversation.is_followed);
  const newer = is_behind ? Math.max(newest_seq, last_seq) - last.seq : 0;
  return (
    <div class="transcript-frame">
      {/* A reversed column with a single child stays scrolled to the end, without a script. */}
      <div
        class="transcript"
        tabIndex={0}
        role="log"
        aria-label="Messages"
        aria-live="off"
        ref={scroller}
        onScroll={grow}
      >
        <div class="transcript-lines">
          {lines === null && problem === null && <Skeleton />}
          {problem !== null && <Failure problem={problem} again={() => void conversation.refresh()} />}
          {lines?.length === 0 && (
            <Empty title="No messages yet">
              <p>Write the first message below.</p>
            </Empty>
          )}
          {has_earlier && problem === null && <p class="earlier faint">Earlier messages…</p>}
          {lines?.map((line) => (
            <MessageLine
              key={line.message_id}
              line={line}
              deliveries={deliveries.get(line.message_id) ?? null}
              names={names}
              thread={threads.get(line.message_id) ?? null}
              is_found={line.seq === found}
              onJump={onJump}
            />
          ))}
        </div>
      </div>
      {newer > 0 && (
        <button type="button" class="button newer" onClick={showEnd}>
          {counted(newer, 'newer message')} ↓
        </button>
      )}
    </div>
  );
}

function useConversation(meeting_id: string): Conversation {
  const conversation = useMemo(() => new Conversation(meeting_id), [meeting_id]);
  useEffect(() => {
    const stop = feed.listen((event) => conversation.note(event));
    return () => {
      stop();
      conversation.end();
    };
  }, [conversation]);
  useFeed(
    (event) =>
      event.meeting_id === meeting_id ||
      event.meeting_id === null ||
      (event.name.startsWith('instance.') && conversation.mayWaitFor(event.instance_id)),
    () => void conversation.refresh(),
  );
  return conversation;
}

function namesOf(members: readonly MeetingInstance[]): ReadonlyMap<string, string> {
  return new Map(members.map(({ instance_id, instance_name }) => [instance_id, instance_name || instance_id]));
}

/** `#42` leads to the message 42. */
function seqIn(hash: string): number | null {
  const [, digits] = /^#(\d{1,15})$/.exec(hash) ?? [];
  return digits === undefined ? null : Number(digits);
}

interface Held {
  message: Element;
  top: number;
}

/**
 * The visible messages and their places; none while the page follows the end. The page restores the places itself,
 * because browsers differ in which places they keep.
 */
function heldIn(box: HTMLElement | null, is_followed: boolean): Held[] {
  if (box === null || is_followed) return [];
  const { top, bottom } = box.getBoundingClientRect();
  const held: Held[] = [];
  for (const message of box.querySelectorAll('.message')) {
    const place = message.getBoundingClientRect();
    if (place.top >= bottom) break;
    if (place.bottom > top) held.push({ message, top: place.top });
  }
  return held;
}

/** Scrolls so that the visible messages keep their places, whatever was added above or below. */
function hold(box: HTMLElement, held: readonly Held[]): void {
  const stays = held.find(({ message }) => message.isConnected);
  if (stays === undefined) return;
  const moved_px = stays.message.getBoundingClientRect().top - stays.top;
  if (moved_px !== 0) box.scrollTop += moved_px;
}

/** Scrolls to the wanted message and gives it the focus; false while it is not in the document, or none is wanted. */
function reach(box: HTMLElement, wanted: { current: number | 'end' | null }): boolean {
  if (wanted.current === null) return false;
  if (wanted.current === 'end') {
    wanted.current = null;
    box.scrollTop = 0;
    return true;
  }
  const message = box.querySelector<HTMLElement>(`[data-seq="${wanted.current}"]`);
  if (message === null) return false;
  wanted.current = null;
  message.scrollIntoView({ block: 'nearest' });
  message.focus({ preventScroll: true });
  return true;
}
