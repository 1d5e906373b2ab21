// A provider that changes its mind: a fuel that it files under another code takes its history with
// it, and the series is left as it was until an operator accepts just that.

import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { listEvents } from "../../edge/markets/ingest/journal.ts";
import { createExecution, listExecutions } from "../../edge/markets/ingest/ledger.ts";
import { accept, cancel, launch, startBackfill } from "../../edge/markets/ingest/operate.ts";
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
/** What becomes of the rows of an answer. */
let shape: (rows: ReturnType<typeof hoursOf>) => ReturnType<typeof hoursOf>;
/** What happens while the provider is asked. */
let whileAsked: (() => Promise<void>) | null;

const pipeline: Pipeline = {
  ...requirePipeline(PIPELINES, JOB),
  schedules: [],
  fetch: async (_, { window }) => {
    await whileAsked?.();
    return {
      sourceUrl: "sandbox://provider",
      sandbox: true,
      isPartial,
      series: (["ciso", "pjm"] as const).flatMap((symbol) => {
        const rows = shape(filed[symbol].flatMap((fuel) => hoursOf(symbol, fuel, window)));
        return rows.length > 0 ? [{ library: LIBRARY, symbol, rows }] : [];
      }),
    };
  },
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
  shape = (rows) => rows;
  whileAsked = null;
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
    const { refusal_id: id } = await onlyOpen();
    const { refusals, runIds } = await accept(ingest.parts, [id], "ada");
    expect(refusals).toMatchObject([{ state: "accepted", accepted_by: "ada" }]);
    const journal = await listEvents(ingest.parts.database, refused.run_id);
    expect(journal.filter(({ event }) => event === "retraction_accepted")).toMatchObject([
      { level: "warning", detail: { by: "ada", series: [`${LIBRARY}.ciso`] } },
    ]);
    const run = await executed();
    expect(run).toMatchObject({ state: "succeeded", launched_by: "ada", reconstructed: false });
    expect([runIds, run.partition]).toEqual([[run.run_id], refused.partition]);
    // What lies before the window was never asked for again.
    expect(await fuelsOf("ciso")).toMatch(/snb/);
    const window = { library: LIBRARY, symbol: "ciso", start: ingest.now - 8 * DAY };
    const rows = await (await ingest.parts.store.read(window)).rows();
    expect(rows.some(({ instrumentId }) => instrumentId.endsWith(".sun"))).toBe(false);
    expect(await stateOf(ingest.now)).toBe("materialized");
    const [ended] = await listRefusals(ingest.parts.database, { state: "ended", limit: 10 });
    expect(ended).toMatchObject({ refusal_id: id, accepted_by: "ada" });
    await expect(accept(ingest.parts, [id], "ada")).rejects.toMatchObject({
      code: "state_conflict",
    });
  });

  it("is accepted by the first who does, and all that are named or none", async () => {
    await reclassified();
    const { refusal_id: id } = await onlyOpen();
    const unknown = crypto.randomUUID();
    await expect(accept(ingest.parts, [id, unknown], "bob")).rejects.toMatchObject({
      code: "unknown_refusal",
    });
    expect(await open()).toHaveLength(1);
    await accept(ingest.parts, [id], "ada");
    const { refusals } = await accept(ingest.parts, [id], "bob");
    expect(refusals).toMatchObject([{ accepted_by: "ada" }]);
  });

  it("is accepted for the rows that were looked at, and for no others", async () => {
    await reclassified();
    const first = await onlyOpen();
    await accept(ingest.parts, [first.refusal_id], "ada");
    ingest.queue = [];
    // Now wind is gone, too, which nobody looked at.
    filed.ciso = ["ng", "snb"];
    expect((await runAgain()).state).toBe("partial");
    expect(await fuelsOf("ciso")).toBe("ng sun wnd");
    const again = await onlyOpen();
    // An id never stands for more rows than it did.
    expect(again.refusal_id).not.toBe(first.refusal_id);
    expect(again.withdrawn).toBeGreaterThan(first.withdrawn * 1.9);
    const states = await listRefusals(ingest.parts.database, { limit: 10 });
    expect(states.map(({ state }) => state)).toEqual(["open", "ended"]);
  });

  it("is accepted with what came in its place: without that nothing goes", async () => {
    await reclassified();
    const { refusal_id: id } = await onlyOpen();
    await accept(ingest.parts, [id], "ada");
    ingest.queue = [];
    filed.ciso = ["ng", "wnd"];
    expect((await runAgain()).state).toBe("partial");
    expect(await fuelsOf("ciso")).toBe("ng sun wnd");
    // The acceptance holds until what was accepted is sent.
    filed.ciso = ["ng", "snb", "wnd"];
    expect((await runAgain()).state).toBe("succeeded");
    expect(await fuelsOf("ciso")).toMatch(/snb/);
  });

  it("is accepted once: the same withdrawal later is refused again", async () => {
    await reclassified();
    const { refusal_id: id } = await onlyOpen();
    await accept(ingest.parts, [id], "ada");
    expect((await executed()).state).toBe("succeeded");
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

  it("is one refusal over many runs that are refused no other rows", async () => {
    await reclassified();
    const { refusal_id: id } = await onlyOpen();
    const second = await runNextDay();
    expect(await onlyOpen()).toMatchObject({ refusal_id: id, run_id: second.run_id });
  });

  it("is not used up by what a partial answer may not withdraw", async () => {
    await reclassified();
    const { refusal_id: id } = await onlyOpen();
    await accept(ingest.parts, [id], "ada");
    ingest.queue = [];
    isPartial = true;
    expect((await runAgain()).state).toBe("succeeded");
    isPartial = false;
    expect((await runAgain()).state).toBe("succeeded");
    const [ended] = await listRefusals(ingest.parts.database, { limit: 10 });
    expect(ended).toMatchObject({ state: "ended", accepted_by: "ada" });
    expect((await fuelsOf("ciso")).split(" ")).toContain("snb");
  });
});

