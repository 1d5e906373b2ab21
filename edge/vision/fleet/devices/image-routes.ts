// Images of devices over HTTP.

import { createRoute, z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import { BootId, DeviceImage, LogLine } from "../../../../shared/wire/fleet.ts";
import { type App, errorResponses, json } from "../../../http/app.ts";
import { API, toItsEnd } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { fileBody } from "../../serving/predict/image-requests.ts";
import { authenticateDevice, deviceOf, deviceToken } from "./access.ts";
import { deviceParam } from "./bodies.ts";
import { takeImage } from "./images.ts";
import { deviceErrors } from "./protocol-routes.ts";

/** Registers the route of images. */
export function addDeviceImages(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/devices/{device_id}/images`,
    operationId: "sendDeviceImage",
    tags: ["Device protocol"],
    summary: "Send the image of an uncertain prediction along",
    description:
      "Beyond the contract. multipart/form-data with `file`: JPEG, PNG or WebP of at most 8 MiB. It " +
      "becomes a video of one frame in the device's project, without labels. One that looks the same " +
      "as one of the last 10,000 that landed there, unless that was deleted, is not stored again: " +
      "their difference hashes differ in at most 6 of 64 bits. The same line's image again is the " +
      "same video. Of a device 300 are stored within 24 hours; more are 413 `quota_exceeded`.",
    middleware: [authenticateDevice()],
    security: deviceToken,
    request: {
      params: deviceParam,
      query: z.object({
        boot_id: BootId,
        seq: whole(1).meta({ description: LogLine.shape.seq.description }),
      }),
      body: fileBody,
    },
    responses: {
      201: json("where it is", DeviceImage),
      ...deviceErrors,
      ...errorResponses("bad_body", "state_conflict", "unsupported_media"),
      ...errorResponses("file_too_large", "quota_exceeded", "overloaded"),
    },
  });
  app.openapi(route, async (context) => {
    const { boot_id: bootId, seq } = context.req.valid("query");
    const line = { bootId, seq };
    const work = takeImage(context.var.service, deviceOf(context), line, context.req.raw);
    return context.json(await toItsEnd(context, work), 201);
  });
}
