// A provider that changes its mind: a fuel that it files under another code takes its history with
// it, and the series is left as it was until an operator accepts just that.

import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { listEvents } from "../../edge/markets/ingest/journal.ts";
import { listExecutions } from "../../edge/markets/ingest/ledger.ts";
import { accept, launch, launchAccepted } from "../../edge/markets/ingest/operate.ts";
import { listPartitions } from "../../edge/markets/ingest/overview.ts";
import { type Pipeline, requirePipeline } from "../../edge/markets/ingest/pipeline.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import {
  countOpenRefusals,
  forgetRefusals,
  listRefusals,
  requireRefusal,
} from "../../edge/markets/ingest/refusals.ts";
import { DAY, HOUR, isoDay } from "../../shared/time.ts";
import { type ScriptedIngest, scriptedIngest } from "../support/ingest.ts";

const START = Date.parse("2026-03-02T20:20:00Z");
const JOB = "generation_by_fuel";
const LIBRARY = "power.generation_by_fuel";

let ingest: ScriptedIngest;
/** The fuels that the provider files an authority's generation under; no fuel: no answer of it. */
let filed: { ciso: readonly string[]; pjm: readonly string[] };
/** Whether the provider says that its answer lacks rows. */
let isPartial = false;

const pipeline: Pipeline = {
  ...requirePipeline(PIPELINES, JOB),
  schedules: [],
  fetch: async (_, { window }) => ({
    sourceUrl: "sandbox://provider",
    sandbox: true,
    isPartial,
    series: (["ciso", "pjm"] as const).flatMap((symbol) => {
      const rows = filed[symbol].flatMap((fuel) => hoursOf(symbol, fuel, window));
      return rows.length > 0 ? [{ library: LIBRARY, symbol, rows }] : [];
    }),
  }),
};

const hoursOf = (symbol: string, fuel: string, { from, to }: { from: number; to: number }) =>
  Array.from(
    { length: Math.max(0, (Math.min(to, ingest.now - 2 * HOUR) - from) / HOUR) },
    (_, hour) => ({
      datetime: from + hour * HOUR,
      instrumentId: `${LIBRARY}.${symbol}.${fuel}`,
      values: [100 + ((from / HOUR + hour) % 24)],
    }),
  );

beforeAll(async () => {
  ingest = await scriptedIngest({ pipelines: [pipeline], now: START });
});
afterAll(() => ingest.close());
beforeEach(async () => {
  await ingest.reset();
  ingest.now = START;
  isPartial = false;
  filed = { ciso: ["ng", "sun", "wnd"], pjm: ["ng"] };
});

/** Executes what is queued, and gives the newest execution. */
async function executed() {
  await ingest.consume();
  const [run] = await listExecutions(ingest.parts.database, { job: JOB, limit: 1 });
  if (!run) throw new Error("nothing was executed");
  return run;
}
/** The newest partition, by hand, a day after the last one. */
async function runNextDay() {
  ingest.now += DAY;
  await launch(ingest.parts, JOB);
  return executed();
}
const runAgain = async (partition?: string) => {
  ingest.now += HOUR;
  await launch(ingest.parts, JOB, partition);
  return executed();
};
const open = () => listRefusals(ingest.parts.database, { state: "open", limit: 10 });
const onlyOpen = async () => {
  const found = await open();
  expect(found).toHaveLength(1);
  return found[0] as NonNullable<(typeof found)[0]>;
};
const fuelsOf = async (symbol: string) => {
  const { rows } = await ingest.parts.store.read({ library: LIBRARY, symbol });
  const fuels = new Set((await rows()).map((row) => row.instrumentId.split(".").at(-1)));
  return [...fuels].toSorted().join(" ");
};
const stateOf = async (day: number) => {
  const key = isoDay(day);
  const [one] = await listPartitions(ingest.parts, JOB, { first: key, last: key });
  return one?.state;
};

/** A first sound run, then one after the provider filed solar power under another code. */
async function reclassified() {
  await launch(ingest.parts, JOB);
  expect((await executed()).state).toBe("succeeded");
  filed.ciso = ["ng", "snb", "wnd"];
  return runNextDay();
}

