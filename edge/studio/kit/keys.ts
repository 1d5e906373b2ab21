// Keys as pages listen to them: none while somebody types, composes a character or sees a dialog.

import { useLayoutEffect, useRef } from "preact/hooks";
import { isKey, KEYMAP, type KeyName } from "./keymap.ts";

const TYPES = "input:not([type=checkbox],[type=radio],[type=range]), textarea, select";

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.matches(TYPES) || target.isContentEditable);

/** What each key of a page does; a handler that gives false leaves the key to the browser. */
export type KeyHandlers = Partial<Record<KeyName, () => unknown>>;

/** Has a component listen to keys as long as it is shown. */
export function useKeys(handlers: KeyHandlers): void {
  const held = useRef(handlers);
  held.current = handlers;
  // At once: a key may be pressed as soon as the page is seen.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.isComposing || event.defaultPrevented) return;
      const hasDialog = document.querySelector("dialog[open]") !== null;
      for (const [name, handle] of Object.entries(held.current)) {
        const entry = KEYMAP[name as KeyName]; // The keys of `KeyHandlers` are these names.
        if (!isKey(entry, event)) continue;
        const isFree = entry.keys.some((key) => key === "Esc");
        if (!isFree && isTyping(event.target)) continue;
        if (hasDialog) continue;
        if (handle() === false) continue;
        event.preventDefault();
        return;
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}
