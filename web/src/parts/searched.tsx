import type { JSX } from 'preact';
import { Foreign } from './foreign.tsx';

interface SearchedProps {
  to: string | null;
  /** Whether the list is in the order of ids, so that `to` is an id and not a time. */
  is_by_id?: boolean;
  more: () => void;
}

/** Says how far a list was searched when its latest page was not full, and goes on when somebody asks for it. */
export function Searched({ to, is_by_id = false, more }: SearchedProps): JSX.Element {
  return (
    <p class="searched">
      <span class="grow">
        {to === null ? (
          'There are more.'
        ) : is_by_id ? (
          <>
            Searched up to the id <Foreign>{to}</Foreign>.
          </>
        ) : (
          `Searched back to ${new Date(to).toLocaleString('en-GB')}.`
        )}
      </span>
      <button type="button" class="button" onClick={more}>
        Search further
      </button>
    </p>
  );
}
