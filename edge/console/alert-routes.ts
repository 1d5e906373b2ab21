// The operator API's alerts.

import { z } from "@hono/zod-openapi";
import { assert, Failure } from "../../shared/errors.ts";
import { Alert } from "../../shared/wire/alerts.ts";
import { json } from "../http/route.ts";
import { listAlerts, sendTestAlert } from "../markets/ingest/alert-outbox.ts";
import { bearerName } from "./bearer.ts";
import { type Console, id, limit } from "./parameters.ts";
import { operator, type Route, route } from "./route.ts";

/** Sends a test alert for an operator; fails with `state_conflict` where there is no webhook. */
export async function testWebhook({ ingest, webhook }: Console, by: string): Promise<Alert> {
  if (!webhook) {
    const detail = "no webhook is set: ALERT_WEBHOOK_URL and ALERT_WEBHOOK_SECRET";
    throw new Failure("state_conflict", detail);
  }
  const alert = await sendTestAlert(ingest, webhook, by);
  assert(alert, "an alert that was recorded is found");
  return alert;
}

/** Routes of alerts. */
export const alertRoutes: readonly Route[] = [
  route(
    {
      call: "GET /api/alerts",
      operationId: "listAlerts",
      tag: "Alerts",
      summary: "What operators were told of, newest first",
      description:
        "An incident is a partition that failed or is late, a series that is stale or a check that " +
        "failed: told of once when it begins and, as `recovered`, once when it is over. Kept for " +
        "four months.",
      who: operator,
      query: z.object({
        after: id("the last alert of the page before").optional(),
        limit: limit(50, 500),
      }),
      answers: { 200: json("alerts", z.array(Alert)) },
    },
    async (context) => {
      const { database } = context.var.service.ingest;
      return context.json(await listAlerts(database, context.req.valid("query")), 200);
    },
  ),
  route(
    {
      call: "POST /api/alerts/test",
      operationId: "sendTestAlert",
      tag: "Alerts",
      summary: "Send a test to the webhook",
      description: "Answers when the first attempt is over; `last_error` says why it failed.",
      who: operator,
      answers: { 200: json("the alert", Alert) },
      errors: ["state_conflict"],
    },
    async (context) => {
      return context.json(await testWebhook(context.var.service, bearerName(context)), 200);
    },
  ),
];
