import type { JSX } from 'preact';
import type { ConvokeError } from '@convoke/sdk';
import { counted } from '../format.ts';
import { isAway } from '../queries.ts';
import { Mark } from './mark.tsx';
import { useAgain } from './states.tsx';

interface ListFootProps {
  count: number;
  problem: ConvokeError | null;
  again: () => void;
  is_complete: boolean;
  is_partly_sorted: boolean;
  news: number;
  is_moved: boolean;
  is_paused: boolean;
  onPause: () => void;
  onCatchUp: () => void;
}

/**
 * The line of a list with the number of rows, the number of new rows, and the pause. It is beneath the list, so that a
 * change of the line moves no row.
 */
export function ListFoot(props: ListFootProps): JSX.Element {
  const { count, problem, again, is_complete, is_partly_sorted, news, is_moved, is_paused, onPause, onCatchUp } = props;
  return (
    <div class="list-foot">
      <span class="faint clip grow">
        {is_complete ? counted(count, 'row') : `the first ${count.toLocaleString('en')}`}
        {is_partly_sorted && ', sorted among themselves'}
      </span>
      {problem !== null && <ListProblem problem={problem} again={again} />}
      {(news > 0 || is_moved) && (
        <button type="button" class="button primary" onClick={onCatchUp}>
          {news > 0 ? `${news.toLocaleString('en')} new ↑` : 'Sort again'}
        </button>
      )}
      <button type="button" class="button" onClick={onPause}>
        {is_paused ? 'Resume the list' : 'Pause the list'}
      </button>
    </div>
  );
}

function ListProblem({ problem, again }: { problem: ConvokeError; again: () => void }): JSX.Element {
  useAgain({ problem, again });
  return (
    <>
      <span class="list-problem" role="alert">
        <Mark kind="bad" />
        <span class="clip">{isAway(problem) ? 'The service does not respond' : problem.detail}</span>
      </span>
      <button type="button" class="button" onClick={again}>
        Try again
      </button>
    </>
  );
}
