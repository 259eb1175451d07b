// Runs before the first paint, so that a chosen theme does not flash in from the other one. Not a module: modules run
// later.
(() => {
  try {
    const theme = localStorage.getItem('theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // The browser stores nothing: the system's theme is used.
  }
})();
