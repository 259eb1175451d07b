// Before anything is painted, so that a chosen theme does not flash in from the other one. Not a module: those come late.
(() => {
  try {
    const theme = localStorage.getItem('theme');
    if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  } catch {
    // A browser that keeps nothing: the system's theme it is.
  }
})();
