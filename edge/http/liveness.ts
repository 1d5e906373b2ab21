// The probe of a service whose spec asks for no more.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { type Pair, requireOwnBucket } from "./bucket-identity.ts";
import { assertWritable, isUnavailable, problemOf } from "./database.ts";
import { anybody, json, LIVENESS, type Route, routeOf } from "./route.ts";

const Liveness = z.object({
  status: z.enum(["ok", "degraded"]).meta({
    description: "degraded: the process lives, its database cannot be worked with",
  }),
  detail: z.string().optional().meta({
    description: "what is wrong, where something is",
    example: "the database does not answer",
  }),
});

/**
 * `GET /healthz` of a service whose spec asks for no more: does its database answer, does it take
 * writes, and is the bucket its own? The pair's database is a handle that gives up early; `table`
 * is one that the service needs.
 */
export const livenessRoute = <Opened>({
  pairOf,
  table,
}: {
  pairOf: (opened: Opened) => Pair;
  table: string;
}): Route<Opened> =>
  routeOf<Opened>()(
    {
      call: `GET ${LIVENESS}`,
      operationId: "readHealth",
      tag: "Health",
      summary: "Liveness",
      description:
        "Open: needs no credential. Answers within 2 seconds. `degraded`: the process lives, its database does " +
        "not answer or takes no writes, or the bucket is another database's; `detail` says which.",
      who: anybody,
      answers: { 200: json("liveness", Liveness) },
      never: ["store_unavailable"],
    },
    async (context) => {
      try {
        const pair = pairOf(context.var.service);
        await assertWritable(pair.database, table);
        await requireOwnBucket(pair);
        return context.json({ status: "ok" as const }, 200);
      } catch (thrown) {
        const known = thrown instanceof Failure ? thrown.message : null;
        if (known === null && !isUnavailable(thrown)) throw thrown;
        context.var.log.error("health", { error: thrown });
        const detail = known ?? problemOf(thrown);
        return context.json({ status: "degraded" as const, detail }, 200);
      }
    },
  );