describe("a fuel filed under another code, with its history", () => {
  it("leaves its series as it was, and a run that is not green", async () => {
    const run = await reclassified();
    expect(run).toMatchObject({ state: "partial", error_code: null });
    expect(run.metadata).toMatchObject({
      check: {
        passed: false,
        reason: expect.stringMatching(/^\d+ rows would be withdrawn in CISO$/),
      },
    });
    expect(await fuelsOf("ciso")).toBe("ng sun wnd");
    // The other authority's newest day is stored.
    const newest = await ingest.parts.store.newestDatetime(LIBRARY, "pjm", Infinity);
    expect(newest).toBe(ingest.now - (ingest.now % HOUR) - 3 * HOUR);
    expect([await stateOf(START), await stateOf(ingest.now)]).toEqual(["materialized", "partial"]);
  });

  it("tells the operator which rows would go and which would come", async () => {
    const run = await reclassified();
    const refusal = await onlyOpen();
    expect(refusal).toMatchObject({
      job: JOB,
      library: LIBRARY,
      symbol: "ciso",
      run_id: run.run_id,
      vintage_reconstructed: false,
      state: "open",
      revised: 0,
    });
    const { changes, value_columns } = await requireRefusal(
      ingest.parts.database,
      refusal.refusal_id,
    );
    expect(value_columns).toEqual(["value"]);
    const gone = changes.filter(({ after }) => after === null);
    expect(gone).toHaveLength(refusal.withdrawn);
    expect(new Set(gone.map((row) => row.instrument_id))).toEqual(new Set([`${LIBRARY}.ciso.sun`]));
    expect(gone[0]?.before?.[0]).toBeGreaterThanOrEqual(100);
    const come = changes.filter(({ before }) => before === null);
    expect(come).toHaveLength(refusal.inserted);
    // Of the new day the other fuels come too.
    expect(new Set(come.map((row) => row.instrument_id.slice(-3)))).toEqual(
      new Set(["snb", ".ng", "wnd"]),
    );
    expect(await countOpenRefusals(ingest.parts.database)).toEqual(new Map([[JOB, 1]]));
  });

  it("is committed once an operator accepted it, whose name stays", async () => {
    const refused = await reclassified();
    const { refusal_id: refusalId } = await onlyOpen();
    const which = { runId: refused.run_id, refusalId };
    const [accepted] = await accept(ingest.parts, which, "ada");
    expect(accepted).toMatchObject({ state: "accepted", accepted_by: "ada" });
    expect(await accept(ingest.parts, which, "bob")).toMatchObject([{ accepted_by: "ada" }]);
    const journal = await listEvents(ingest.parts.database, refused.run_id);
    expect(journal.filter(({ event }) => event === "retraction_accepted")).toMatchObject([
      { level: "warning", detail: { by: "ada", series: [`${LIBRARY}.ciso`] } },
    ]);
    await launchAccepted(ingest.parts, accepted as NonNullable<typeof accepted>, "ada");
    expect(await executed()).toMatchObject({ state: "succeeded", launched_by: "ada" });
    // What lies before the window was never asked for again.
    expect(await fuelsOf("ciso")).toMatch(/snb/);
    const window = { library: LIBRARY, symbol: "ciso", start: ingest.now - 8 * DAY };
    const rows = await (await ingest.parts.store.read(window)).rows();
    expect(rows.some(({ instrumentId }) => instrumentId.endsWith(".sun"))).toBe(false);
    expect(await stateOf(ingest.now)).toBe("materialized");
    const [ended] = await listRefusals(ingest.parts.database, { state: "ended", limit: 10 });
    expect(ended).toMatchObject({ refusal_id: refusalId, accepted_by: "ada" });
    await expect(accept(ingest.parts, which, "ada")).rejects.toMatchObject({
      code: "state_conflict",
    });
  });

  it("is accepted for the rows that were looked at, and for no others", async () => {
    const refused = await reclassified();
    await accept(ingest.parts, { runId: refused.run_id }, "ada");
    // Now wind is gone, too, which nobody looked at.
    filed.ciso = ["ng", "snb"];
    expect((await runAgain()).state).toBe("partial");
    expect(await fuelsOf("ciso")).toBe("ng sun wnd");
    const [again] = await open();
    expect(again?.withdrawn).toBeGreaterThan(300);
    const states = await listRefusals(ingest.parts.database, { limit: 10 });
    expect(states.map(({ state }) => state)).toEqual(["open", "ended"]);
  });

  it("is accepted once: the same withdrawal later is refused again", async () => {
    const refused = await reclassified();
    await accept(ingest.parts, { runId: refused.run_id }, "ada");
    expect((await runAgain()).state).toBe("succeeded");
    filed.ciso = ["ng", "sun", "wnd"];
    expect((await runAgain()).state).toBe("partial");
  });

  it("is still open after an answer that says to lack rows, and over after a sound one", async () => {
    await reclassified();
    isPartial = true;
    expect((await runAgain()).state).toBe("succeeded");
    expect(await open()).toHaveLength(1);
    isPartial = false;
    filed.ciso = ["ng", "sun", "wnd", "snb"];
    expect((await runAgain()).state).toBe("succeeded");
    expect(await open()).toEqual([]);
    expect(await fuelsOf("ciso")).toBe("ng snb sun wnd");
  });

  it("is one refusal over many runs, and the one that was looked at is named", async () => {
    const first = await reclassified();
    const { refusal_id: refusalId } = await onlyOpen();
    const second = await runNextDay();
    expect(await onlyOpen()).toMatchObject({ refusal_id: refusalId, run_id: second.run_id });
    const stale = accept(ingest.parts, { runId: first.run_id, refusalId }, "ada");
    await expect(stale).rejects.toMatchObject({
      code: "state_conflict",
      message: expect.stringContaining(second.run_id),
    });
    expect(await accept(ingest.parts, { runId: second.run_id, refusalId }, "ada")).toHaveLength(1);
    const unknown = { runId: second.run_id, refusalId: crypto.randomUUID() };
    await expect(accept(ingest.parts, unknown, "ada")).rejects.toMatchObject({
      code: "unknown_refusal",
    });
  });
});

