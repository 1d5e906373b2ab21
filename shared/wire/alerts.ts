// What the operator API tells of alerts.

import { z } from "zod";
import { instant } from "./markets.ts";

/** What operators are told of, and how its delivery to the webhook stands. */
export const Alert = z
  .object({
    alert_id: z.string().meta({ description: "also the `webhook-id` of its message" }),
    kind: z.enum(["failed", "late", "stale", "recovered", "test"]).meta({
      description: "what began, or that it is over",
    }),
    incident_id: z.string().meta({
      description: "the alert that began the incident; its own id unless it is `recovered`",
    }),
    job: z.string().nullable().meta({ description: "null: a test", example: "grid_region" }),
    partition: z.string().nullable().meta({ description: "what it is about, or null" }),
    series: z.string().nullable().meta({ description: "the stale symbol it is about, or null" }),
    run_id: z.string().nullable().meta({ description: "the run that began the incident" }),
    error_code: z.string().nullable().meta({ description: "of that run" }),
    detail: z.string().meta({ description: "one sentence, for people" }),
    created_at: instant.meta({ description: "when it was noticed" }),
    ended_at: instant.nullable().meta({ description: "null: the incident is open" }),
    delivery: z.enum(["pending", "delivered", "given_up", "unsent"]).meta({
      description:
        "pending: not delivered yet; given_up: no attempt got through for a day; unsent: no " +
        "webhook was configured",
    }),
    attempts: z.int().meta({ description: "attempts to deliver it so far" }),
    next_attempt_at: instant.nullable().meta({ description: "null: there is none" }),
    delivered_at: instant.nullable().meta({ description: "when the webhook took it" }),
    last_error: z.string().nullable().meta({ description: "why the last attempt failed" }),
  })
  .meta({ id: "Alert" });
export type Alert = z.infer<typeof Alert>;
