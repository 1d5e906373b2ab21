// Cursors of lists: the position of a page's last entry as text. Only the list that made a cursor
// reads it.

import type { z } from "zod";

/** The text of a position. */
export const cursorText = (position: readonly (string | number | null)[]): string =>
  btoa(JSON.stringify(position)).replaceAll("=", "");

/** The position that a cursor holds; null for a text that is no cursor of this shape. */
export function readCursor<Position>(shape: z.ZodType<Position>, text: string): Position | null {
  try {
    return shape.parse(JSON.parse(atob(text)));
  } catch {
    return null;
  }
}
