import type { JSX } from 'preact';
import { useState } from 'preact/hooks';

/**
 * A section whose content is made only when somebody opens it, because the whole API would be fifty thousand elements.
 */
export function More({ title, children }: { title: string; children: () => JSX.Element }): JSX.Element {
  const [is_open, setOpen] = useState(false);
  return (
    <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary>{title}</summary>
      {is_open && children()}
    </details>
  );
}
