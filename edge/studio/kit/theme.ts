// Light or dark: as the system has it, until somebody chooses.

const KEY = "vantage-theme";
const THEMES = ["light", "dark"] as const;

const systemTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

/** Shows the theme that was chosen before. */
export function showTheme(): void {
  const chosen = THEMES.find((theme) => theme === localStorage.getItem(KEY));
  if (chosen) document.documentElement.dataset.theme = chosen;
}

/** Changes to the other theme and remembers it. */
export function nextTheme(): void {
  const shown = document.documentElement.dataset.theme ?? systemTheme();
  const other = shown === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, other);
  document.documentElement.dataset.theme = other;
}
