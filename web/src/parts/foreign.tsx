import { type ComponentChildren, type JSX, toChildArray } from 'preact';
import { shown } from '../format.ts';

/**
 * Text that others chose: it turns nothing around but itself, and hides nothing. `<bdi>` does the first; what is invisible is
 * written by its code, so that two ids that look alike do so by their letters only.
 */
export function Foreign({ class: name, children }: { class?: string; children?: ComponentChildren }): JSX.Element {
  return (
    <bdi class={name}>{toChildArray(children).map((child) => (typeof child === 'string' ? shown(child) : child))}</bdi>
  );
}