describe("other withdrawals", () => {
  it("of every series fail the run, and can be accepted all at once", async () => {
    await launch(ingest.parts, JOB);
    await executed();
    filed = { ciso: ["oth"], pjm: ["oth"] };
    const run = await runAgain();
    expect(run).toMatchObject({ state: "failed", error_code: "gate_rejected" });
    expect(run.error_detail).toMatch(/rows would be withdrawn in CISO, PJM$/);
    const accepted = await accept(ingest.parts, { runId: run.run_id }, "ada");
    expect(accepted.map(({ symbol }) => symbol)).toEqual(["ciso", "pjm"]);
    expect((await runAgain()).state).toBe("succeeded");
    expect([await fuelsOf("ciso"), await fuelsOf("pjm")]).toEqual(["oth", "oth"]);
  });

  it("of a reconstruction are accepted for its own partition", async () => {
    const day = isoDay(START - 3 * DAY);
    await launch(ingest.parts, JOB, day);
    expect((await executed()).state).toBe("succeeded");
    filed.ciso = ["ng", "snb", "wnd"];
    const run = await runAgain(day);
    expect(run).toMatchObject({ state: "partial", reconstructed: true });
    const refusal = await onlyOpen();
    expect(refusal).toMatchObject({ partition: day, vintage_reconstructed: true, withdrawn: 24 });
    // Another partition decides nothing about it.
    await runAgain(isoDay(START - 4 * DAY));
    expect(await open()).toHaveLength(1);
    const [accepted] = await accept(ingest.parts, { runId: run.run_id }, "ada");
    await launchAccepted(ingest.parts, accepted as NonNullable<typeof accepted>, "ada");
    expect(await executed()).toMatchObject({ state: "succeeded", partition: day });
    expect(await open()).toEqual([]);
  });

  it("are forgotten after 120 days once they ended, but not who accepted one", async () => {
    const { database } = ingest.parts;
    const refused = await reclassified();
    await accept(ingest.parts, { runId: refused.run_id }, "ada");
    await runAgain();
    filed.ciso = ["ng", "sun", "wnd"];
    await runAgain();
    filed.ciso = ["ng", "sun", "snb", "wnd"];
    await runAgain();
    const before = await listRefusals(database, { limit: 10 });
    expect(before.map(({ state, accepted_by }) => [state, accepted_by])).toEqual([
      ["ended", null],
      ["ended", "ada"],
    ]);
    await forgetRefusals(database, ingest.now + 119 * DAY);
    expect(await listRefusals(database, { limit: 10 })).toHaveLength(2);
    await forgetRefusals(database, ingest.now + 121 * DAY);
    expect(await listRefusals(database, { limit: 10 })).toMatchObject([{ accepted_by: "ada" }]);
  });
});
