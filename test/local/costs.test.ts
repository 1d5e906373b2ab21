// The table of costs in the README: it is what the script prints, its figures agree with ones
// computed by hand, and the code still holds the constants that the quantities come from.

import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import {
  amountsOf,
  billOf,
  costTable,
  loggingAll,
  PRICES_DATE,
  USES,
  workOf,
} from "../../edge/local/costs.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const read = (file: string) => readFileSync(resolve(ROOT, file), "utf8");
const README = "edge/local/README.md";
const MARKED = /(?<=<!-- costs -->\n)[\s\S]*(?=<!-- \/costs -->)/;

/** Work and bill of the use whose name holds a word. */
function worked(word: string) {
  const use = USES.find(({ name }) => name.includes(word));
  if (!use) throw new Error(`no use is named ${word}`);
  const work = workOf(use);
  return { work, bill: billOf(amountsOf(work)) };
}

describe("the table of costs", () => {
  it("is the one in the README, with the date of its prices", () => {
    const table = `${costTable()}\n`;
    const text = read(README);
    if (process.env.GOLDEN) {
      writeFileSync(
        resolve(ROOT, README),
        text.replace(MARKED, () => table),
      );
    }
    expect(MARKED.exec(read(README))?.[0]).toBe(table);
    expect(text).toContain(`list prices of ${PRICES_DATE}`);
  });

  it("charges 10,000 devices $126.72 for requests", () => {
    // 432,000,000 beats, 300,000 batches of logs and 86,400 minutes of crons; 10,000,000 are
    // included: 422.3864 millions at 30 cents.
    expect(worked("devices").bill.workerRequests).toBeCloseTo(126.71592, 8);
  });

  it("charges 1,000 idle nodes $87.75 for requests and $5.55 for egress", () => {
    const { bill } = worked("nodes");
    // A node: 4,320 heartbeats and 5,760 claims a day, so 302,400,000 a month, and the crons'
    // 86,400; 292.4864 millions at 30 cents.
    expect(bill.workerRequests).toBeCloseTo(87.74592, 8);
    // 129,600,000 times 1,017 bytes are 131.8032 GB, 172,800,000 times 2,442 are 421.9776, and the
    // crons have 1.6702848: 55.4510848 GB above 500, at 10 cents.
    expect(bill.neonEgressGb).toBeCloseTo(5.54510848, 8);
  });

  it("charges a deployment that nobody uses $24.08", () => {
    // The plan, 5; a quarter of a unit for 720 hours at 10.6 cents, 19.08.
    const { bill } = worked("crons");
    expect(Object.values(bill).reduce((total, one) => total + one)).toBeCloseTo(24.08, 8);
  });

  it("charges for the logs of a million reads a day by lines, then by GB", () => {
    // 30,158,400 requests and 144,000 lines of runs: 10.3024 millions above 20, at 60 cents. They
    // are 60.6048 GB, of which 10.6048 are above 50, at 25 cents; kept for 7 of 30 days they are
    // 14.14112 GB-months, of which 2.14112 are above 12, at 10 cents.
    const { byLines, byGb } = loggingAll(worked("reads").work);
    expect(byLines).toBeCloseTo(6.18144, 8);
    expect(byGb).toBeCloseTo(2.6512 + 0.214112, 8);
  });
});

describe("a quantity of the script", () => {
  it.each([
    ["gpu-node/node/worker.ts", "const IDLE_MS = 15_000;"],
    ["gpu-node/node/line.ts", "const READ_BYTES = 1024 * 1024;"],
    ["edge/vision/config.ts", "NODE_LIST_SECONDS: whole(0, 10).default(1),"],
    ["edge/vision/base/tally.ts", "const SEND_AFTER_MS = 3_000;"],
    ["edge/vision/serving/endpoints/meter-object.ts", "const FLUSH_MS = 10_000;"],
    ["edge/vision/fleet/devices/beats.ts", "const WHOLE_MS = DAY;"],
    [
      "edge/vision/fleet/devices/beats.ts",
      'export const KEPT_MEANS = keep(deviceMean, "at", { days: 30, max: 50_000 });',
    ],
    ["edge/markets/store/compact.ts", "vintages: 64,"],
    ["edge/http/config.ts", "export const objectGraceDays = () => whole(0, 3_650).default(35);"],
    ["edge/markets/store/archive.ts", "ageMs: 90 * 86_400_000,"],
  ])("is that of %s: %s", (file, line) => {
    expect(read(file)).toContain(line);
  });

  it("is that of wrangler.toml: two crons a minute, and no line that the platform adds", () => {
    const settings = read("wrangler.toml");
    expect(settings.match(/crons = \["\* \* \* \* \*"\]/g)).toHaveLength(2);
    expect(settings.match(/^observability = .*invocation_logs = false/gm)).toHaveLength(4);
  });
});
