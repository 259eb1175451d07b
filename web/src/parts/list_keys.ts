/**
 * The keys that move through a list. They work wherever the focus is, but not in a field of text and not while a dialog
 * is open. Where the arrow keys scroll or choose something, only j and k work.
 */
import { useLayoutEffect, useRef } from 'preact/hooks';
import { isPrefixed, isWriting } from '../keyboard.ts';

interface ListKeys {
  scroller: { current: HTMLElement | null };
  /** How many rows Page Up and Page Down pass. */
  page: number;
  count: number;
  start: () => number;
  focusRow: (index: number) => void;
}

export function useListKeys(keys: ListKeys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useLayoutEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
      if (isPrefixed() || document.querySelector('dialog[open]') !== null) return;
      const { scroller, page, count, start, focusRow } = latest.current;
      const target = event.target instanceof Element ? event.target : document.body;
      // In these elements the arrow keys scroll or choose.
      if (target.closest('.detail, input, [tabindex="0"]') !== null && event.key !== 'j' && event.key !== 'k') return;
      const row = target.closest('[data-row]');
      const at = row === null ? null : Number(row.getAttribute('data-row'));
      const by = (step: number): number => (at === null ? start() : at + step);
      const steps: Record<string, () => number> = {
        ArrowDown: () => by(1),
        j: () => by(1),
        ArrowUp: () => by(-1),
        k: () => by(-1),
        PageDown: () => by(page),
        PageUp: () => by(-page),
        Home: () => 0,
        End: () => count - 1,
      };
      if (event.key === 'Enter') {
        if (target.closest('a, button, summary') !== null) return;
        event.preventDefault();
        focusRow(start());
        scroller.current?.querySelector<HTMLElement>('.row-link:focus')?.click();
        return;
      }
      const next = steps[event.key];
      if (next === undefined) return;
      event.preventDefault();
      focusRow(next());
    };
    document.addEventListener('keydown', onKeyDown);
    return () => document.removeEventListener('keydown', onKeyDown);
  }, []);
}
