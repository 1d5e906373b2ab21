// A route of vision, as every room declares it.

import {
  type Audience,
  anybody as everybody,
  type RouteOf,
  type Route as RouteOfService,
  routeOf,
} from "../../http/route.ts";
import type { Parts } from "./parts.ts";

/** A route of vision. Its path is behind `API`. */
export type Route = RouteOfService<Parts>;

/** Makes a route of vision. */
export const route: RouteOf<Parts> = routeOf<Parts>();

/** The audience of a route that needs no credential. */
export const anybody: Audience = { ...everybody, description: "Open: needs no access token." };
