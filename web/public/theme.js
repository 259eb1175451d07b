// Runs before the first paint, so that the page never shows the other theme for a moment. Not a module: modules run
// later.
(() => {
  try {
    const theme = localStorage.getItem('theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // The browser stores nothing: the system's theme is used.
  }
})();
