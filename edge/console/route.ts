// A route of the operator API, and who may call it.

import {
  type Audience,
  type RouteOf,
  type Route as RouteOfService,
  routeOf,
} from "../http/route.ts";
import { requireOperator } from "./bearer.ts";
import type { Console } from "./parameters.ts";

/** A route of the operator API. */
export type Route = RouteOfService<Console>;

/** Makes a route of the operator API. */
export const route: RouteOf<Console> = routeOf<Console>();

/** Whoever has an operator's token. */
export const operator: Audience = {
  schemes: { operatorToken: { type: "http", scheme: "bearer" } },
  guards: [requireOperator],
  errors: ["too_many_attempts"],
};
