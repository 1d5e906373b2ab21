// What devices send to the service: they enrol, send heartbeats and logs, take a new token. A
// device is known by its token, and reaches what is its own. An engineer of its workspace may send
// its heartbeats and logs for it, with an access token.

import type { Context, MiddlewareHandler } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import { joined } from "../../../../shared/tasks/line.ts";
import {
  DeviceToken,
  EnrolDevice,
  EnrolledDevice,
  HEARTBEAT_BYTES_MAX,
  Heartbeat,
  HeartbeatAnswer,
  LOG_BYTES_MAX,
  LogBatch,
  LogReceipt,
} from "../../../../shared/wire/fleet.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { callerOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { anybody, type Route, route } from "../../base/route.ts";
import { manifestKeys } from "../rollouts/manifest-keys.ts";
import {
  type DeviceIdentity,
  device,
  deviceOf,
  deviceOrUser,
  noDevice,
  noToken,
  rotateToken,
  TOKEN_OVERLAP_SECONDS,
  tokenHash,
} from "./access.ts";
import { takeHeartbeat } from "./beats.ts";
import { deviceParam } from "./bodies.ts";
import { findDeviceFor } from "./devices.ts";
import { enrolDevice } from "./enrolment.ts";
import { syncLogs } from "./logs.ts";

const tag = "Device protocol";

/** Audience of such a route. */
const REPORTERS =
  "Send the device's own token. An access token needs the role engineer in the device's workspace. ";

/** Lets a device's token pass unchecked: the heartbeat's own statement checks it. */
const checkedLater: MiddlewareHandler = (_, next) => next();

/**
 * The device that an engineer of its workspace sends something for. Fails with `state_conflict`
 * where it is revoked.
 */
async function engineersDevice(
  context: Pick<Context, "get">,
  parts: Parts,
  deviceId: string,
): Promise<DeviceIdentity> {
  const device = await findDeviceFor(parts, callerOf(context), deviceId, "engineer");
  if (device.revoked_at === null) return { deviceId, workspaceId: device.workspace_id };
  const detail = "the device is revoked; POST /devices/{device_id}/enrolment lets it in again";
  throw new Failure("state_conflict", detail);
}

const tooLong = () =>
  new Failure(
    "body_too_large",
    `the batch has over ${LOG_BYTES_MAX} bytes, unpacked: send it in several`,
    { data: { bytes_max: LOG_BYTES_MAX } },
  );

/** Unpacks a body that comes as gzip, as far as it may be long. */
const unpacked: MiddlewareHandler = async (context, next) => {
  const encoding = context.req.header("Content-Encoding")?.toLowerCase() ?? "identity";
  if (encoding === "identity") return next();
  if (encoding !== "gzip") {
    throw new Failure("invalid_request", "Content-Encoding: must be gzip, or left out");
  }
  const { url, method, body, headers: given } = context.req.raw;
  if (Number(given.get("Content-Length") ?? 0) > LOG_BYTES_MAX) throw tooLong();
  const headers = new Headers(given);
  headers.delete("Content-Encoding");
  headers.delete("Content-Length");
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  try {
    // The platform's types tell its streams from the web's, which they are.
    const stream = body?.pipeThrough(new DecompressionStream("gzip") as never) as
      | ReadableStream<Uint8Array>
      | undefined;
    const reader = stream?.getReader();
    for (;;) {
      const { done = true, value } = (await reader?.read()) ?? {};
      if (done || !value) break;
      bytes += value.length;
      if (bytes > LOG_BYTES_MAX) {
        await reader?.cancel().catch(() => {});
        throw tooLong();
      }
      chunks.push(value);
    }
  } catch (thrown) {
    if (thrown instanceof Failure) throw thrown;
    throw new Failure("bad_body", "the body is no gzip, or ends too early", { cause: thrown });
  }
  context.req.raw = new Request(url, { method, headers, body: joined(chunks) });
  await next();
};

