// What a device asks for by its own token: the manifest of what it is to run, and the file.

import { createRoute, z } from "@hono/zod-openapi";
import { SignedManifest } from "../../../../shared/wire/rollouts.ts";
import { type App, json } from "../../../http/app.ts";
import { headers } from "../../../http/description.ts";
import { API, conflict } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { authenticateDevice, deviceOf, deviceToken } from "../devices/access.ts";
import { deviceParam } from "../devices/bodies.ts";
import { deviceErrors } from "../devices/protocol-routes.ts";
import { artifactOf, manifestOf } from "./manifests.ts";

const tags = ["Device protocol"];
const guarded = { middleware: authenticateDevice(), security: deviceToken };

/** Registers the routes of manifests and files. */
export function addManifestRoutes(app: App<Parts>) {
  const manifest = createRoute({
    method: "get",
    path: `${API}/devices/{device_id}/manifest`,
    operationId: "readManifest",
    tags,
    summary: "What a device is to run, signed",
    description:
      "Beyond the contract. The signature is of the manifest's very bytes; a device " +
      "verifies it with a key that it knows before it reads them. 404: nothing is wanted of it.",
    ...guarded,
    request: { params: deviceParam },
    responses: { 200: json("the manifest", SignedManifest), ...deviceErrors },
  });
  app.openapi(manifest, async (context) =>
    context.json(await manifestOf(context.var.service, deviceOf(context).deviceId), 200),
  );

  const artifact = createRoute({
    method: "get",
    path: `${API}/devices/{device_id}/artifact`,
    operationId: "readDeviceArtifact",
    tags,
    summary: "The file of a device's manifest",
    description:
      "Beyond the contract. Leads to an address that is valid for 15 minutes and takes " +
      "`Range`, so that a broken download goes on; the token is not to be sent there.",
    ...guarded,
    request: {
      params: deviceParam,
      query: z.object({
        version: z
          .string()
          .regex(/^[1-9]\d{0,17}$/, "must be a manifest's version")
          .meta({ description: "the manifest's: 409 where another one is wanted by now" }),
      }),
    },
    responses: {
      302: { description: "to the file", headers: headers("Location") },
      ...deviceErrors,
      ...conflict,
    },
  });
  app.openapi(artifact, async (context) => {
    const { version } = context.req.valid("query");
    const { deviceId: id } = deviceOf(context);
    return context.redirect(await artifactOf(context.var.service, id, version), 302);
  });
}
