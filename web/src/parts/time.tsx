import type { JSX } from 'preact';
import { distanceInWords } from '../format.ts';
import { Observable, useObservable } from '../observable.ts';

/** One clock for the whole page. */
const now = new Observable(Date.now());
/** The day in words, which changes at midnight. */
const today = new Observable(new Date().toDateString());
setInterval(() => {
  if (document.hidden) return;
  now.value = Date.now();
  today.value = new Date().toDateString();
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
  useObservable(today);
  return (
    <time dateTime={at} title={exact(at)}>
      {timeOfDay(at)}
    </time>
  );
}

/** The time of day as text: with the date on another day, and with the year in another year. */
export function timeOfDay(at: string | number): string {
  const time = new Date(at);
  const now = new Date();
  const clock = time.toLocaleTimeString('en-GB');
  if (time.toDateString() === now.toDateString()) return clock;
  const year = time.getFullYear() === now.getFullYear() ? {} : ({ year: 'numeric' } as const);
  return `${time.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', ...year })} ${clock}`;
}

/** `21 November 2026 at 13:04:05.678 UTC+1 · 2026-11-21T12:04:05.678Z`. */
function exact(at: string): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return at;
  return `${time.toLocaleString('en-GB', { dateStyle: 'long', timeStyle: 'long' })} · ${at}`;
}
