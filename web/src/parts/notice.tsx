/** The result of an action, shown once, on screen and to screen readers. */
import type { JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { errorOf, isAway } from '../queries.ts';
import { Observable, useObservable } from '../observable.ts';
import { Mark } from './mark.tsx';
import { Icon } from './icons.tsx';

interface Notice {
  number: number;
  text: string;
  is_bad: boolean;
}

const SHOWN_MS = 6000;
const notice = new Observable<Notice | null>(null);
let number = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

export function notify(text: string, { is_bad = false } = {}): void {
  notice.value = { number: ++number, text, is_bad };
  clearTimeout(timer);
  // A failure stays until the user closes it, so that nobody misses it.
  if (!is_bad) timer = setTimeout(() => (notice.value = null), SHOWN_MS);
}

export function showProblem(error: unknown): void {
  const { code, detail, errors } = errorOf(error);
  if (isAway(code)) return notify('Not done: the service does not answer. Try again.', { is_bad: true });
  const fields = errors.map(({ path, message }) => `${path} ${message}`).filter((text) => !detail.includes(text));
  notify([detail, ...fields].join(' '), { is_bad: true });
}

/** Does something for the user and shows the result. */
export async function doing<T>(work: Promise<T>, done: (value: T) => string): Promise<T | null> {
  try {
    const value = await work;
    notify(done(value));
    return value;
  } catch (error) {
    showProblem(error);
    return null;
  }
}

/** Dialogs that were opened later than the notice cover it until it is raised again. */
export function raiseNotices(): void {
  document.querySelector<HTMLElement>('.notice')?.hidePopover();
  document.querySelector<HTMLElement>('.notice')?.showPopover();
}

export function Notices(): JSX.Element {
  const shown = useObservable(notice);
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => box.current?.showPopover(), [shown]);
  return (
    <div class="notices" role="status" aria-live="polite">
      {shown !== null && (
        <div class="notice" key={shown.number} ref={box} popover="manual">
          <Mark kind={shown.is_bad ? 'bad' : 'good'} />
          <span class="notice-text">{shown.text}</span>
          <button type="button" class="bare" onClick={() => (notice.value = null)}>
            <Icon name="close" />
            <span class="unseen">Close</span>
          </button>
        </div>
      )}
    </div>
  );
}
