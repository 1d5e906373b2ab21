// Query parameters that a route does not declare, and those given more than once. One that is
// mistyped must not be passed over: a read with `asof=` would answer with the latest data.

import type { Context } from "hono";
import { ISSUES_MAX, type Issue } from "./issues.ts";
import { meantName } from "./unknown-fields.ts";

/**
 * A problem for each query parameter of a request that its route does not declare, or that comes
 * more than once: no parameter of ours is a list.
 */
export function parameterIssues(context: Context, declared: readonly string[]): Issue[] {
  const given = Object.entries(context.req.queries());
  const repeated = given.flatMap(([field, values]) =>
    declared.includes(field) && values.length > 1
      ? [{ field, problem: `given ${values.length} times; give it once` }]
      : [],
  );
  const undeclared = given
    .map(([name]) => name)
    .filter((name) => !declared.includes(name))
    .map((name, index) => {
      // A comparison with all known names costs some thousands of operations.
      const meant = index < ISSUES_MAX ? meantName(name, declared) : null;
      const known =
        declared.length > 0 ? `this route knows ${declared.join(", ")}` : "none is known";
      const advice = meant ? `did you mean ${meant}?` : known;
      return { field: name.slice(0, 64), problem: `unknown parameter; ${advice}` };
    });
  return [...undeclared, ...repeated];
}
