import { type ComponentChildren, type JSX, toChildArray } from 'preact';
import { shown } from '../format.ts';

/**
 * Text that somebody else wrote. `<bdi>` keeps such text from reversing the text around it. Invisible characters are
 * shown as their codes, so that they cannot make two different ids look alike.
 */
export function Foreign({ class: name, children }: { class?: string; children?: ComponentChildren }): JSX.Element {
  return (
    <bdi class={name}>{toChildArray(children).map((child) => (typeof child === 'string' ? shown(child) : child))}</bdi>
  );
}
