/** The result of an action, shown once, on screen and to screen readers. */
import type { JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { shown } from '../format.ts';
import { errorOf, isAway } from '../queries.ts';
import { Observable, useObservable } from '../observable.ts';
import { inThisSession } from '../service.ts';
import { Mark } from './mark.tsx';
import { Icon } from './icons.tsx';

interface Notice {
  number: number;
  text: string;
  is_bad: boolean;
  undo: Undo | null;
}

/** Takes an action back. */
type Undo = () => Promise<unknown>;

const SHOWN_MS = 6000;
/** Time to read the result, and to take the action back. */
const UNDO_SHOWN_MS = 15_000;
const notice = new Observable<Notice | null>(null);
let number = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

interface NoticeOptions {
  is_bad?: boolean;
  /** Null: the action cannot be taken back. */
  undo?: Undo | null;
}

export function notify(text: string, { is_bad = false, undo = null }: NoticeOptions = {}): void {
  notice.value = { number: ++number, text, is_bad, undo };
  clearTimeout(timer);
  // A failure stays until the user closes it, so that nobody misses it.
  if (!is_bad) timer = setTimeout(() => (notice.value = null), undo === null ? SHOWN_MS : UNDO_SHOWN_MS);
}

export function showProblem(error: unknown): void {
  const found = errorOf(error);
  const { detail, errors } = found;
  if (isAway(found)) return notify('Not done: the service does not respond. Try again.', { is_bad: true });
  const fields = errors.map(({ path, message }) => `${path} ${message}`).filter((text) => !detail.includes(text));
  notify([detail, ...fields].join(' '), { is_bad: true });
}

export function forgetNotice(): void {
  notice.value = null;
}

/** Does something for the user and shows the result, with a button that takes the action back. */
export async function doing<T>(
  work: Promise<T>,
  done: (value: T) => string,
  undo: Undo | null = null,
): Promise<T | null> {
  try {
    const value = await inThisSession(work);
    notify(done(value), { undo });
    return value;
  } catch (error) {
    showProblem(error);
    return null;
  }
}

/** Names a dialog. */
type DialogRef = { readonly current: HTMLDialogElement | null };

/** The dialogs over the page, the topmost last. */
const dialogs = new Observable<readonly DialogRef[]>([]);

/** Moves the notice into a dialog, until the returned function is called: outside the topmost dialog nobody can press. */
export function coverPage(dialog: DialogRef): () => void {
  dialogs.value = [...dialogs.value, dialog];
  return () => (dialogs.value = dialogs.value.filter((each) => each !== dialog));
}

/** @param dialog the dialog of these notices; absent: the page */
export function Notices({ dialog }: { dialog?: DialogRef }): JSX.Element {
  const found = useObservable(notice);
  // The region is always there, because screen readers speak of what enters a region.
  const now = useObservable(dialogs).at(-1) === dialog ? found : null;
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => box.current?.showPopover(), [now]);
  return (
    <div class="notices" role="status" aria-live="polite">
      {now !== null && (
        <div class="notice" key={now.number} ref={box} popover="manual">
          <Mark kind={now.is_bad ? 'bad' : 'good'} />
          <span class="notice-text">{shown(now.text)}</span>
          {now.undo !== null && <UndoButton undo={now.undo} />}
          <button type="button" class="bare" onClick={forgetNotice}>
            <Icon name="close" />
            <span class="unseen">Close</span>
          </button>
        </div>
      )}
    </div>
  );
}

function UndoButton({ undo }: { undo: Undo }): JSX.Element {
  return (
    <button
      type="button"
      class="button"
      onClick={() => {
        // A second click must not undo it twice.
        notice.value = null;
        void doing(undo(), () => 'Undone.');
      }}
    >
      Undo
    </button>
  );
}
