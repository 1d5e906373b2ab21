// The operator API in workerd: every status of every route.

import { beforeAll, describe, expect, it } from "vitest";
import { ErrorBody } from "../../shared/errors.ts";
import { isoDay, systemClock } from "../../shared/time.ts";
import { Backfill, Job, Run } from "../../shared/wire/markets.ts";
import { commonRouteTests } from "../support/common-routes.ts";
import { createWorld, DAY, dayWithTime, type World } from "../support/world.ts";

let world: World;
let today: string;
let yesterday: string;
beforeAll(async () => {
  await dayWithTime();
  today = isoDay(systemClock());
  yesterday = isoDay(systemClock() - DAY);
  // No sandbox and no key: launched runs fail by themselves, which is all these routes need.
  world = await createWorld({ services: ["console"] });
});

const call = (path: string, body?: unknown) =>
  fetch(`${world.urls.console}/api${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: {
      Authorization: `Bearer ${world.operatorToken}`,
      "Content-Type": "application/json",
    },
    ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
  });
const refusal = async (response: Response) => {
  const { code, detail } = ErrorBody.parse(await response.json());
  return { status: response.status, code, detail };
};

describe("the operator API", () => {
  commonRouteTests("openapi.console.json", {
    url: () => world.urls.console,
    open: ["/healthz"],
    // No guess at a token: those wait in a line, and there are more routes than go without.
    wrong: { Authorization: "Basic wrong" },
  });

  it("lists jobs with the spec's schedule", async () => {
    const [job] = Job.array().parse(await (await call("/jobs")).json());
    expect(job).toMatchObject({
      job: "grid_region",
      latest_partition: today,
      schedules: expect.arrayContaining([
        expect.objectContaining({
          schedule: "grid_region",
          cron: "20 * * * *",
          time_zone: "America/New_York",
          aim: "latest",
          enabled: true,
        }),
      ]),
    });
  });

  it("has every schedule on from the start", async () => {
    const jobs = Job.array().parse(await (await call("/jobs")).json());
    const schedules = jobs.flatMap((job) => job.schedules);
    expect(schedules.length).toBeGreaterThanOrEqual(9);
    expect(schedules.filter(({ enabled }) => !enabled)).toEqual([]);
  });

  it("refuses what a body does not name: a misspelt partition would launch the newest", async () => {
    const range = { job: "grid_region", first: yesterday, last: yesterday };
    for (const [path, body] of [
      ["/runs", { job: "grid_region", partion: yesterday }],
      ["/backfills", { ...range, lasst: yesterday }],
      ["/snapshots", { name: "misspelt", asof: yesterday }],
    ] as const) {
      const { status, detail } = await refusal(await call(path, body));
      expect([path, status]).toEqual([path, 422]);
      expect(detail).toMatch(/partion|lasst|asof/);
    }
  });

  it("launches the newest partition as a forward vintage, an older one as a reconstruction", async () => {
    for (const partition of [undefined, yesterday]) {
      const response = await call("/runs", { job: "grid_region", partition });
      expect(response.status).toBe(202);
      const { run_id } = (await response.json()) as { run_id: string };
      const run = Run.parse(await (await call(`/runs/${run_id}`)).json());
      expect(run).toMatchObject({ partition: partition ?? today, trigger: "manual" });
    }
    const runs = Run.array().parse(await (await call("/runs?limit=1")).json());
    expect(runs).toHaveLength(1);
  });

  it("refuses an unknown job, a bad partition and a bad body", async () => {
    expect(await refusal(await call("/runs", { job: "nope" }))).toMatchObject({
      status: 404,
      code: "unknown_job",
      detail: expect.stringContaining("grid_region"),
    });
    for (const partition of ["2031-01-01", "2015-06-30", "x"]) {
      const answer = await refusal(await call("/runs", { job: "grid_region", partition }));
      expect(answer).toMatchObject({ status: 422, code: "bad_partition" });
    }
    for (const range of [
      "first=",
      "last=",
      "last=x",
      "last=2026-02-30",
      "first=1",
      "last=0000-01-01",
    ]) {
      const answer = await refusal(await call(`/jobs/grid_region/partitions?${range}`));
      expect([range, answer.status, answer.code]).toEqual([range, 422, "bad_partition"]);
    }
    expect(await refusal(await call("/runs", {}))).toMatchObject({
      status: 422,
      detail: "job: required",
    });
    const form = await fetch(`${world.urls.console}/api/runs`, {
      method: "POST",
      headers: { Authorization: `Bearer ${world.operatorToken}` },
      body: new URLSearchParams({ job: "grid_region" }),
    });
    expect(await refusal(form)).toMatchObject({ status: 400, code: "bad_body" });
    for (const note of ["a\0b", "half a pair \ud83d"]) {
      const answer = await refusal(await call("/snapshots", { name: "noted", note }));
      expect(answer).toMatchObject({ status: 422, code: "invalid_request" });
    }
    for (const path of ["/runs?job=%00", "/ticks?schedule=%00", "/ticks?schedule="]) {
      expect(await refusal(await call(path))).toMatchObject({ status: 422 });
    }
    const key = { job: "grid_region", first: today, last: today, idempotency_key: "a\0b" };
    expect(await refusal(await call("/backfills", key))).toMatchObject({ status: 422 });
    expect(await refusal(await call("/runs", "{"))).toMatchObject({
      status: 400,
      code: "bad_body",
    });
  });

  it("starts a backfill once for an idempotency key, and refuses a bad range", async () => {
    const body = { job: "grid_region", first: yesterday, last: today, idempotency_key: "once" };
    const first = Backfill.parse(await (await call("/backfills", body)).json());
    const again = Backfill.parse(await (await call("/backfills", body)).json());
    expect(again.backfill_id).toBe(first.backfill_id);
    const sum = Object.values(again.runs).reduce((total, count) => total + count, 0);
    expect(sum).toBe(2);
    const read = await call(`/backfills/${first.backfill_id}`);
    expect(Backfill.parse(await read.json())).toMatchObject({ first: yesterday, last: today });
    const ofIt = await call(`/runs?backfill_id=${first.backfill_id}`);
    const runs = Run.array().parse(await ofIt.json());
    expect(runs.map((run) => run.partition)).toEqual([today, yesterday]);
    const inverted = await call("/backfills", {
      job: "grid_region",
      first: today,
      last: yesterday,
    });
    expect(await refusal(inverted)).toMatchObject({ status: 422, code: "bad_partition" });
    const unknown = await call("/backfills", { job: "nope", first: today, last: today });
    expect(await refusal(unknown)).toMatchObject({ status: 404, code: "unknown_job" });
  });

  it("answers 404 for an unknown run or backfill and 422 for what is no id", async () => {
    const id = crypto.randomUUID();
    expect(await refusal(await call(`/runs/${id}`))).toMatchObject({
      status: 404,
      code: "unknown_run",
    });
    expect(await refusal(await call(`/backfills/${id}`))).toMatchObject({
      status: 404,
      code: "unknown_backfill",
    });
    const limits = ["0", "", "%20", "0x2", "1e1", "2&limit=2"].map((text) => `/runs?limit=${text}`);
    for (const path of ["/runs/x", "/backfills/x", "/runs?backfill_id=x", ...limits]) {
      expect(await refusal(await call(path))).toMatchObject({
        status: 422,
        code: "invalid_request",
      });
    }
  });
});
