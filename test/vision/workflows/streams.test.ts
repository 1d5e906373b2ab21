// What versions remember of streams, and how workflows are used. Goal: of two runs of a stream one
// saves, what is remembered is bounded, and figures add up whatever came at once.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { findDeployed } from "../../../edge/vision/workflows/definitions/versions.ts";
import { performEffects } from "../../../edge/vision/workflows/effects.ts";
import {
  KEPT_STREAMS,
  readStream,
  saveStream,
} from "../../../edge/vision/workflows/runs/streams.ts";
import { countUse, KEPT_USE } from "../../../edge/vision/workflows/usage.ts";
import { DAY, HOUR, iso } from "../../../shared/time.ts";
import { WorkflowUsage } from "../../../shared/wire/workflows.ts";
import { forgetRows } from "../../support/retention.ts";
import { createWorkflowWorld, sending, type WorkflowWorld } from "../../support/workflow-world.ts";

let w: WorkflowWorld;
const now = Date.now();
beforeAll(async () => {
  w = await createWorkflowWorld();
});

/** A message that a sink asks for. */
const SENT = {
  request: {
    url: "https://example.com/hook",
    url_secret: null,
    headers: {},
    secret_headers: {},
    signing_secret: null,
    payload: 1,
  },
  image: null,
};
const database = () => w.world.visionDatabase;
/** A deployed workflow. */
async function deployed() {
  const { slug } = await w.make();
  await w.engineer.ok("POST", `/workflows/saved/${slug}/deploy`);
  return findDeployed(database(), [w.workspaceId], { slug });
}
const count = async (workflowId: string) => {
  const { rows } = await database().execute<{ count: number }>(sql`
    SELECT count(*)::int FROM workflow_stream WHERE workflow_id = ${workflowId}::uuid`);
  return rows[0]?.count;
};

describe("a stream", () => {
  it("is remembered by its version, and saved by one of two runs that read the same", async () => {
    const { versionId } = await deployed();
    const stream = { versionId, stream: "gate 1" };
    expect(await readStream(database(), stream)).toEqual({ revision: 0, state: {} });
    const first = await Promise.all(
      [1, 2].map((seen) =>
        saveStream(w.partsAt(now), { ...stream, revision: 0, state: { step: seen } }),
      ),
    );
    expect(first.toSorted()).toEqual([false, true]);
    const kept = await readStream(database(), stream);
    expect(kept).toEqual({ revision: 1, state: { step: first[0] ? 1 : 2 } });
    const second = await Promise.all(
      ["a", "b"].map((state) =>
        saveStream(w.partsAt(now), { ...stream, ...kept, state: { state } }),
      ),
    );
    expect(second.toSorted()).toEqual([false, true]);
    expect((await readStream(database(), stream)).revision).toBe(2);
    const other = { versionId, stream: "gate 2" };
    expect(await readStream(database(), other)).toEqual({ revision: 0, state: {} });
  });

  it("is refused where it is larger than a stream may be", async () => {
    const { versionId } = await deployed();
    const state = { step: "ä".repeat(524_289) };
    const saved = saveStream(w.partsAt(now), { versionId, stream: "s", revision: 0, state });
    await expect(saved).rejects.toMatchObject({ code: "invalid_request" });
  });

  it("makes room for another by forgetting the one that was unused longest", async () => {
    const { versionId, workflowId } = await deployed();
    await database().execute(sql`
      INSERT INTO workflow_stream (version_id, stream, workflow_id, state, used_at)
      SELECT ${versionId}::uuid, 's' || n, ${workflowId}::uuid, '{}',
        ${iso(now)}::timestamptz - n * interval '1 minute' FROM generate_series(1, 1000) n`);
    const stream = { versionId, stream: "new" };
    expect(await saveStream(w.partsAt(now), { ...stream, revision: 0, state: {} })).toBe(true);
    expect(await count(workflowId)).toBe(1_000);
    const revisions = await Promise.all(
      ["new", "s1", "s999", "s1000"].map(
        async (name) => (await readStream(database(), { versionId, stream: name })).revision,
      ),
    );
    expect(revisions).toEqual([1, 1, 1, 0]);
  });

  it("remembers what it sent only with the message, and sends only what it remembers", async () => {
    const { versionId, workflowId } = await deployed();
    const { request, ...effect } = { step: "send", element: [], kind: "webhook" as const, ...SENT };
    const save = { versionId, stream: "gate", revision: 0, state: { limit: { passed_ms: now } } };
    const source = { workspaceId: w.workspaceId, workflowId, runId: crypto.randomUUID() };
    const perform = (more: object, state = save) =>
      performEffects(
        w.partsAt(now),
        { ...source, actorId: null, ...more },
        [{ ...effect, request }],
        state,
      );
    // The message cannot be written down.
    await expect(perform({ workspaceId: crypto.randomUUID() })).rejects.toThrow();
    expect((await readStream(database(), save)).revision).toBe(0);
    expect(await perform({})).toMatchObject([{ step: "send", status: "queued" }]);
    expect(await readStream(database(), save)).toEqual({ revision: 1, state: save.state });
    const late = perform({ runId: crypto.randomUUID() });
    await expect(late).rejects.toMatchObject({ code: "revision_conflict" });
    const { rows } = await database().execute<{ runId: string }>(sql`
      SELECT run_id::text AS "runId" FROM workflow_delivery
       WHERE workflow_id = ${workflowId}::uuid`);
    expect(rows).toEqual([{ runId: source.runId }]);
  });

  it("is forgotten 30 days after it was used last", async () => {
    const { versionId } = await deployed();
    const stream = { versionId, stream: "s" };
    await saveStream(w.partsAt(now), { ...stream, revision: 0, state: {} });
    await forgetRows(w.partsAt(now + 30 * DAY), KEPT_STREAMS);
    expect((await readStream(database(), stream)).revision).toBe(1);
    await forgetRows(w.partsAt(now + 30 * DAY + 1), KEPT_STREAMS);
    expect((await readStream(database(), stream)).revision).toBe(0);
  });
});

