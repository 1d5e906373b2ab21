// Keys of named endpoints over HTTP. What is done with keys is in the audit log.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { EndpointKey } from "../../../../shared/wire/endpoints.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { type Route, route } from "../../base/route.ts";
import { endpointFor } from "./access.ts";
import { KeyBody } from "./bodies.ts";
import { createKey, listKeys, revokeKey } from "./keys.ts";
import { slugParam, slugQuery } from "./routes.ts";
import type { RateLimit } from "./token-bucket.ts";

const tag = "Endpoints";
/** Predictions at once, where the key does not say: those of so many seconds. */
const BURST_SECONDS = 10;

function limitOf({
  requests_per_minute: requestsPerMinute,
  burst,
}: z.output<typeof KeyBody>): RateLimit | null {
  if (requestsPerMinute !== null) {
    const enough = Math.max(1, Math.ceil((requestsPerMinute * BURST_SECONDS) / 60));
    return { requestsPerMinute, burst: burst ?? enough };
  }
  if (burst === null) return null;
  throw new Failure("invalid_request", "burst: only with requests_per_minute");
}

/** Routes of keys. */
export const endpointKeyRoutes: readonly Route[] = [
  route(
    {
      call: "POST /endpoints/{slug}/keys",
      operationId: "makeEndpointKey",
      tag,
      summary: "A key that opens a named endpoint",
      description:
        "Beyond the contract; for engineers. Sent as `Authorization: Bearer`, it opens predictions and " +
        "the status of this endpoint, and nothing else, until it is revoked. It is shown only here. " +
        "With `requests_per_minute` it is limited by a token bucket: `burst` predictions at once, and " +
        "as many a minute in the long run; who comes sooner is answered 429 and `Retry-After`. At " +
        "most 100 that open.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      body: jsonBody(KeyBody),
      answers: {
        201: json(
          "the key",
          EndpointKey.extend({
            key: z.string().meta({ description: "for `Authorization: Bearer`; shown only here" }),
          }).meta({ id: "NewEndpointKey" }),
        ),
      },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await endpointFor(context, name, "engineer");
      const body = context.req.valid("json");
      const key = { name: body.name, limit: limitOf(body), act: actOf(context, "makeEndpointKey") };
      const made = await createKey(parts, row, key);
      return context.json({ ...made.record, key: made.text }, 201);
    },
  ),
  route(
    {
      call: "GET /endpoints/{slug}/keys",
      operationId: "listEndpointKeys",
      tag,
      summary: "Keys of a named endpoint, the newest first",
      description: "Beyond the contract; for engineers. Revoked ones too; none is shown whole.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      answers: { 200: json("keys", z.array(EndpointKey)) },
      errors: ["forbidden"],
    },
    async (context) => {
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await endpointFor(context, name, "engineer");
      return context.json(await listKeys(context.var.service.database, row), 200);
    },
  ),
  route(
    {
      call: "DELETE /endpoints/{slug}/keys/{key_id}",
      operationId: "revokeEndpointKey",
      tag,
      summary: "Revoke a key of a named endpoint",
      description: "Beyond the contract; for engineers. It opens nothing from then on.",
      who: user,
      params: slugParam.extend({ key_id: z.uuid().meta({ description: "the key's id" }) }),
      query: z.object(slugQuery),
      answers: { 204: { description: "it is revoked" } },
    },
    async (context) => {
      const parts = context.var.service;
      const { slug, key_id: keyId } = context.req.valid("param");
      const row = await endpointFor(context, { slug, ...context.req.valid("query") }, "engineer");
      await revokeKey(parts.database, row, { keyId, act: actOf(context, "revokeEndpointKey") });
      return context.body(null, 204);
    },
  ),
];
