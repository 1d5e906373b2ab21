// What is wrong with devices, and where a workspace is told of it, over HTTP.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { flag } from "../../../../shared/scalars.ts";
import { DeviceAlert, FleetSettings } from "../../../../shared/wire/fleet.ts";
import { addressProblem } from "../../../http/outbound.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { isWebhookSecret } from "../../../http/webhook.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, workspaceFor, workspacesFor } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { changeFleetSettings, fleetSettings, listAlerts } from "./alerts.ts";

const tag = "Devices";
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

function checkWebhook(parts: Parts, webhook: z.output<typeof SettingsPatch>["webhook"]) {
  if (!webhook) return;
  const problem = addressProblem(parts.outbound, webhook.url);
  if (problem) throw new Failure("invalid_request", `webhook.url: ${problem}`);
  if (isWebhookSecret(webhook.secret)) return;
  const detail = "webhook.secret: must be whsec_ and base64, or 24 characters or more";
  throw new Failure("invalid_request", detail);
}

/** Routes of alerts. */
export const alertRoutes: readonly Route[] = [
  route(
    {
      call: "GET /devices/alerts",
      operationId: "listDeviceAlerts",
      tag,
      summary: "What is or was wrong with edge devices, newest first",
      description:
        "Beyond the contract. Noticed by the minute; kept for four months after their end.",
      who: user,
      query: z.object({
        workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
        open: flag().optional().meta({
          type: "boolean",
          description: "only those that are not over, or are",
        }),
        ...pageQuery(ALERTS_MAX),
      }),
      answers: { 200: json("alerts", z.array(DeviceAlert)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id, ...filter } = context.req.valid("query");
      const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
      return context.json(await listAlerts(context.var.service, workspaces, filter), 200);
    },
  ),
  route(
    {
      call: "GET /devices/settings",
      operationId: "readFleetSettings",
      tag,
      summary: "What a workspace is told of its edge devices",
      description: "Beyond the contract.",
      who: user,
      query: z.object({ workspace_id }),
      answers: { 200: json("the settings", FleetSettings) },
      errors: ["not_found"],
    },
    async (context) => {
      const named = context.req.valid("query").workspace_id;
      const workspaceId = workspaceFor(callerOf(context), named, "viewer");
      return context.json(await fleetSettings(context.var.service, workspaceId), 200);
    },
  ),
  route(
    {
      call: "PATCH /devices/settings",
      operationId: "changeFleetSettings",
      tag,
      summary: "Say what a workspace is told of its edge devices, and where",
      description:
        "Beyond the contract. Needs the role admin. Messages are `device.lost`, `device.hot`, " +
        "`device.low_battery` and `device.recovered`, signed by the Standard Webhooks specification; " +
        "one that is not taken is sent again, six times within a day. Address and secret are sealed " +
        "(`SEALING_KEY`) and shown to nobody.",
      who: user,
      body: jsonBody(SettingsPatch),
      answers: { 200: json("the settings", FleetSettings) },
      errors: ["not_found", "bad_configuration"],
    },
    async (context) => {
      const parts = context.var.service;
      const { workspace_id: named, ...change } = context.req.valid("json");
      const workspaceId = workspaceFor(callerOf(context), named, "admin");
      checkWebhook(parts, change.webhook);
      const act = actOf(context, "changeFleetSettings");
      return context.json(await changeFleetSettings(parts, workspaceId, { change, act }), 200);
    },
  ),
];
