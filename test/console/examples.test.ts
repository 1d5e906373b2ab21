// The examples of the operator API's description, each sent to a console with something to show.

import { join } from "node:path";
import { afterAll, beforeAll, describe } from "vitest";
import { followBackfill, followRun } from "../../edge/local/operator.ts";
import type { SandboxAnswer } from "../../edge/local/sandbox/answers.ts";
import { startSandbox } from "../../edge/local/sandbox/server.ts";
import { isoDay, systemClock } from "../../shared/time.ts";
import { exampleTests } from "../support/examples.ts";
import { distorted, isErcotDemand } from "../support/provider-faults.ts";
import { alertsTo, startReceiver } from "../support/receiver.ts";
import { createWorld, DAY, dayWithTime, onlySchedules, type World } from "../support/world.ts";

const ID = "6f1c2b9e-3d7a-4c55-8a10-2b1f9d0c4e71";
const WEBHOOK_SECRET = "a secret of the examples' webhook";
const DAY_SHOWN = "2026-01-31";

let world: World;
let sandbox: Awaited<ReturnType<typeof startSandbox>>;
let ids: { run: string; backfill: string; refused: string; refusal: string };

beforeAll(async () => {
  await dayWithTime();
  const clock = () => Date.parse(DAY_SHOWN) + 3 * DAY;
  let fault: ((url: URL) => SandboxAnswer) | undefined;
  sandbox = await startSandbox({ clock, fault: (url) => fault?.(url) });
  const receiver = await startReceiver(WEBHOOK_SECRET);
  world = await createWorld({
    services: ["markets", "console"],
    environment: {
      console: {
        SANDBOX_URL: sandbox.url,
        ...alertsTo(receiver.url, WEBHOOK_SECRET),
      },
    },
  });
  await onlySchedules(world, []);
  const { operator } = world;
  const run = await followRun(operator, await operator.launch("grid_region", DAY_SHOWN));
  const range = { job: "grid_region", first: DAY_SHOWN, last: DAY_SHOWN };
  const backfill = await operator.startBackfill(range);
  await followBackfill(operator, backfill, () => {});
  await fetch(`${world.urls.console}/api/alerts/test`, {
    method: "POST",
    headers: { Authorization: `Bearer ${world.operatorToken}` },
  });
  fault = distorted((row) => (isErcotDemand(row) ? { ...row, value: null } : row), clock);
  const refused = await followRun(operator, await operator.launch("grid_region", DAY_SHOWN));
  const [refusal] = await operator.refusals({ state: "open" });
  ids = {
    run: run.run_id,
    backfill: backfill.backfill_id,
    refused: refused.run_id,
    refusal: refusal?.refusal_id ?? "",
  };
});
afterAll(() => sandbox.close());

/** What differs from world to world and from day to day: ids, instants, days, durations, ports. */
const stable = (text: string) =>
  text
    .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, ID)
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, `${DAY_SHOWN}T05:20:00.000Z`)
    .replace(/"(\w+)":"(\d{4}-\d\d-\d\d)"/g, (_, name, day) => `"${name}":"${dayShown(name, day)}"`)
    .replace(/"ms":\d+/g, '"ms":21')
    .replace(/127\.0\.0\.1:\d+/g, "127.0.0.1:8080")
    // A run may have begun before its backfill is answered.
    .replace('"queued":0,"running":1', '"queued":1,"running":0');

/** The newest partitions are counted from the day shown; the first of a job never changes. */
function dayShown(name: string, day: string): string {
  if (name === "first_partition") return day;
  const daysAgo = Math.floor((systemClock() - Date.parse(day)) / DAY);
  const isNew = name === "partition" && daysAgo < 90;
  return isNew ? isoDay(Date.parse(DAY_SHOWN) - daysAgo * DAY) : DAY_SHOWN;
}

describe("the operator API's description", () => {
  exampleTests({
    file: join(import.meta.dirname, "../../edge/console/examples.json"),
    url: () => world.urls.console,
    secret: () => world.operatorToken,
    replaced: () => ({
      [`runs/${ID}`]: `runs/${ids.run}`,
      [`backfills/${ID}`]: `backfills/${ids.backfill}`,
      [`refusals/${ID}`]: `refusals/${ids.refusal}`,
      [`"refusal_ids":["${ID}"`]: `"refusal_ids":["${ids.refusal}"`,
    }),
    stable,
  });
});
