// Rows that are let go of, minute by minute. Goal: where a table may grow large, the minute finds
// them by an index.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { batch } from "../../../edge/http/database.ts";
import { KEPT_INCIDENTS } from "../../../edge/vision/auth/incidents/incidents.ts";
import { KEPT_FOR_LOGIN } from "../../../edge/vision/auth/sessions.ts";
import type { RetentionParts } from "../../../edge/vision/base/retention.ts";
import { KEPT_ALERTS } from "../../../edge/vision/fleet/devices/alerts.ts";
import { KEPT_MEANS } from "../../../edge/vision/fleet/devices/beats.ts";
import { KEPT_CHECKS } from "../../../edge/vision/fleet/targets/health.ts";
import { KEPT_EDITS } from "../../../edge/vision/labeling/review/batch-rows.ts";
import { KEPT_PREDICTIONS } from "../../../edge/vision/serving/predict/predictions.ts";
import { KEPT_DELIVERIES } from "../../../edge/vision/workflows/deliveries.ts";
import { KEPT_STREAMS } from "../../../edge/vision/workflows/runs/streams.ts";
import { KEPT_USE } from "../../../edge/vision/workflows/usage.ts";
import { systemClock } from "../../../shared/time.ts";
import { createWorld, type World } from "../../support/world.ts";

/** Tables with a row for each address or invitation that is in use, which are few. */
const SMALL = ["old_throttle", "old_invitation"];

const rules = [
  ...KEPT_FOR_LOGIN.filter(({ name }) => !SMALL.includes(name)),
  ...[KEPT_INCIDENTS, KEPT_MEANS, KEPT_ALERTS, KEPT_CHECKS, KEPT_PREDICTIONS],
  ...[KEPT_EDITS, KEPT_DELIVERIES, KEPT_STREAMS, KEPT_USE],
];

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
});

describe("what the minute lets go of", () => {
  it.each(rules)("is found by an index: $name", async ({ forget }) => {
    // None of these rules asks for the limits of the service.
    const statement = forget({ clock: systemClock } as RetentionParts);
    const [, , plan = []] = await batch(world.visionDatabase, [
      sql`SET LOCAL enable_seqscan = off`,
      sql`SET LOCAL enable_sort = off`,
      sql`EXPLAIN ${statement}`,
    ]);
    const lines = plan.map((row) => Object.values(row as object).join()).join("\n");
    expect(lines).toContain("Index Scan");
    expect(lines).not.toContain("Sort");
  });
});
