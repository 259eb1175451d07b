import type { JSX } from 'preact';
import { lost_since } from '../lost.ts';
import { useObservable } from '../observable.ts';
import { other_version } from '../service.ts';
import { Mark } from './mark.tsx';
import { timeOfDay } from './time.tsx';

/** Says above a view since when its data may be stale, and that the service has another version than the page. */
export function LostBanner(): JSX.Element {
  const since = useObservable(lost_since);
  const version = useObservable(other_version);
  return (
    <div role="alert">
      {since !== null && (
        <p class="lost">
          <Mark kind="bad" /> Not connected since {timeOfDay(since)}; values are stale
        </p>
      )}
      {version !== null && (
        <p class="lost">
          <Mark kind="warning" /> Convoke {version} runs now, and this page is of another version.
          <button type="button" class="button" onClick={() => location.reload()}>
            Load the page again
          </button>
        </p>
      )}
    </div>
  );
}
