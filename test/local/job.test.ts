// `npm run job`, run as a user runs it, against a world's console: what it prints, what it refuses,
// and how it exits.

import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Sandbox, startSandbox } from "../../edge/local/sandbox/server.ts";
import { lockState, prepareState, ROOT, stateAt, writePrivate } from "../../edge/local/state.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { systemClock } from "../../shared/time.ts";
import {
  Backfill,
  Job,
  PartitionState,
  Run,
  RunEvent,
  Schedule,
  Tick,
} from "../../shared/wire/markets.ts";
import { Refusal, RefusedChange } from "../../shared/wire/refusals.ts";
import { temporaryFolder } from "../support/postgres.ts";
import { distorted, isErcotDemand } from "../support/provider-faults.ts";
import { createWorld, onlySchedules, type World } from "../support/world.ts";

const stateDir = temporaryFolder();
const state = stateAt(stateDir);
let world: World;
let sandbox: Sandbox;
let unlock: () => void;
/** What the provider answers instead of the truth, if anything. */
let fault: ReturnType<typeof distorted> | undefined;

beforeAll(async () => {
  sandbox = await startSandbox({ fault: (url) => fault?.(url) });
  world = await createWorld({
    services: ["console"],
    environment: { console: { SANDBOX_URL: sandbox.url } },
  });
  await onlySchedules(world, []);
  // What a running stack leaves for its commands.
  prepareState(state);
  writePrivate(state.operatorToken, world.operatorToken);
  writePrivate(state.running, JSON.stringify({ urls: world.urls }));
  unlock = lockState(state);
});
afterAll(async () => {
  unlock();
  await sandbox.close();
  rmSync(stateDir, { recursive: true, force: true });
});

/** How the command ended, and what it wrote. */
interface Outcome {
  code: number | null;
  out: string;
  lines: string[];
  errors: string;
}