/** Routes that devices use. */
export const deviceProtocolRoutes: readonly Route[] = [
  route(
    {
      call: "POST /devices/enrol",
      operationId: "enrolDevice",
      tag,
      summary: "Trade an enrolment code for a device's token",
      description:
        "Beyond the contract. Open: the code is the credential, once. The device's former tokens end. " +
        "Of one address ten wrong codes are looked at at once, then one in two seconds; who would wait " +
        "over 8 s is answered 429.",
      who: anybody,
      body: jsonBody(EnrolDevice.strict()),
      answers: { 201: json("who the device is; the token is shown only here", EnrolledDevice) },
      errors: ["unauthorized", "too_many_attempts"],
    },
    async (context) => {
      const { service: parts, requestId } = context.var;
      const body = context.req.valid("json");
      const enrolled = await enrolDevice(parts, context.req, { body, requestId });
      return context.json(
        {
          device_id: enrolled.deviceId,
          token: enrolled.token,
          interval_s: enrolled.intervalSeconds,
          manifest_keys: await manifestKeys(parts),
        },
        201,
      );
    },
  ),
  route(
    {
      call: "POST /devices/{device_id}/heartbeat",
      operationId: "sendDeviceHeartbeat",
      tag,
      summary: "Say how a device is, and hear what is wanted of it",
      description:
        REPORTERS +
        "Every field may be left out or null. Fields that have no name here are kept as they come, " +
        "16 levels deep at most. `next_s` is the device's interval, up to a tenth shorter or longer.",
      who: deviceOrUser(checkedLater),
      params: deviceParam,
      body: jsonBody(Heartbeat, { bytesMax: HEARTBEAT_BYTES_MAX }),
      open: ["body"],
      answers: { 200: json("what is wanted", HeartbeatAnswer) },
      errors: ["forbidden", "state_conflict"],
    },
    async (context) => {
      const { device_id: deviceId } = context.req.valid("param");
      const parts = context.var.service;
      const hash = await tokenHash(context);
      if (hash === null) await engineersDevice(context, parts, deviceId);
      const sender = { deviceId, tokenHash: hash };
      const answer = await takeHeartbeat(parts, sender, context.req.valid("json"));
      if (!answer) throw hash === null ? noDevice() : noToken(context);
      return context.json(answer, 200);
    },
  ),
  route(
    {
      call: "POST /devices/{device_id}/token",
      operationId: "rotateDeviceToken",
      tag,
      summary: "A device's next token",
      description:
        "Beyond the contract. The token that it came with opens until ten minutes after the first use " +
        "of the next one, so that an answer which is lost locks nobody out.",
      who: device,
      params: deviceParam,
      answers: { 201: json("the token", DeviceToken) },
    },
    async (context) => {
      const { service: parts } = context.var;
      const manifest_keys = await manifestKeys(parts);
      const token = await rotateToken(parts, deviceOf(context));
      return context.json({ token, overlap_s: TOKEN_OVERLAP_SECONDS, manifest_keys }, 201);
    },
  ),
  route(
    {
      call: "POST /devices/{device_id}/sync-logs",
      operationId: "syncDeviceLogs",
      tag,
      summary: "Hand over lines of a device's log",
      description:
        REPORTERS +
        "At most 1,000 lines, 256 KiB of a line and 4 MiB of all, as they are or as `Content-Encoding: gzip`. Lines are numbered " +
        "from 1 within each boot, and may come in any order and more than once: each is stored once. " +
        "The device may forget lines up to `acked_seq`; it sends what `gaps` names again, or says in " +
        "`dropped` that it has it no more. A batch without lines asks where the boot stands.",
      who: deviceOrUser(),
      before: unpacked,
      params: deviceParam,
      body: jsonBody(LogBatch, { bytesMax: LOG_BYTES_MAX }),
      open: ["body"],
      answers: { 200: json("what is stored now", LogReceipt) },
      errors: ["forbidden", "state_conflict", "quota_exceeded"],
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id: deviceId } = context.req.valid("param");
      const device =
        (await tokenHash(context)) === null
          ? await engineersDevice(context, parts, deviceId)
          : deviceOf(context);
      return context.json(await syncLogs(parts, device, context.req.valid("json")), 200);
    },
  ),
];
