// The icons that pages show, by their names at lucide.dev: the build puts these into the page.

export const ICONS = [
  ...(["folder-open", "grid-3x3", "scan-eye", "shield", "keyboard", "chevron-right"] as const),
  ...(["chevron-down", "cloud-check", "cloud-upload", "cloud-off", "check", "x", "plus"] as const),
  ...(["upload", "film", "image", "tag", "play", "square", "rotate-ccw", "search"] as const),
  ...(["triangle-alert", "circle-x", "link", "sun-moon", "log-out", "copy", "users"] as const),
  ...(["spline", "maximize-2", "git-compare", "undo-2", "redo-2", "book-open", "clock"] as const),
] as const;

/** The name of an icon. */
export type IconName = (typeof ICONS)[number];
