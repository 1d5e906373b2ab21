// What a room of vision brings to the service.

import type { Parts } from "./parts.ts";
import type { Retention } from "./retention.ts";
import type { Route } from "./route.ts";

/** What every minute brings, by names for the log. One that fails keeps none of the others. */
export type Duties = Readonly<Record<string, (parts: Parts) => Promise<unknown>>>;

/** A room of vision. */
export interface Room {
  routes: readonly Route[];
  /** In the order in which they are performed. */
  duties?: Duties;
  /** How long its rows are kept, where they are not kept for ever. */
  keeps?: readonly Retention[];
  /** What operators are told of: each notices what began and what is over. */
  incidents?: Duties;
}
