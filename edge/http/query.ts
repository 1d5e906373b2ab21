// Query parameters that a route does not declare. One that is mistyped must not be passed over: a
// read with `asof=` would answer with the latest data.

import type { Context } from "hono";

/** A problem of a request, as the body of `invalid_request` lists it. */
export interface Issue {
  field: string;
  problem: string;
}

/** How many single-letter edits lead from one text to the other (Levenshtein). */
function editDistance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (const [index, letter] of [...left].entries()) {
    const next = [index + 1];
    for (let at = 0; at < right.length; at++) {
      const replaced = (row[at] as number) + (letter === right[at] ? 0 : 1);
      next.push(Math.min(replaced, (row[at + 1] as number) + 1, (next[at] as number) + 1));
    }
    row = next;
  }
  return row[right.length] as number;
}

const bare = (name: string) => name.toLowerCase().replace(/[^a-z0-9]/g, "");

/** The declared name that was most likely meant, or null when none resembles it. */
function nearest(name: string, declared: readonly string[]): string | null {
  const given = bare(name.slice(0, 64));
  const distances = declared.map((each) => ({ each, edits: editDistance(given, bare(each)) }));
  const best = distances.toSorted((one, other) => one.edits - other.edits)[0];
  return best && best.edits <= Math.max(1, bare(best.each).length / 3) ? best.each : null;
}

/** A problem for each query parameter of a request that its route does not declare. */
export function undeclaredParameters(context: Context, declared: readonly string[]): Issue[] {
  const given = Object.keys(context.req.queries());
  return given
    .filter((name) => !declared.includes(name))
    .map((name) => {
      const meant = nearest(name, declared);
      const known =
        declared.length > 0 ? `this route knows ${declared.join(", ")}` : "none is known";
      const advice = meant ? `did you mean ${meant}?` : known;
      return { field: name.slice(0, 64), problem: `unknown parameter; ${advice}` };
    });
}