describe("values that become null", () => {
  const asNull = (rows: ReturnType<typeof hoursOf>) =>
    rows.map((row) =>
      row.instrumentId.endsWith("ciso.sun") ? { ...row, values: [Number.NaN] } : row,
    );

  it("are accepted once, also where the answer is partial", async () => {
    await launch(ingest.parts, JOB);
    await executed();
    shape = asNull;
    expect((await runAgain()).state).toBe("partial");
    const { refusal_id: id } = await onlyOpen();
    isPartial = true;
    await accept(ingest.parts, [id], "ada");
    expect((await executed()).state).toBe("succeeded");
    const [ended] = await listRefusals(ingest.parts.database, { limit: 10 });
    expect(ended).toMatchObject({ refusal_id: id, state: "ended" });
    isPartial = false;
    shape = (rows) => rows;
    expect((await runAgain()).state).toBe("succeeded");
    shape = asNull;
    expect((await runAgain()).state).toBe("partial");
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
    const ids = (await open()).map(({ refusal_id }) => refusal_id);
    const { refusals, runIds } = await accept(ingest.parts, ids, "ada");
    expect(refusals.map(({ symbol }) => symbol)).toEqual(["ciso", "pjm"]);
    expect(runIds).toHaveLength(1);
    expect((await executed()).state).toBe("succeeded");
    expect([await fuelsOf("ciso"), await fuelsOf("pjm")]).toEqual(["oth", "oth"]);
  });

  const reconstructed = async (day: string) => {
    const { backfillId } = await startRange(day);
    await drain();
    return backfillId;
  };
  const startRange = async (day: string) => ({
    backfillId: await startBackfill(ingest.parts, { job: JOB, first: day, last: day }),
  });
  async function drain() {
    for (let round = 0; round < 5; round++) await ingest.consume();
  }

  it.each([
    ["an older partition", 3],
    ["the newest partition", 0],
  ])("of a backfill of %s are accepted for that partition", async (_, back) => {
    const day = isoDay(START - back * DAY);
    await reconstructed(day);
    filed.ciso = ["ng", "snb", "wnd"];
    ingest.now += HOUR;
    await reconstructed(day);
    const refusal = await onlyOpen();
    expect(refusal).toMatchObject({ partition: day, vintage_reconstructed: true });
    // Another partition decides nothing about it.
    ingest.now += HOUR;
    await reconstructed(isoDay(START - 6 * DAY));
    expect(await open()).toHaveLength(1);
    await accept(ingest.parts, [refusal.refusal_id], "ada");
    expect(await executed()).toMatchObject({
      state: "succeeded",
      partition: day,
      reconstructed: true,
    });
    expect(await open()).toEqual([]);
  });

  it("of an older window stand beside those of the newest, and end by their own", async () => {
    await launch(ingest.parts, JOB);
    await executed();
    const old = isoDay(START - 20 * DAY);
    const forward = async (partition: string) => {
      ingest.now += HOUR;
      const runId = crypto.randomUUID();
      const trigger = "manual" as const;
      const execution = { runId, job: JOB, partition, trigger, reconstructed: false };
      await createExecution(ingest.parts.database, execution, ingest.now);
      await ingest.parts.send(JOB, [runId]);
      return executed();
    };
    expect((await forward(old)).state).toBe("succeeded");
    filed.ciso = ["ng", "snb", "wnd"];
    expect((await forward(old)).state).toBe("partial");
    expect((await runAgain()).state).toBe("partial");
    const both = await open();
    expect(both.map(({ partition }) => partition)).toEqual([isoDay(START), old]);
    // The newest window is sound again, and says nothing of the old one.
    filed.ciso = ["ng", "sun", "wnd"];
    expect((await runAgain()).state).toBe("succeeded");
    expect((await onlyOpen()).partition).toBe(old);
    filed.ciso = ["ng", "snb", "wnd"];
    ingest.now += HOUR;
    await accept(ingest.parts, [(await onlyOpen()).refusal_id], "ada");
    expect(await executed()).toMatchObject({
      state: "succeeded",
      partition: old,
      reconstructed: false,
    });
    expect(await open()).toEqual([]);
  });

  it("that were accepted while a run was at work are committed by the next", async () => {
    await reclassified();
    const { refusal_id: id } = await onlyOpen();
    whileAsked = async () => {
      whileAsked = null;
      // The open refusals are read after the answer came: here the commit is under way.
      await accept(ingest.parts, [id], "ada");
    };
    const run = await runAgain();
    expect(["partial", "succeeded"]).toContain(run.state);
    await ingest.consume();
    const found = await listRefusals(ingest.parts.database, { limit: 10 });
    expect(found).toMatchObject([{ refusal_id: id, state: "ended", accepted_by: "ada" }]);
  });

  it("that a run met after it was canceled are not recorded", async () => {
    await launch(ingest.parts, JOB);
    await executed();
    filed.ciso = ["ng", "snb", "wnd"];
    whileAsked = async () => {
      whileAsked = null;
      const [run] = await listExecutions(ingest.parts.database, { job: JOB, limit: 1 });
      await cancel(ingest.parts, { runId: run?.run_id ?? "" });
    };
    expect((await runAgain()).state).toBe("canceled");
    expect(await open()).toEqual([]);
  });

  it("are forgotten after 120 days, but not who accepted one", async () => {
    const { database } = ingest.parts;
    await reclassified();
    await accept(ingest.parts, [(await onlyOpen()).refusal_id], "ada");
    await executed();
    filed.ciso = ["ng", "sun", "wnd"];
    await runAgain();
    const before = await listRefusals(database, { limit: 10 });
    expect(before.map(({ state, accepted_by }) => [state, accepted_by])).toEqual([
      ["open", null],
      ["ended", "ada"],
    ]);
    await forgetRefusals(database, ingest.now + 119 * DAY);
    expect(await listRefusals(database, { limit: 10 })).toHaveLength(2);
    await forgetRefusals(database, ingest.now + 121 * DAY);
    expect(await listRefusals(database, { limit: 10 })).toMatchObject([{ accepted_by: "ada" }]);
  });
});
