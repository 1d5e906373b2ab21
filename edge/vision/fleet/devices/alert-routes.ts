// What is wrong with devices, and where a workspace is told of it, over HTTP.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { flag } from "../../../../shared/scalars.ts";
import { DeviceAlert, FleetSettings } from "../../../../shared/wire/fleet.ts";
import { type App, errorResponses, json, jsonBody } from "../../../http/app.ts";
import { addressProblem } from "../../../http/outbound.ts";
import { isWebhookSecret } from "../../../http/webhook.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, guard, workspaceFor, workspacesFor } from "../../auth/scope.ts";
import { API, bearer, bodyErrors, pageQuery, readErrors } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { changeFleetSettings, fleetSettings, listAlerts } from "./alerts.ts";

const tags = ["Devices"];
const ALERTS_MAX = 500;

const workspace_id = z.uuid().optional().meta({
  description: "which; required where several are possible",
});

const SettingsPatch = z.strictObject({
  workspace_id,
  hot_c: z.number().min(-50).max(200).nullable().optional().meta({
    description: "degrees Celsius from which a device is hot; null: none is",
  }),
  low_battery: z.number().min(0).max(95).nullable().optional().meta({
    description: "percent up to which a battery is low; null: none is",
  }),
  webhook: z
    .strictObject({
      url: z.string().max(2_000).meta({ description: "an https address on the internet" }),
      secret: z.string().max(500).meta({
        description: "what signs messages: `whsec_` and base64, or 24 characters or more",
      }),
    })
    .nullable()
    .optional()
    .meta({ description: "where messages go, as Standard Webhooks; null: nowhere" }),
});

/** Registers the routes of alerts; before those of single devices, whose ids they would be. */
export function addAlertRoutes(app: App<Parts>) {
  guard(app, "/devices/alerts", "/devices/settings");
  addList(app);
  addRead(app);
  addChange(app);
}

function addList(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/devices/alerts`,
    operationId: "listDeviceAlerts",
    tags,
    summary: "What is or was wrong with edge devices, newest first",
    description:
      "Beyond the contract. Noticed by the minute; kept for four months after their end.",
    security: bearer,
    request: {
      query: z.object({
        workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
        open: flag().optional().meta({
          type: "boolean",
          description: "only those that are not over, or are",
        }),
        ...pageQuery(ALERTS_MAX),
      }),
    },
    responses: { 200: json("alerts", z.array(DeviceAlert)), ...readErrors },
  });
  app.openapi(route, async (context) => {
    const { workspace_id, ...filter } = context.req.valid("query");
    const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
    return context.json(await listAlerts(context.var.service, workspaces, filter), 200);
  });
}

function addRead(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/devices/settings`,
    operationId: "readFleetSettings",
    tags,
    summary: "What a workspace is told of its edge devices",
    description: "Beyond the contract.",
    security: bearer,
    request: { query: z.object({ workspace_id }) },
    responses: { 200: json("the settings", FleetSettings), ...readErrors },
  });
  app.openapi(route, async (context) => {
    const named = context.req.valid("query").workspace_id;
    const workspaceId = workspaceFor(callerOf(context), named, "viewer");
    return context.json(await fleetSettings(context.var.service, workspaceId), 200);
  });
}

function checkWebhook(parts: Parts, webhook: z.output<typeof SettingsPatch>["webhook"]) {
  if (!webhook) return;
  const problem = addressProblem(parts.outbound, webhook.url);
  if (problem) throw new Failure("invalid_request", `webhook.url: ${problem}`);
  if (isWebhookSecret(webhook.secret)) return;
  const detail = "webhook.secret: must be whsec_ and base64, or 24 characters or more";
  throw new Failure("invalid_request", detail);
}

function addChange(app: App<Parts>) {
  const route = createRoute({
    method: "patch",
    path: `${API}/devices/settings`,
    operationId: "changeFleetSettings",
    tags,
    summary: "Say what a workspace is told of its edge devices, and where",
    description:
      "Beyond the contract. Needs the role admin. Messages are `device.lost`, `device.hot`, " +
      "`device.low_battery` and `device.recovered`, signed by the Standard Webhooks specification; " +
      "one that is not taken is sent again, six times within a day. Address and secret are sealed " +
      "(`SEALING_KEY`) and shown to nobody.",
    security: bearer,
    request: jsonBody(SettingsPatch),
    responses: {
      200: json("the settings", FleetSettings),
      ...bodyErrors,
      ...errorResponses("bad_configuration"),
    },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { workspace_id: named, ...change } = context.req.valid("json");
    const workspaceId = workspaceFor(callerOf(context), named, "admin");
    checkWebhook(parts, change.webhook);
    const act = actOf(context, "changeFleetSettings");
    return context.json(await changeFleetSettings(parts, workspaceId, { change, act }), 200);
  });
}
