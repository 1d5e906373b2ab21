// A route of the read API, and who may call it.

import type { MiddlewareHandler } from "hono";
import { requireApiKey } from "../http/keys.ts";
import {
  type Audience,
  type RouteOf,
  type Route as RouteOfService,
  routeOf,
} from "../http/route.ts";
import type { ReadApi } from "./service.ts";

/** A route of the read API. */
export type Route = RouteOfService<ReadApi>;

/** Makes a route of the read API. */
export const route: RouteOf<ReadApi> = routeOf<ReadApi>();

/** Whoever has the key of data endpoints: the graph has a database of its own. */
export const graphReader: Audience = {
  schemes: { apiKey: { type: "apiKey", in: "header", name: "X-API-Key" } },
  guards: [
    requireApiKey((context) => (context.get("service") as ReadApi).config.SERVICE_READ_API_KEY),
  ],
};

const assertReader: MiddlewareHandler = async (context, next) => {
  await (context.get("service") as ReadApi).assertReader();
  await next();
};

/** Whoever has that key, where the service can read the store and do no more. */
export const reader: Audience = {
  schemes: graphReader.schemes,
  guards: [...graphReader.guards, assertReader],
};