describe("use", () => {
  it("adds up by version and window, whatever came at once", async () => {
    const { versionId, workflowId, slug } = await deployed();
    const use = { workflowId, versionId, ok: true, dryRun: false };
    const taken = Array.from({ length: 100 }, (_, index) => index + 1);
    await Promise.all(
      taken.map((milliseconds) => countUse(w.partsAt(now), { ...use, milliseconds })),
    );
    await countUse(w.partsAt(now), { ...use, milliseconds: 60_000, ok: false });
    await countUse(w.partsAt(now), { ...use, milliseconds: 50, dryRun: true });
    await countUse(w.partsAt(now - 3 * DAY), { ...use, milliseconds: 50 });
    const path = `/workflows/saved/${slug}`;
    await w.engineer.ok("PUT", path, { definition: sending({ url: "https://example.com/2" }) });
    await w.engineer.ok("POST", `${path}/deploy`);
    const second = await findDeployed(database(), [w.workspaceId], { slug });
    const { versionId: other } = second;
    await countUse(w.partsAt(now), { ...use, versionId: other, milliseconds: 7 });
    const read = async (window: string) =>
      WorkflowUsage.parse(await w.viewer.ok("GET", `${path}/usage?window=${window}`));
    const day = await read("24h");
    expect(day).toMatchObject({ workflow_id: workflowId, runs: 103, failures: 1, dry_runs: 1 });
    expect(day.versions.map(({ version, runs }) => [version, runs])).toEqual([
      [2, 1],
      [1, 102],
    ]);
    const { p50, p95 } = day.versions[1]?.latency_ms ?? {};
    expect(Math.abs((p50 ?? 0) / 50 - 1)).toBeLessThan(0.02);
    expect(Math.abs((p95 ?? 0) / 95 - 1)).toBeLessThan(0.02);
    expect((await read("7d")).runs).toBe(104);
    expect(Date.parse(day.since) % HOUR).toBe(0);
  });

  it("of a workflow that nobody ran is nothing, and none fails for want of counting", async () => {
    const { slug, workflowId } = await deployed();
    const usage = await w.viewer.ok("GET", `/workflows/saved/${slug}/usage`);
    expect(WorkflowUsage.parse(usage)).toMatchObject({
      window: "24h",
      runs: 0,
      latency_ms: { p50: null, p95: null },
      versions: [],
    });
    const parts = w.partsAt(now);
    const use = { workflowId, versionId: "no id", milliseconds: 1, ok: true, dryRun: false };
    await countUse(parts, use);
    expect(parts.logs.join()).toContain("workflow_use");
  });

  it("is forgotten after 90 days", async () => {
    const { slug, versionId, workflowId } = await deployed();
    const use = { workflowId, versionId, milliseconds: 5, ok: true, dryRun: false };
    await countUse(w.partsAt(now), use);
    await forgetRows(w.partsAt(now + 89 * DAY), KEPT_USE);
    const runs = async () =>
      (await w.viewer.ok<WorkflowUsage>("GET", `/workflows/saved/${slug}/usage`)).runs;
    expect(await runs()).toBe(1);
    await forgetRows(w.partsAt(now + 91 * DAY), KEPT_USE);
    expect(await runs()).toBe(0);
  });
});
