// What is wrong with the installation, for its operators: admins of the default workspace.

import { z } from "@hono/zod-openapi";
import { flag } from "../../../../shared/scalars.ts";
import { json } from "../../../http/route.ts";
import { pageQuery } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { operator } from "../audience.ts";
import { actOf } from "../audit.ts";
import { DELIVERIES, INCIDENT_KINDS, listIncidents } from "./incidents.ts";
import { sendTestNotice } from "./notices.ts";

const tag = "Administration";
const INCIDENTS_MAX = 500;
export const Incident = z
  .object({
    incident_id: z.uuid().meta({ description: "the incident's own id" }),
    kind: z.enum(INCIDENT_KINDS),
    subject: z.string().meta({
      description: "the node's or endpoint's id, the kind of task, the duty or the database",
    }),
    detail: z.string().meta({ description: "one sentence, for people" }),
    raised_at: z.iso.datetime().meta({ description: "when it was noticed" }),
    recovered_at: z.iso.datetime().nullable().meta({ description: "null: it is not over" }),
    delivery: z
      .enum(DELIVERIES)
      .meta({ description: "of its newest message; `unsent`: there was no webhook" }),
    last_error: z
      .string()
      .nullable()
      .meta({ description: "why the last attempt failed; null: it did not" }),
  })
  .meta({ id: "Incident" });
export type Incident = z.infer<typeof Incident>;

const SentTest = z.object({
  delivered: z.boolean().meta({ description: "whether the receiver took it" }),
  last_error: z.string().nullable().meta({ description: "why it did not; null: it did" }),
});

/** Routes of incidents. */
export const incidentRoutes: readonly Route[] = [
  route(
    {
      call: "GET /admin/incidents",
      operationId: "listIncidents",
      tag,
      summary: "What is or was wrong with the installation, newest first",
      description:
        "Beyond the contract. Needs the role admin in the default workspace. Noticed by the minute: a " +
        "node that fell silent, a queue that stands still, a duty of the minute that failed three " +
        "times in a row, a backup that is too old, an endpoint of which more than 5 % of the requests " +
        "failed by a fault of the service. Each is told once as it begins and once as it is over, to " +
        "`ALERT_WEBHOOK_URL`: `incident.node_lost` and so on, and `incident.recovered`, signed by the " +
        "Standard Webhooks specification, sent six times within a day until it is taken. Kept for " +
        "four months after their end.",
      who: operator,
      query: z.object({
        open: flag().optional().meta({
          type: "boolean",
          description: "only those that are not over, or are",
        }),
        ...pageQuery(INCIDENTS_MAX),
      }),
      answers: { 200: json("incidents", z.array(Incident)) },
    },
    async (context) => {
      return context.json(
        await listIncidents(context.var.service, context.req.valid("query")),
        200,
      );
    },
  ),
  route(
    {
      call: "POST /admin/incidents/test",
      operationId: "sendTestIncident",
      tag,
      summary: "Send a test to the operators' webhook",
      description:
        "Beyond the contract. Needs the role admin in the default workspace. Sends `incident.test` " +
        "once and answers what became of it; 409 where no webhook is set.",
      who: operator,
      answers: { 200: json("what became of it", SentTest) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const act = actOf(context, "sendTestIncident");
      return context.json(await sendTestNotice(context.var.service, act), 200);
    },
  ),
];
