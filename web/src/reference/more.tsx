import type { JSX } from 'preact';
import { useState } from 'preact/hooks';

/** What is made only when somebody opens it: all of the API at once is fifty thousand elements. */
export function More({ title, children }: { title: string; children: () => JSX.Element }): JSX.Element {
  const [is_open, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>{title}</summary>
      {is_open && children()}
    </details>
  );
}
