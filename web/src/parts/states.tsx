/** Shown in a list instead of rows: that the list is loading, that it is empty, or why it could not be read. */
import type { ComponentChildren, JSX } from 'preact';
import type { ConvokeError } from '@convoke/sdk';
import { isAway, usePoll } from '../queries.ts';
import { Mark } from './mark.tsx';

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** The pause before a service that did not respond is asked again. */
const AGAIN_MS = 2000;

export function Failure({ problem, again }: { problem: ConvokeError; again: () => void }): JSX.Element {
  const is_away = isAway(problem);
  // The feed may be there all the time: then no event tells that the service responds again.
  usePoll(() => is_away && again(), AGAIN_MS);
  return (
    <div class="empty" role="alert">
      <p class="empty-title">
        <Mark kind="bad" /> {is_away ? 'The service does not respond' : 'That did not work'}
      </p>
      <p>
        {is_away ? 'Is it still running? This page continues by itself when the service responds.' : problem.detail}
      </p>
      <button type="button" class="button" onClick={again}>
        Try again
      </button>
    </div>
  );
}

/** Shown when no instance fails. Without any instance, nothing is called healthy. */
export function Healthy({ is_any_up, is_any_there }: { is_any_up: boolean; is_any_there: boolean }): JSX.Element {
  if (is_any_up) {
    return (
      <p class="panel-empty">
        <Mark kind="good" /> All instances are healthy
      </p>
    );
  }
  return (
    <p class="panel-empty">
      <Mark kind="off" /> {is_any_there ? 'No instance was tried yet' : 'No instances yet'}
    </p>
  );
}

/** A placeholder while the content is loading, so that the page does not jump. */
export function Skeleton({ lines = 6 }: { lines?: number }): JSX.Element {
  return (
    <div class="skeleton" aria-hidden="true">
      {Array.from({ length: lines }, (_, i) => (
        <span key={i} class="bone" />
      ))}
    </div>
  );
}
