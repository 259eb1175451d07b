import type { JSX } from 'preact';

/** Says how far a list was searched when its latest page was not full, and goes on when somebody asks for it. */
export function Searched({ to, more }: { to: string | null; more: () => void }): JSX.Element {
  return (
    <p class="searched">
      <span class="grow">
        {to === null ? 'There are more.' : `Searched back to ${new Date(to).toLocaleString('en-GB')}.`}
      </span>
      <button type="button" class="button" onClick={more}>
        Search further
      </button>
    </p>
  );
}
