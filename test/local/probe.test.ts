// `npm run job -- probe`: what providers answer, beside what is expected. Goal: an operator's first
// minute with a key shows what does not fit, by name, and stores nothing.

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { linesOf, type ProbeResult, probe } from "../../edge/local/probe.ts";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { ROOT } from "../../edge/local/state.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { PROVIDER_IDS, type Provider } from "../../edge/markets/ingest/providers.ts";
import { upstreamsOf } from "../support/upstreams.ts";

const NOW = Date.parse("2026-11-20T18:00:00Z");

let sandbox: Sandbox;
beforeAll(async () => {
  sandbox = await startSandbox({ clock: () => NOW });
});
afterAll(() => sandbox.close());

/** What providers say whose answers are changed on their way. */
async function probed(
  providers: readonly Provider[],
  change: (text: string, url: string) => string = (text) => text,
): Promise<ProbeResult[]> {
  const upstreams = upstreamsOf(
    { SANDBOX_URL: sandbox.url },
    {
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        const isText = /json|html|text/.test(response.headers.get("Content-Type") ?? "");
        if (!isText) return response;
        return new Response(change(await response.text(), url), response);
      },
    },
  );
  const results: ProbeResult[] = [];
  for await (const one of probe(upstreams, { providers, now: NOW })) results.push(one);
  return results;
}

it("finds nothing amiss where all is as expected, and tells what came", async () => {
  const results = await probed(PROVIDER_IDS);
  expect(results.map(({ job }) => job)).toEqual(PIPELINES.map(({ job }) => job));
  for (const { job, rows, failure, differences } of results) {
    const errors = differences.filter(({ severity }) => severity === "error");
    expect([job, failure, errors, rows > 0]).toEqual([job, null, [], true]);
  }
  const storage = results.find(({ job }) => job === "gas_storage");
  expect(storage).toMatchObject({ partition: "2026-11-06", rows: 8 });
  expect(linesOf(storage as ProbeResult).join("\n")).toMatch(
    /gas_storage \(eia, 2026-11-06\): 8 rows of 1 series, as expected\n {2}fundamentals.agency\/gas_storage: 8 rows/,
  );
});

it("names a column that is gone, a unit that is another, and a row that cannot be read", async () => {
  const [gone] = await probed(["eia"], (text) => text.replaceAll('"respondent":', '"area":'));
  expect(gone?.failure).toMatchObject({
    code: "upstream_schema_drift",
    detail: expect.stringContaining("`respondent` is missing"),
    arrived: expect.stringContaining("area: string"),
  });
  const units = await probed(["eia"], (text) =>
    text.replaceAll(/"units":"[^"]+"/g, '"units":"TJ"'),
  );
  const storage = units.find(({ job }) => job === "gas_storage");
  expect(storage?.differences).toMatchObject([{ rule: "unexpected_unit" }]);
  let rows = 0;
  const torn = await probed(["eia"], (text) =>
    text.replaceAll(/"value":"?[\d.-]+"?/g, (cell) => (rows++ === 5 ? '"value":"W"' : cell)),
  );
  expect(torn[0]?.differences[0]).toMatchObject({ rule: "unreadable_rows", count: 1 });
  expect(linesOf(torn[0] as ProbeResult).join("\n")).toMatch(/warning: unreadable_rows \(1: .*"W"/);
});

it("says which credential is missing, and which providers there are", () => {
  const run = (...words: string[]) =>
    spawnSync(process.execPath, [join(ROOT, "edge/local/job.ts"), "probe", ...words], {
      encoding: "utf8",
      env: { PATH: process.env.PATH, HOME: process.env.HOME },
    });
  const missing = run("twelve_data");
  expect([missing.status, missing.stdout]).toEqual([
    1,
    expect.stringMatching(/intraday_bars.*: failed\n {2}credential_missing: TWELVE_DATA_API_KEY/),
  ]);
  const unknown = run("eai");
  expect([unknown.status, unknown.stderr]).toEqual([2, expect.stringMatching(/eai.*eia/s)]);
});
