import type { JSX } from 'preact';
import { distanceInWords } from '../format.ts';
import { Observable, useObservable } from '../observable.ts';

/** One clock for the whole page. */
const now = new Observable(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

/** How long ago, with the exact time on hover. */
export function Ago({ at, never = 'never' }: { at: string | null; never?: string }): JSX.Element {
  const now_ms = useObservable(now);
  if (at === null) return <span class="faint">{never}</span>;
  return (
    <time dateTime={at} title={exact(at)}>
      {distanceInWords(Date.parse(at), now_ms)}
    </time>
  );
}

/** The time of day, with the date when it is another day; the exact time on hover. */
export function At({ at }: { at: string }): JSX.Element {
  return (
    <time dateTime={at} title={exact(at)}>
      {timeOfDay(at)}
    </time>
  );
}

export function timeOfDay(at: string | number): string {
  const time = new Date(at);
  const is_today = time.toDateString() === new Date().toDateString();
  const clock = time.toLocaleTimeString('en-GB');
  return is_today ? clock : `${time.toLocaleDateString('en-GB', { day: 'numeric', month: 'short' })} ${clock}`;
}

/** `21 November 2026 at 13:04:05.678 UTC+1 · 2026-11-21T12:04:05.678Z`. */
function exact(at: string): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return at;
  return `${time.toLocaleString('en-GB', { dateStyle: 'long', timeStyle: 'long' })} · ${at}`;
}
