/** The keyboard shortcuts that work in every view, and the dialog that lists them. */
import type { JSX } from 'preact';
import { useLayoutEffect } from 'preact/hooks';
import { beginPrefix, endPrefix, isPrefixed, isWriting } from '../keyboard.ts';
import { is_portal } from '../portal.ts';
import { go } from '../router.ts';
import { type Section, SECTIONS } from '../sections.ts';
import { Dialog } from './dialog.tsx';

/** The keys that open the search, as the keyboard names them. */
export const SEARCH_KEY = /Mac|iPhone|iPad/.test(navigator.userAgent) ? '⌘K' : 'Ctrl K';

/** Listens for the shortcuts of all views. */
export function useShortcuts({ onHelp, onSearch }: { onHelp: () => void; onSearch: () => void }): void {
  // Runs before the browser paints, because a user may press a key as soon as the view is there.
  useLayoutEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k' && !event.altKey && !event.shiftKey) {
        event.preventDefault();
        if (document.querySelector('dialog[open]') === null) onSearch();
        return;
      }
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector('dialog[open]') !== null) return;
      if (event.key === 'Escape') return leave(event);
      if (isWriting(event.target)) return;
      if (isPrefixed()) {
        endPrefix();
        const section = SECTIONS.find(({ key }) => key === event.key);
        if (section === undefined || section.is_shown?.() === false) return;
        event.preventDefault();
        return go(section.path);
      }
      if (event.key === 'g') beginPrefix();
      if (event.key === '?') onHelp();
      if (event.key === '/') {
        event.preventDefault();
        const filter = document.querySelector<HTMLInputElement>('[data-filter="first"]');
        filter?.focus();
        filter?.select?.();
      }
    };
    document.addEventListener('keydown', onKeyDown);
    return () => document.removeEventListener('keydown', onKeyDown);
  }, []);
}

/** Escape first leaves the field with the cursor. Pressed again, it closes the item beside the list. */
function leave(event: KeyboardEvent): void {
  if (isWriting(event.target)) return (event.target as HTMLElement).blur();
  const detail = document.querySelector<HTMLElement>('.detail[data-back]');
  if (detail === null) return;
  go(detail.dataset['back'] as string);
  // The focus returns to the row that opened the detail, if the list still shows that row.
  document.querySelector<HTMLElement>('.row.is-selected .row-link')?.focus();
}

/** The list of the shortcuts. */
export function Help({ sections, onClose }: { sections: readonly Section[]; onClose: () => void }): JSX.Element {
  const keys: readonly (readonly [readonly string[], string])[] = [
    ...sections.map(({ key, name }) => [['g', key], name] as const),
    [[SEARCH_KEY], is_portal ? 'Search instances and deliveries' : 'Search every id and message'],
    [['/'], 'To the filter'],
    [['j'], 'Next row, also with the arrow keys'],
    [['k'], 'Row before'],
    [['Enter'], 'Open the row'],
    [['Esc'], 'Close what is open'],
    [['?'], 'This help'],
  ];
  return (
    <Dialog title="Keyboard" onClose={onClose}>
      <dl class="shortcuts">
        {keys.map(([pressed, what]) => (
          <div key={what}>
            <dt>
              {pressed.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      {!is_portal && (
        <p class="hint">
          The API is described at <a href="/docs/">/docs/</a>.
        </p>
      )}
    </Dialog>
  );
}
