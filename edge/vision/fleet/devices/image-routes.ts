// Images of devices over HTTP.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import { BootId, DeviceImage, LogLine } from "../../../../shared/wire/fleet.ts";
import { json } from "../../../http/route.ts";
import { toItsEnd } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { fileBody } from "../../serving/predict/image-requests.ts";
import { device, deviceOf } from "./access.ts";
import { deviceParam } from "./bodies.ts";
import { takeImage } from "./images.ts";

/** Routes of images. */
export const deviceImageRoutes: readonly Route[] = [
  route(
    {
      call: "POST /devices/{device_id}/images",
      operationId: "sendDeviceImage",
      tag: "Device protocol",
      summary: "Send the image of an uncertain prediction along",
      description:
        "Beyond the contract. multipart/form-data with `file`: JPEG, PNG or WebP of at most 8 MiB. It " +
        "becomes a video of one frame in the device's project, without labels. One that looks the same " +
        "as one of the last 10,000 that landed there, unless that was deleted, is not stored again: " +
        "their difference hashes differ in at most 6 of 64 bits. The same line's image again is the " +
        "same video. Of a device 300 are stored within 24 hours; more are 413 `quota_exceeded`.",
      who: device,
      params: deviceParam,
      query: z.object({
        boot_id: BootId,
        seq: whole(1).meta({ description: LogLine.shape.seq.description }),
      }),
      body: fileBody,
      answers: { 201: json("where it is", DeviceImage) },
      errors: [
        "bad_body",
        "state_conflict",
        "file_too_large",
        "quota_exceeded",
        "unsupported_media",
        "overloaded",
      ],
    },
    async (context) => {
      const { boot_id: bootId, seq } = context.req.valid("query");
      const line = { bootId, seq };
      const work = takeImage(context.var.service, deviceOf(context), line, context.req.raw);
      return context.json(await toItsEnd(context, work), 201);
    },
  ),
];