/** Runs the command to its end. */
function job(...args: string[]): Promise<Outcome> {
  const child = spawn(process.execPath, [join(ROOT, "edge/local/job.ts"), ...args], {
    env: { ...process.env, VANTAGE_STATE: stateDir },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [out, errors] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => {
    out += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    errors += chunk.toString();
  });
  return new Promise((done) =>
    child.on("close", (code) => done({ code, out, lines: out.trimEnd().split("\n"), errors })),
  );
}

const UUID = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/;
const idIn = (text: string) => UUID.exec(text)?.[0] ?? "";

describe("npm run job", () => {
  it("explains itself, every command of it", async () => {
    const { code, out } = await job("--help");
    expect(code).toBe(0);
    const commands = ["list", "launch", "backfill <job_name> --partition-range A:B", "partitions"];
    commands.push("backfill --retry-failed", "runs", "events", "cancel", "schedules", "ticks");
    for (const command of commands) expect(out).toContain(command);
  });

  it.each([
    [[], "no command was given"],
    [["frobnicate"], "there is no command frobnicate"],
    [["list", "all"], 'list takes no "all"'],
    [["list", "--limit", "3"], "list takes no --limit"],
    [["runs", "--colour"], "there is no option --colour"],
    [["runs", "--limit", "few"], '--limit "few" is not a number'],
    [["runs", "--state", "done"], "--state done is none of queued, waiting, running"],
    [["backfill"], "name the job to backfill"],
    [["backfill", "degree_days"], "name --partition-range <first>:<last>"],
    [["backfill", "degree_days", "--partition-range", "2026"], '"2026" is not <first>:<last>'],
    [["backfill", "degree_days", "--retry-failed", "x"], "--retry-failed stands alone"],
    [["launch", "--partition", "2026-01-01"], "--partition needs a job"],
    [["cancel"], "name the run or backfill to cancel"],
    [["events"], "name the run whose journal to show"],
    [["schedules", "up"], 'schedules takes on or off, not "up"'],
    [["schedules", "off"], "name the schedule, or all"],
  ])("exits with 2 when it does not understand: %j", async (args, reason) => {
    const { code, errors } = await job(...args);
    expect([code, errors]).toEqual([2, expect.stringContaining(reason)]);
    expect(errors).toContain("npm run job -- --help");
  });

  it.each([
    [["launch", "nope"], 'no job is named "nope"; there are: grid_region'],
    [["launch", "degree_days", "--partition", "2026-01-02"], "2026-01-02 begins no month"],
    [["backfill", "degree_days", "--partition-range", "2026-02-01:2026-01-01"], "lies after"],
    [["partitions", "nope"], 'no job is named "nope"'],
    [["schedules", "off", "nope"], 'no schedule is named "nope"'],
    [["cancel", crypto.randomUUID()], "no run and no backfill has the id"],
    [["events", crypto.randomUUID()], "no such run"],
    [["cancel", "../jobs"], "must be a UUID"],
    [["backfill", "--retry-failed", crypto.randomUUID()], "no such backfill"],
  ])("exits with 1 in the console's words when that refuses: %j", async (args, reason) => {
    const { code, out, errors } = await job(...args);
    expect([code, out, errors]).toEqual([1, "", expect.stringContaining(reason)]);
  });

  it("lists jobs with their partitions and schedules, and says which have none", async () => {
    const { code, out } = await job("list");
    expect(code).toBe(0);
    for (const { job: name } of PIPELINES) expect(out).toContain(`${name}  → `);
    expect(out).toContain("noaa; a month, 1895-01-01 to ");
    expect(out).toContain("degree_days  0 12 6 * * America/New_York");
    expect(out).toContain("no schedule: run it by hand");
  });

  it("launches a run and waits for its end, or does not", async () => {
    const waited = await job("launch", "intraday_bars");
    expect([waited.code, waited.errors]).toEqual([0, ""]);
    expect(waited.lines[1]).toMatch(/intraday_bars {2}\S+ {2}manual {2}succeeded {2}\d+ rows/);
    const sent = await job("launch", "intraday_bars", "--no-wait");
    expect([sent.code, sent.lines]).toEqual([
      0,
      [expect.stringMatching(/^launched intraday_bars: run /)],
    ]);
  });

  it("gives programs the result as JSON and nothing else, with the same exit code", async () => {
    const result = async (...args: string[]) => {
      const { code, out, errors } = await job(...args, "--json");
      return { code, errors, value: JSON.parse(out) as unknown };
    };
    const launched = await result("launch", "intraday_bars");
    const [run] = Run.array().parse(launched.value);
    expect([launched.code, launched.errors, run?.state]).toEqual([0, "", "succeeded"]);
    const range = ["--partition-range", "2023-01-01:2023-02-01"];
    const { value: backfill } = await result("backfill", "degree_days", ...range);
    expect(Backfill.parse(backfill).runs.succeeded).toBe(2);
    const lists = [
      [Job, "list"],
      [Run, "runs", "--limit", "2"],
      [PartitionState, "partitions", "degree_days"],
      [RunEvent, "events", run?.run_id ?? ""],
      [Schedule, "schedules"],
      [Tick, "ticks"],
    ] as const;
    for (const [Shape, ...args] of lists) {
      const { code, value } = await result(...args);
      expect([args, code, Shape.array().safeParse(value).success]).toEqual([args, 0, true]);
    }
    expect((await result("schedules", "off", "degree_days")).value).toEqual([
      { schedule: "degree_days", enabled: false },
    ]);
    const over = await result("cancel", run?.run_id ?? "");
    expect([over.code, Run.parse(over.value).state]).toEqual([1, "succeeded"]);
  });

  it("backfills in the spec's form, with a line for each partition", async () => {
    const range = "2024-01-01:2024-03-01";
    const { code, lines } = await job("backfill", "degree_days", "--partition-range", range);
    expect(code).toBe(0);
    expect(lines[0]).toMatch(/^backfill \S+: degree_days 2024-01-01 to 2024-03-01, 3 runs$/);
    expect(lines.slice(1)).toEqual([
      "2024-03-01  succeeded  116 rows",
      "2024-02-01  succeeded  116 rows",
      "2024-01-01  succeeded  116 rows",
      "degree_days: 3 succeeded",
    ]);
    const states = await job("partitions", "degree_days", "--partition-range", range);
    expect(states.lines.map((line) => line.split(/ +/).slice(0, 2))).toEqual([
      ["2024-03-01", "materialized"],
      ["2024-02-01", "materialized"],
      ["2024-01-01", "materialized"],
    ]);
  });

  it("exits with 1 when partitions failed, and runs them again on demand", async () => {
    sandbox.break("twelve_data", "refused");
    const range = "2024-03-04:2024-03-05";
    const failed = await job("backfill", "intraday_bars", "--partition-range", range);
    expect(failed.code).toBe(1);
    expect(failed.out).toMatch(/2024-03-05 {2}failed {2}upstream_unauthorized: .*TWELVE_DATA_API/);
    expect(failed.lines.at(-2)).toBe("intraday_bars: 2 failed");
    const listed = await job("runs", "--job", "intraday_bars", "--state", "failed");
    expect(listed.lines).toHaveLength(2);
    const one = await job("runs", "--partition", "2024-03-04", "--limit", "1");
    expect(one.lines).toEqual([expect.stringMatching(/2024-03-04 {2}backfill {2}failed/)]);
    const journal = await job("events", idIn(one.out));
    expect(journal.out).toMatch(/ERROR failed {2}.*code=upstream_unauthorized/);
    sandbox.break("twelve_data", null);
    const id = idIn(failed.out);
    expect(failed.lines.at(-1)).toBe(`Again: npm run job -- backfill --retry-failed ${id}`);
    const again = await job("backfill", "--retry-failed", id);
    expect([again.code, again.lines.at(-1)]).toEqual([0, "intraday_bars: 2 succeeded"]);
    const ofIt = await job("runs", "--backfill", id);
    expect(ofIt.out.match(/succeeded/g)).toHaveLength(2);
  });

  it("cancels a backfill or a run, and says when it was too late", async () => {
    sandbox.break("noaa", "down");
    const range = "1990-01-01:1999-12-01";
    const sent = await job("backfill", "degree_days", "--partition-range", range, "--no-wait");
    const canceled = await job("cancel", idIn(sent.out));
    expect([canceled.code, canceled.out]).toEqual([0, "degree_days: 120 canceled\n"]);
    const launched = await job("launch", "degree_days", "--no-wait");
    const run = await job("cancel", idIn(launched.out));
    expect([run.code, run.out]).toEqual([0, expect.stringMatching(/ manual {2}canceled/)]);
    sandbox.break("noaa", null);
    // Its newest partition waits for nobody, whatever the day is.
    const done = await job("launch", "intraday_bars");
    const late = await job("cancel", idIn(done.out));
    expect([late.code, late.lines.at(-1)]).toEqual([1, "It had ended before."]);
  });

  it("lists schedules, switches them, and shows their ticks", async () => {
    expect((await job("schedules")).lines.every((line) => line.startsWith("OFF"))).toBe(true);
    const on = await job("schedules", "on", "degree_days");
    expect([on.code, on.out]).toEqual([0, "degree_days  on\n"]);
    const listed = await job("schedules");
    expect(listed.out).toMatch(/^on {3}degree_days .* 0 12 6 \* \* .* latest .* next 20/m);
    await job("schedules", "on", "all");
    expect((await job("schedules")).lines.every((line) => line.startsWith("on"))).toBe(true);
    await job("schedules", "off", "all");
    await world.operator.switchSchedule("degree_days_repair", true);
    await world.database.execute("UPDATE schedule SET last_tick = '2026-01-01'");
    await world.tick(Date.UTC(2026, 0, 3, 12));
    const ticks = await job("ticks", "degree_days_repair", "--limit", "2");
    expect(ticks.lines).toHaveLength(2);
    expect(ticks.out).toMatch(/degree_days_repair {2,}skipped {2}\S+/);
    await job("schedules", "off", "all");
  });

  it("lists refused changes, shows one row by row, and accepts it with the run that commits it", async () => {
    expect(await job("launch", "grid_region")).toMatchObject({ code: 0 });
    expect((await job("refusals")).lines).toEqual(["Nothing is refused."]);
    fault = distorted((row) => (isErcotDemand(row) ? { ...row, value: null } : row), systemClock);
    const refused = await job("launch", "grid_region");
    expect([refused.code, refused.out]).toEqual([
      1,
      expect.stringMatching(/partial .*CHECK FAILED .*would be withdrawn in ERCO/),
    ]);
    const [refusal] = Refusal.array().parse(JSON.parse((await job("refusals", "--json")).out));
    const id = refusal?.refusal_id ?? "";
    expect((await job("refusals", "--job", "grid_region")).lines).toEqual([
      expect.stringMatching(/open {2}power\.demand\.erco: \d+ of \d+ rows would go, 0 come/),
    ]);
    const whole = await job("refusals", id);
    expect(whole.lines.length).toBe(1 + (refusal?.withdrawn ?? 0));
    expect(whole.lines[1]).toMatch(/power\.demand\.erco +\d+ +→ +null$/);
    expect(
      RefusedChange.parse(JSON.parse((await job("refusals", id, "--json")).out)),
    ).toMatchObject({
      refusal_id: id,
    });
    const accepted = await job("accept", id);
    expect(accepted).toMatchObject({ code: 0, errors: "" });
    expect(accepted.lines).toEqual([
      expect.stringMatching(/ accepted {2}power\.demand\.erco: /),
      expect.stringMatching(/grid_region .* succeeded /),
    ]);
    const again = await job("accept", id);
    expect([again.code, again.errors]).toEqual([1, expect.stringContaining("has ended")]);
    fault = undefined;
  });

  it("accepts refused changes that are named, and by ids that there are", async () => {
    expect(await job("accept")).toMatchObject({
      code: 2,
      errors: expect.stringContaining("name the refusals to accept"),
    });
    expect(await job("accept", crypto.randomUUID())).toMatchObject({
      code: 1,
      errors: expect.stringContaining("no refusal has the id"),
    });
  });

  it("says when no stack runs, and when its console does not answer", async () => {
    writePrivate(state.running, JSON.stringify({ urls: { console: "http://127.0.0.1:1" } }));
    const silent = await job("list");
    expect([silent.code, silent.errors]).toEqual([1, expect.stringContaining("does not answer")]);
    rmSync(state.running);
    const none = await job("list");
    expect([none.code, none.errors]).toEqual([
      1,
      expect.stringMatching(/no stack runs on .*npm start/),
    ]);
  });
});
