// Devices over HTTP as people see them: made, found, changed, let in, locked out, deleted.

import { createRoute, z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import {
  DEVICE_STATES,
  Device,
  DeviceReading,
  EnrolmentCode,
} from "../../../../shared/wire/fleet.ts";
import { type App, json, jsonBody } from "../../../http/app.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, guard, workspaceFor, workspacesFor } from "../../auth/scope.ts";
import {
  API,
  bearer,
  bodyErrors,
  conflict,
  pageQuery,
  readErrors,
  writeErrors,
} from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
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

const tags = ["Devices"];
const PAGE_MAX = 500;
const READINGS_MAX = 3_000;

/** Registers the routes of devices that people use. */
export function addDeviceRoutes(app: App<Parts>) {
  guard(app, "/devices", "/devices/:device_id", "/devices/:device_id/enrolment");
  guard(app, "/devices/:device_id/revoke", "/devices/:device_id/heartbeats");
  addList(app);
  addCreate(app);
  addOne(app);
  addUpdate(app);
  addDelete(app);
  addRevoke(app);
  addCode(app);
  addReadings(app);
}

function addList(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/devices`,
    operationId: "listDevices",
    tags,
    summary: "Edge devices, by name",
    description: "How each stands follows from its last heartbeat.",
    security: bearer,
    request: {
      query: z.object({
        workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
        group: Group.optional().meta({ description: "only of this group" }),
        tag: Tag.optional().meta({ description: "only with this tag" }),
        status: z.enum(DEVICE_STATES).optional().meta({ description: "only those that stand so" }),
        ...pageQuery(PAGE_MAX),
      }),
    },
    responses: {
      200: json(
        "a page of devices",
        z.object({
          items: z.array(Device),
          total: z.number().int(),
          offset: z.number().int(),
          limit: z.number().int(),
        }),
      ),
      ...readErrors,
    },
  });
  app.openapi(route, async (context) => {
    const { workspace_id, ...filter } = context.req.valid("query");
    const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
    const page = await listDevices(context.var.service, workspaces, filter);
    const { offset, limit } = filter;
    return context.json({ ...page, offset, limit }, 200);
  });
}

function addCreate(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/devices`,
    operationId: "makeDevice",
    tags,
    summary: "Register an edge device",
    description:
      "For engineers. The answer holds a code with which the device enrols, once and within a day; " +
      "it is shown only here, and `POST /devices/{device_id}/enrolment` makes another one. At most " +
      "20,000 devices a workspace.",
    security: bearer,
    request: jsonBody(DeviceBody),
    responses: {
      201: json(
        "the device, with its code",
        Device.extend({
          enrolment_code: EnrolmentCode.shape.enrolment_code,
          code_expires_at: EnrolmentCode.shape.expires_at.meta({
            description: "until when the code opens",
          }),
        }).meta({ id: "NewDevice" }),
      ),
      ...bodyErrors,
      ...conflict,
    },
  });
  app.openapi(route, async (context) => {
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
  });
}

function addOne(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/devices/{device_id}`,
    operationId: "readDevice",
    tags,
    summary: "One edge device",
    description: "Beyond the contract.",
    security: bearer,
    request: { params: deviceParam },
    responses: { 200: json("the device", Device), ...readErrors },
  });
  app.openapi(route, async (context) => {
    const { device_id } = context.req.valid("param");
    return context.json(
      await findDeviceFor(context.var.service, callerOf(context), device_id),
      200,
    );
  });
}

function addUpdate(app: App<Parts>) {
  const route = createRoute({
    method: "patch",
    path: `${API}/devices/{device_id}`,
    operationId: "changeDevice",
    tags,
    summary: "Rename or regroup an edge device",
    description: "Beyond the contract; for engineers.",
    security: bearer,
    request: { params: deviceParam, ...jsonBody(DevicePatch) },
    responses: { 200: json("the device", Device), ...bodyErrors },
  });
  app.openapi(route, async (context) => {
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
  });
}

function addDelete(app: App<Parts>) {
  const route = createRoute({
    method: "delete",
    path: `${API}/devices/{device_id}`,
    operationId: "deleteDevice",
    tags,
    summary: "Delete an edge device with its logs",
    description:
      "Beyond the contract; for engineers. Its token opens nothing from then on; images that it sent " +
      "stay in their project.",
    security: bearer,
    request: { params: deviceParam },
    responses: { 204: { description: "deleted" }, ...writeErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { device_id } = context.req.valid("param");
    const device = await findDeviceFor(parts, callerOf(context), device_id, "engineer");
    await deleteDevice(parts, device, actOf(context, "deleteDevice"));
    return context.body(null, 204);
  });
}

function addRevoke(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/devices/{device_id}/revoke`,
    operationId: "revokeDevice",
    tags,
    summary: "Lock an edge device out",
    description:
      "Beyond the contract; for engineers. Its tokens and open codes end at once; what it sent stays. " +
      "Enrolled by a new code it is let in again.",
    security: bearer,
    request: { params: deviceParam },
    responses: { 204: { description: "it is locked out" }, ...writeErrors, ...conflict },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { device_id } = context.req.valid("param");
    const device = await findDeviceFor(parts, callerOf(context), device_id, "engineer");
    await revokeDevice(parts, device, actOf(context, "revokeDevice"));
    return context.body(null, 204);
  });
}

function addCode(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/devices/{device_id}/enrolment`,
    operationId: "makeDeviceCode",
    tags,
    summary: "A new code with which an edge device enrols",
    description:
      "Beyond the contract; for engineers. It opens once and within a day, and is shown only here; " +
      "codes that were made before end. The device's token ends when the code is used.",
    security: bearer,
    request: { params: deviceParam },
    responses: { 201: json("the code", EnrolmentCode), ...writeErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { device_id } = context.req.valid("param");
    const device = await findDeviceFor(parts, callerOf(context), device_id, "engineer");
    const act = actOf(context, "makeDeviceCode");
    return context.json(await renewCode(parts, { deviceId: device.device_id, act }), 201);
  });
}

function addReadings(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/devices/{device_id}/heartbeats`,
    operationId: "listDeviceReadings",
    tags,
    summary: "What an edge device reported, newest first",
    description:
      "Beyond the contract. Those of the last day as they came, no more than one in five seconds; " +
      "before, means of quarters of an hour, for 30 days.",
    security: bearer,
    request: {
      params: deviceParam,
      query: z.object({ ...rangeQuery, limit: whole(1, READINGS_MAX).default(300) }),
    },
    responses: { 200: json("readings", z.array(DeviceReading)), ...readErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { device_id } = context.req.valid("param");
    const { limit, ...range } = context.req.valid("query");
    await findDeviceFor(parts, callerOf(context), device_id);
    const readings = await listReadings(parts, device_id, { ...rangeOf(range), limit });
    return context.json(readings, 200);
  });
}
