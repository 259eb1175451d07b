/** What a view says of its data: that it is loading, that there is none, or why it could not be read. */
import type { ComponentChildren, JSX } from 'preact';
import type { ConvokeError } from '@convoke/sdk';
import { isAway, type Query, usePoll } from '../queries.ts';
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

interface FailureProps {
  problem: ConvokeError;
  again: () => void;
}

/** Asks again while the service is away. The feed may stay connected meanwhile, and then no event says when to ask. */
export function useAgain({ problem, again }: FailureProps): void {
  usePoll(() => isAway(problem) && again(), AGAIN_MS);
}

export function Failure({ problem, again }: FailureProps): JSX.Element {
  const is_away = isAway(problem);
  useAgain({ problem, again });
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

interface ProblemLineProps {
  what: string;
  problem: ConvokeError;
  children?: ComponentChildren;
}

/** One line above data: what is wrong with the data, and why. */
export function ProblemLine({ what, problem, children }: ProblemLineProps): JSX.Element {
  return (
    <p class="problem-line" role="alert">
      <Mark kind="bad" />
      <span>
        {what}: {isAway(problem) ? 'the service does not respond.' : problem.detail}
      </span>
      {children}
    </p>
  );
}

function OldData({ problem, again }: FailureProps): JSX.Element {
  useAgain({ problem, again });
  return (
    <ProblemLine what="Not up to date" problem={problem}>
      <button type="button" class="button" onClick={again}>
        Try again
      </button>
    </ProblemLine>
  );
}

interface ReadingProps {
  query: Query<unknown>;
  /** The lines of the placeholder. */
  lines?: number;
}

/** Shown in place of the value of a query while there is none, and above the value when it could not be read again. */
export function Reading({ query: { value, problem, again }, lines }: ReadingProps): JSX.Element | null {
  if (problem !== null && value !== null) return <OldData problem={problem} again={again} />;
  if (problem !== null) return <Failure problem={problem} again={again} />;
  return value === null ? <Skeleton lines={lines} /> : null;
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
export function Skeleton({ lines = 6 }: { lines?: number | undefined }): JSX.Element {
  return (
    <div class="skeleton" aria-hidden="true">
      {Array.from({ length: lines }, (_, i) => (
        <span key={i} class="bone" />
      ))}
    </div>
  );
}
