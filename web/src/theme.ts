import { Observable } from './observable.ts';

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'theme';

/** The theme that the user chose; `theme.js` has applied it before the first paint. */
export const theme = new Observable<Theme>(chosen());

const dark = matchMedia('(prefers-color-scheme: dark)');
/** Counts changes of the colours. Charts are drawn on a canvas, so they must be drawn again after each change. */
export const colours = new Observable(0);
dark.addEventListener('change', () => (colours.value += 1));

export function choose(next: Theme): void {
  const { dataset } = document.documentElement;
  if (next === 'system') delete dataset['theme'];
  else dataset['theme'] = next;
  try {
    if (next === 'system') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // In a browser that stores nothing, the choice lasts until the page is closed.
  }
  theme.value = next;
  colours.value += 1;
}

function chosen(): Theme {
  const { theme } = document.documentElement.dataset;
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}
