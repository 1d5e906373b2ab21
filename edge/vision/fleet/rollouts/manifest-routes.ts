// What a device asks for by its own token: the manifest of what it is to run, and the file.

import { z } from "@hono/zod-openapi";
import { SignedManifest } from "../../../../shared/wire/rollouts.ts";
import { headers } from "../../../http/description.ts";
import { json } from "../../../http/route.ts";
import { type Route, route } from "../../base/route.ts";
import { device, deviceOf } from "../devices/access.ts";
import { deviceParam } from "../devices/bodies.ts";
import { artifactOf, manifestOf } from "./manifests.ts";

const tag = "Device protocol";
/** Routes of manifests and files. */
export const manifestRoutes: readonly Route[] = [
  route(
    {
      call: "GET /devices/{device_id}/manifest",
      operationId: "readManifest",
      tag,
      summary: "What a device is to run, signed",
      description:
        "Beyond the contract. The signature is of the manifest's very bytes; a device " +
        "verifies it with a key that it knows before it reads them. 404: nothing is wanted of it.",
      who: device,
      params: deviceParam,
      answers: { 200: json("the manifest", SignedManifest) },
    },
    async (context) =>
      context.json(await manifestOf(context.var.service, deviceOf(context).deviceId), 200),
  ),
  route(
    {
      call: "GET /devices/{device_id}/artifact",
      operationId: "readDeviceArtifact",
      tag,
      summary: "The file of a device's manifest",
      description:
        "Beyond the contract. Leads to an address that is valid for 15 minutes and takes " +
        "`Range`, so that a broken download goes on; the token is not to be sent there.",
      who: device,
      params: deviceParam,
      query: z.object({
        version: z
          .string()
          .regex(/^[1-9]\d{0,17}$/, "must be a manifest's version")
          .meta({ description: "the manifest's: 409 where another one is wanted by now" }),
      }),
      answers: { 302: { description: "to the file", headers: headers("Location") } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { version } = context.req.valid("query");
      const { deviceId: id } = deviceOf(context);
      return context.redirect(await artifactOf(context.var.service, id, version), 302);
    },
  ),
];
