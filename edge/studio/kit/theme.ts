// Light or dark: as the system has it, until somebody chooses.

const KEY = "vantage-theme";
const THEMES = ["light", "dark"] as const;

const systemTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

/** The theme that was chosen; null also where the browser gives no storage. */
function storedTheme(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Shows the theme that was chosen before. */
export function showTheme(): void {
  const chosen = THEMES.find((theme) => theme === storedTheme());
  if (chosen) document.documentElement.dataset.theme = chosen;
}

/** Changes to the other theme and remembers it. */
export function nextTheme(): void {
  const shown = document.documentElement.dataset.theme ?? systemTheme();
  const other = shown === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, other);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  document.documentElement.dataset.theme = other;
}
