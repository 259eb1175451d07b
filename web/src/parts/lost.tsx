import type { JSX } from 'preact';
import { lost_since } from '../lost.ts';
import { useObservable } from '../observable.ts';
import { Mark } from './mark.tsx';
import { timeOfDay } from './time.tsx';

/** Says above a view since when its data may be stale. */
export function LostBanner(): JSX.Element {
  const since = useObservable(lost_since);
  return (
    <div role="alert">
      {since !== null && (
        <p class="lost">
          <Mark kind="bad" /> Not connected since {timeOfDay(since)}; values are stale
        </p>
      )}
    </div>
  );
}
