// Every key of the Studio, once: where it holds and what it does. The list of keys, the hints
// beside actions, the keys that pages listen to and the tests are made from this table.

/** Where keys hold: on every page, or on one kind of page. */
export type KeyScope = "everywhere" | "projects" | "project" | "job";

/** A key and what it does. */
interface KeyEntry {
  scope: KeyScope;
  /**
   * As a person reads it, of these parts: `Mod` (Command on a Mac, Control elsewhere), `Shift`, and
   * a key by its name. A letter is known by what it writes, a digit by where it lies.
   */
  keys: readonly string[];
  does: string;
}

export const KEYMAP = {
  help: { scope: "everywhere", keys: ["?"], does: "Show all keys" },
  close: { scope: "everywhere", keys: ["Esc"], does: "Close what lies over the page" },
  newProject: { scope: "projects", keys: ["N"], does: "New project" },
  search: { scope: "projects", keys: ["/"], does: "Search by name" },
  upload: { scope: "project", keys: ["U"], does: "Choose files to upload" },
  label: { scope: "project", keys: ["L"], does: "Label the videos" },
} as const satisfies Record<string, KeyEntry>;

/** The name of a key's action. */
export type KeyName = keyof typeof KEYMAP;

/** The part of a pressed key's event that decides which key it is. */
export interface PressedKey {
  key: string;
  code: string;
  metaKey: boolean;
  ctrlKey: boolean;
  altKey: boolean;
  shiftKey: boolean;
}

const NAMES: Readonly<Record<string, string>> = { Esc: "Escape", "↵": "Enter", Space: " " };

/** Whether a pressed key is the one of an action. */
export function isKey({ keys }: Pick<KeyEntry, "keys">, pressed: PressedKey): boolean {
  const name = keys.at(-1) ?? "";
  const wantsMod = keys.includes("Mod");
  const wantsShift = keys.includes("Shift");
  if ((pressed.metaKey || pressed.ctrlKey) !== wantsMod || pressed.altKey) return false;
  if (/^\d$/.test(name)) return pressed.code === `Digit${name}` && pressed.shiftKey === wantsShift;
  if (/^[A-Z]$/.test(name)) {
    return pressed.key.toUpperCase() === name && pressed.shiftKey === wantsShift;
  }
  // Where a sign needs Shift is the keyboard's own.
  return pressed.key === (NAMES[name] ?? name);
}
