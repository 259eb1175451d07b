/**
 * uPlot formats numbers in the language of the browser as soon as it is loaded. Some browsers give no valid language
 * tag (`en-US@posix`, a headless browser without a locale). Then uPlot would throw, and leave the page blank. So the
 * page imports this file before uPlot.
 */
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, 'language', { value: 'en', configurable: true });
}
