// Before anything is painted: the theme that was chosen, or none, and then the system's counts.
try {
  const chosen = localStorage.getItem('tenure.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden. Then the system's theme is the theme.
}
