import { Observable } from './observable.ts';

export type Theme = 'system' | 'light' | 'dark';

const KEY = 'theme';

/** What the user chose; `theme.js` has applied it before the first paint. */
export const theme = new Observable<Theme>(chosen());

const dark = matchMedia('(prefers-color-scheme: dark)');
/** Counts changes of the colours that are in effect: charts are drawn, not styled, and must be drawn again. */
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
    // It holds until the page is closed.
  }
  theme.value = next;
  colours.value += 1;
}

function chosen(): Theme {
  const { theme } = document.documentElement.dataset;
  return theme === 'light' || theme === 'dark' ? theme : 'system';
}
