// The Studio's keys: each means one thing on a page, and is known on every keyboard.

import { expect, it } from "vitest";
import {
  isKey,
  KEYMAP,
  type KeyName,
  type KeyScope,
  type PressedKey,
} from "../../edge/studio/kit/keymap.ts";

// Of `Object.keys`, which does not keep the names of the table.
const names = Object.keys(KEYMAP) as KeyName[];
const scopeOf = (name: KeyName): KeyScope => KEYMAP[name].scope;
const pressed = (changes: Partial<PressedKey>): PressedKey => ({
  key: "",
  code: "",
  metaKey: false,
  ctrlKey: false,
  altKey: false,
  shiftKey: false,
  ...changes,
});

it("gives no key two meanings on one page", () => {
  const scopes = new Set(names.map(scopeOf));
  for (const scope of scopes) {
    const here = names.filter((name) => [scope, "everywhere"].includes(scopeOf(name)));
    const keys = here.map((name) => KEYMAP[name].keys.join(" "));
    expect(keys.filter((one, index) => keys.indexOf(one) !== index)).toEqual([]);
  }
});

it("knows letters by what they write, digits by where they lie, and signs by themselves", () => {
  const letter = { keys: ["A"] };
  expect(isKey(letter, pressed({ key: "a", code: "KeyQ" }))).toBe(true);
  expect(isKey(letter, pressed({ key: "A", code: "KeyA", shiftKey: true }))).toBe(false);
  expect(isKey({ keys: ["Shift", "A"] }, pressed({ key: "A", shiftKey: true }))).toBe(true);
  // AZERTY writes a sign where the digit lies.
  expect(isKey({ keys: ["1"] }, pressed({ key: "&", code: "Digit1" }))).toBe(true);
  expect(isKey({ keys: ["?"] }, pressed({ key: "?", code: "Minus", shiftKey: true }))).toBe(true);
  expect(isKey({ keys: ["Esc"] }, pressed({ key: "Escape" }))).toBe(true);
});

it("takes Command for Control, and neither where none is meant", () => {
  const find = { keys: ["Mod", "K"] };
  expect(isKey(find, pressed({ key: "k", ctrlKey: true }))).toBe(true);
  expect(isKey(find, pressed({ key: "k", metaKey: true }))).toBe(true);
  expect(isKey(find, pressed({ key: "k" }))).toBe(false);
  expect(isKey({ keys: ["N"] }, pressed({ key: "n", ctrlKey: true }))).toBe(false);
  expect(isKey({ keys: ["N"] }, pressed({ key: "n", altKey: true }))).toBe(false);
});
