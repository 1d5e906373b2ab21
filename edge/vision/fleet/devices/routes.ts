// Devices over HTTP as people see them: made, found, changed, let in, locked out, deleted.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import {
  DEVICE_STATES,
  Device,
  DeviceReading,
  EnrolmentCode,
} from "../../../../shared/wire/fleet.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, workspaceFor, workspacesFor } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { listReadings } from "./beats.ts";
import { DeviceBody, DevicePatch, deviceParam, Group, rangeOf, rangeQuery, Tag } from "./bodies.ts";
import {
  createDevice,
  deleteDevice,
  findDeviceFor,
  listDevices,
  requireProject,
  revokeDevice,
  updateDevice,
} from "./devices.ts";
import { renewCode } from "./enrolment.ts";

const tag = "Devices";
const PAGE_MAX = 500;
const READINGS_MAX = 3_000;

/** Routes of devices that people use. */
export const deviceRoutes: readonly Route[] = [
  route(
    {
      call: "GET /devices",
      operationId: "listDevices",
      tag,
      summary: "Edge devices, by name",
      description: "How each stands follows from its last heartbeat.",
      who: user,
      query: z.object({
        workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
        group: Group.optional().meta({ description: "only of this group" }),
        tag: Tag.optional().meta({ description: "only with this tag" }),
        status: z.enum(DEVICE_STATES).optional().meta({ description: "only those that stand so" }),
        ...pageQuery(PAGE_MAX),
      }),
      answers: {
        200: json(
          "a page of devices",
          z.object({
            items: z.array(Device),
            total: z.number().int(),
            offset: z.number().int(),
            limit: z.number().int(),
          }),
        ),
      },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id, ...filter } = context.req.valid("query");
      const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
      const page = await listDevices(context.var.service, workspaces, filter);
      const { offset, limit } = filter;
      return context.json({ ...page, offset, limit }, 200);
    },
  ),
  route(
    {
      call: "POST /devices",
      operationId: "makeDevice",
      tag,
      summary: "Register an edge device",
      description:
        "For engineers. The answer holds a code with which the device enrols, once and within a day; " +
        "it is shown only here, and `POST /devices/{device_id}/enrolment` makes another one. At most " +
        "20,000 devices a workspace.",
      who: user,
      body: jsonBody(DeviceBody),
      answers: {
        201: json(
          "the device, with its code",
          Device.extend({
            enrolment_code: EnrolmentCode.shape.enrolment_code,
            code_expires_at: EnrolmentCode.shape.expires_at.meta({
              description: "until when the code opens",
            }),
          }).meta({ id: "NewDevice" }),
        ),
      },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const { workspace_id, project_id, interval_s, ...body } = context.req.valid("json");
      const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
      await requireProject(parts.database, workspaceId, project_id);
      const { device, enrolment_code, expires_at } = await createDevice(parts, {
        ...body,
        workspaceId,
        projectId: project_id,
        intervalSeconds: interval_s,
        act: actOf(context, "makeDevice"),
      });
      return context.json({ ...device, enrolment_code, code_expires_at: expires_at }, 201);
    },
  ),
  route(
    {
      call: "GET /devices/{device_id}",
      operationId: "readDevice",
      tag,
      summary: "One edge device",
      description: "Beyond the contract.",
      who: user,
      params: deviceParam,
      answers: { 200: json("the device", Device) },
    },
    async (context) => {
      const { device_id } = context.req.valid("param");
      return context.json(
        await findDeviceFor(context.var.service, callerOf(context), device_id),
        200,
      );
    },
  ),
  route(
    {
      call: "PATCH /devices/{device_id}",
      operationId: "changeDevice",
      tag,
      summary: "Rename or regroup an edge device",
      description: "Beyond the contract; for engineers.",
      who: user,
      params: deviceParam,
      body: jsonBody(DevicePatch),
      answers: { 200: json("the device", Device) },
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id } = context.req.valid("param");
      const device = await findDeviceFor(parts, callerOf(context), device_id, "engineer");
      const { project_id, interval_s, ...body } = context.req.valid("json");
      if (project_id) await requireProject(parts.database, device.workspace_id, project_id);
      const changed = await updateDevice(parts, device, {
        ...body,
        projectId: project_id,
        intervalSeconds: interval_s,
      });
      return context.json(changed, 200);
    },
  ),
  route(
    {
      call: "DELETE /devices/{device_id}",
      operationId: "deleteDevice",
      tag,
      summary: "Delete an edge device with its logs",
      description:
        "Beyond the contract; for engineers. Its token opens nothing from then on; images that it sent " +
        "stay in their project.",
      who: user,
      params: deviceParam,
      answers: { 204: { description: "deleted" } },
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id } = context.req.valid("param");
      const device = await findDeviceFor(parts, callerOf(context), device_id, "engineer");
      await deleteDevice(parts, device, actOf(context, "deleteDevice"));
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /devices/{device_id}/revoke",
      operationId: "revokeDevice",
      tag,
      summary: "Lock an edge device out",
      description:
        "Beyond the contract; for engineers. Its tokens and open codes end at once; what it sent stays. " +
        "Enrolled by a new code it is let in again.",
      who: user,
      params: deviceParam,
      answers: { 204: { description: "it is locked out" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id } = context.req.valid("param");
      const device = await findDeviceFor(parts, callerOf(context), device_id, "engineer");
      await revokeDevice(parts, device, actOf(context, "revokeDevice"));
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /devices/{device_id}/enrolment",
      operationId: "makeDeviceCode",
      tag,
      summary: "A new code with which an edge device enrols",
      description:
        "Beyond the contract; for engineers. It opens once and within a day, and is shown only here; " +
        "codes that were made before end. The device's token ends when the code is used.",
      who: user,
      params: deviceParam,
      answers: { 201: json("the code", EnrolmentCode) },
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id } = context.req.valid("param");
      const device = await findDeviceFor(parts, callerOf(context), device_id, "engineer");
      const act = actOf(context, "makeDeviceCode");
      return context.json(await renewCode(parts, { deviceId: device.device_id, act }), 201);
    },
  ),
  route(
    {
      call: "GET /devices/{device_id}/heartbeats",
      operationId: "listDeviceReadings",
      tag,
      summary: "What an edge device reported, newest first",
      description:
        "Beyond the contract. Those of the last day as they came, no more than one in five seconds; " +
        "before, means of quarters of an hour, for 30 days.",
      who: user,
      params: deviceParam,
      query: z.object({ ...rangeQuery, limit: whole(1, READINGS_MAX).default(300) }),
      answers: { 200: json("readings", z.array(DeviceReading)) },
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id } = context.req.valid("param");
      const { limit, ...range } = context.req.valid("query");
      await findDeviceFor(parts, callerOf(context), device_id);
      const readings = await listReadings(parts, device_id, { ...rangeOf(range), limit });
      return context.json(readings, 200);
    },
  ),
];
