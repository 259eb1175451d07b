/**
 * uPlot formats numbers in the language of the browser from the moment it is loaded, and where that is no language tag
 * (`en-US@posix`, in a headless browser without a locale) it would throw, and leave the page blank. Imported before it.
 */
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, 'language', { value: 'en', configurable: true });
}
