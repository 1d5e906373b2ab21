// Experiments over the frames of a labeling job as they are reviewed, with a node that predicts as
// the test says. Goal: each reviewed frame is looked at by both models and counts once, by what its
// reviewer left, whatever fails or comes twice.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { Experiment } from "../../../edge/vision/experiments/campaigns/records.ts";
import type { ClaimedTask } from "../../../shared/tasks/node-protocol.ts";
import { type Prediction, TASK_KINDS } from "../../../shared/tasks/tasks.ts";
import { type RegisteredModel, registerModel } from "../../support/registered-model.ts";
import { JPEG, type ScriptedNode } from "../../support/scripted-node.ts";
import { createTrainingWorld, labelsOf, type TrainingWorld } from "../../support/training-world.ts";

/** Of the world's labels, on frames of 640 × 360: in the middle, a fifth of each side. */
const RIGHT: Prediction = { class: "cell", confidence: 0.9, bbox: [256, 144, 384, 216] };
const WRONG: Prediction = { class: "cell", confidence: 0.9, bbox: [0, 0, 40, 40] };

let w: TrainingWorld;
let workspaceId: string;
let baseline: RegisteredModel;
let candidate: RegisteredModel;
let jobId: string;
/** What each model finds; null fails. */
let found: (modelId: string) => Prediction[] | null;
let predictions: number;
/** Labeled frames of a job. */
const FRAMES = 16;
/** Videos have names of their own: one is uploaded for each job. */
let videos = 0;

beforeAll(async () => {
  w = await createTrainingWorld();
  const me = await w.admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  baseline = await registerModel(w.world, workspaceId, { classes: ["cell"] });
  candidate = await registerModel(w.world, workspaceId, { classes: ["cell"] });
  w.node.script = {
    ...w.node.script,
    predict: (task: ClaimedTask) => {
      predictions += 1;
      const { model } = TASK_KINDS.predict.payload.parse(task.payload);
      const own = found(model.model_id);
      if (!own) return { outcome: "failed", code: "bad_weights", detail: "no", retryable: false };
      const frames = [{ frame_index: 0, time: 0, predictions: own }];
      return { width: 640, height: 360, frames, left_out: 0, seconds: 0.01 };
    },
  };
});
beforeEach(async () => {
  predictions = 0;
  w.node.script.frames = async (task: ClaimedTask, node: ScriptedNode) => {
    const { images } = TASK_KINDS.frames.payload.parse(task.payload);
    for (const { key } of images) await node.write(task, { key }, JPEG);
    return {};
  };
  found = (modelId) => [modelId === candidate.model_id ? RIGHT : WRONG];
  const name = `clip${++videos}`;
  await w.video(`${name}.mp4`, { frames: 20 });
  jobId = await w.labeled(labelsOf(name, FRAMES));
});

const tick = () => w.world.tick(Date.now());
const body = (more: object = {}) => ({
  name: "better",
  job_id: jobId,
  baseline: { model_id: baseline.model_id },
  candidate: { model_id: candidate.model_id },
  metric: "ap50_95",
  minimum_effect: 0.05,
  ...more,
});
const begin = async (more: object = {}) =>
  Experiment.parse(await w.admin.ok("POST", "/experiments", body(more)));
const read = async (id: string) => Experiment.parse(await w.admin.ok("GET", `/experiments/${id}`));
const review = (filter: object = {}) =>
  w.admin.ok("POST", `/jobs/${jobId}/frames/review`, { reviewed: true, filter });
/** Minutes in which the node does what there is to do: images, then looks, then scores. */
async function minutes(count = 3) {
  for (let minute = 0; minute < count; minute++) {
    await tick();
    await w.node.work();
  }
  await tick();
}

describe("over reviewed frames", () => {
  it("finds the better model, frame by frame as they are reviewed, and promotes it", async () => {
    await review({ from_index: 0, to_index: 4 });
    const { experiment_id: id, plan, source } = await begin();
    expect([source, plan.unit, plan.from]).toEqual(["reviewed", "frames", "assumption"]);
    await minutes(1);
    // What was reviewed before is not asked for.
    expect([predictions, (await read(id)).results.samples]).toEqual([0, 0]);
    await review({ from_index: 4, to_index: 7 });
    await minutes();
    expect(await read(id)).toMatchObject({
      status: "running",
      results: { samples: 3, effect: 1, baseline: { value: 0 }, candidate: { value: 1 } },
    });
    expect(predictions).toBe(6);
    await review();
    await review();
    await minutes();
    // Four were reviewed before it began, and no mark that is there is made again.
    const { results, status } = await read(id);
    expect(results.samples).toBe(FRAMES - 4);
    expect(predictions).toBe(2 * results.samples);
    expect([status, results.verdict]).toEqual(["completed", "candidate_better"]);

    const path = `/experiments/${id}/complete`;
    expect(await w.admin.refused("POST", path, { promote: true })).toEqual([
      422,
      "invalid_request",
    ]);
    const done = Experiment.parse(
      await w.admin.ok("POST", path, { promote: true, alias: "staging" }),
    );
    expect(done.promotion).toMatchObject({
      kind: "alias",
      alias: "staging",
      from_model_id: null,
      winner_model_id: candidate.model_id,
    });
    await w.admin.ok("POST", `/experiments/${id}/rollback`);
    expect(await w.admin.ok("GET", "/models?alias=staging")).toEqual([]);
  });

  it("takes in what was reviewed before, where asked, up to its budget", async () => {
    await review();
    const { experiment_id: id } = await begin({
      include_reviewed: true,
      budget: { samples: 5 },
      stop_when_decided: false,
    });
    await minutes();
    expect(await read(id)).toMatchObject({
      status: "completed",
      reason: "budget",
      results: { samples: 5 },
    });
    expect(predictions).toBe(10);
  });

  it("judges by what the reviewer left, not by what was there", async () => {
    const path = `/jobs/${jobId}/annotations?limit=1`;
    const { items } = await w.admin.ok<{ items: { annotation_id: string; frame_id: string }[] }>(
      ...(["GET", path] as const),
    );
    const [first] = items;
    await w.admin.ok("PATCH", `/annotations/${first?.annotation_id}`, { accepted: false });
    const { experiment_id: id } = await begin({ metric: "acceptance" });
    const index = Number(first?.frame_id.split(".")[1]);
    await review({ from_index: index, to_index: index + 1 });
    await minutes();
    // Nothing is there: whoever tells something is wrong, the candidate too.
    expect((await read(id)).results).toMatchObject({
      samples: 1,
      baseline: { value: 0 },
      candidate: { value: 0 },
    });
  });

  it("counts a model's failures, as frames of no worth, and guards by them", async () => {
    found = (modelId) => (modelId === candidate.model_id ? null : [RIGHT]);
    const { experiment_id: id } = await begin({ guard_rails: { error_rate: 0.1 } });
    await review();
    await minutes();
    expect(await read(id)).toMatchObject({
      status: "stopped",
      reason: "guard_rail",
      results: {
        samples: FRAMES,
        candidate: { value: 0, failures: FRAMES },
        baseline: { value: 1, failures: 0 },
      },
    });
  });

  it("begins again what was taken back or lost, and blames no model for it", async () => {
    const { experiment_id: id } = await begin();
    await review({ from_index: 0, to_index: 2 });
    await minutes(1);
    const end = async (frame: number, state: string, errors: object[] = []) => {
      const { rows } = await w.world.visionDatabase.execute(sql`
        UPDATE task SET state = ${state}, ended_at = now(), errors = ${JSON.stringify(errors)}::jsonb
         WHERE id IN (SELECT t.id FROM task t JOIN experiment_frame f ON
           t.idempotency_key LIKE ${`experiment:${id}:`} || f.number || ':candidate%'
           WHERE f.experiment_id = ${id}::uuid AND f.frame_index = ${frame}::int
             AND t.ended_at IS NULL) RETURNING id`);
      expect(rows).toHaveLength(1);
    };
    // One is purged once, the other's node falls over each time.
    await end(0, "cancelled");
    for (let round = 0; round < 3; round++) {
      await end(1, "failed", [{ code: "lease_lost", detail: "the node stopped", fence: 1 }]);
      await tick();
    }
    await minutes(1);
    expect((await read(id)).results).toMatchObject({
      samples: 1,
      baseline: { failures: 0 },
      candidate: { value: 1, failures: 0 },
    });
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT count(*)::int AS ended FROM experiment_frame
       WHERE experiment_id = ${id}::uuid AND scored_at IS NOT NULL`);
    expect(rows).toEqual([{ ended: 2 }]);
  });

  it("is in no hurry: its looks stand behind what people asked for", async () => {
    const { experiment_id: id } = await begin();
    await review({ from_index: 0, to_index: 2 });
    await tick();
    const tasks = async () => {
      const { rows } = await w.world.visionDatabase.execute<{ priority: number; state: string }>(
        sql`SELECT priority, state FROM task WHERE subject = ${`experiment:${id}`}`,
      );
      return rows;
    };
    expect((await tasks()).map(({ priority }) => priority)).toEqual([-10, -10]);
    await w.admin.ok("POST", `/experiments/${id}/stop`);
    expect((await tasks()).map(({ state }) => state)).toEqual(["cancelled", "cancelled"]);
  });

  it("chooses nothing while it is paused, and is not stuck by a frame that is gone", async () => {
    const { experiment_id: id } = await begin();
    await w.admin.ok("POST", `/experiments/${id}/pause`);
    await review({ from_index: 0, to_index: 2 });
    await minutes(2);
    expect(predictions).toBe(0);
    await w.admin.ok("POST", `/experiments/${id}/resume`);
    w.node.script.frames = () => ({
      outcome: "failed" as const,
      code: "unsupported_media",
      detail: "no such frame",
      retryable: false,
    });
    await minutes();
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT count(*)::int AS chosen, count(scored_at)::int AS ended FROM experiment_frame
       WHERE experiment_id = ${id}::uuid`);
    expect(rows).toEqual([{ chosen: 2, ended: 2 }]);
    expect((await read(id)).results).toMatchObject({ samples: 0, candidate: { failures: 0 } });
  });

  it("ends with its job", async () => {
    const { experiment_id: id } = await begin();
    await w.admin.ok("DELETE", `/jobs/${jobId}`);
    await tick();
    expect(await read(id)).toMatchObject({ status: "stopped", reason: "job_deleted" });
  });

  it.each<[string, object, [number, string]]>([
    ["a metric of requests", { metric: "latency" }, [422, "invalid_request"]],
    ["a p95", { guard_rails: { p95_ms: 10 } }, [422, "invalid_request"]],
    ["too many frames", { budget: { samples: 10_001 } }, [422, "invalid_request"]],
    ["recall of another metric", { recall: 0.4 }, [422, "invalid_request"]],
    ["a recall of 2", { metric: "precision_at_recall", recall: 2 }, [422, "invalid_request"]],
  ])("is refused with %s", async (_, more, expected) => {
    expect(await w.admin.refused("POST", "/experiments", body(more))).toEqual(expected);
  });

  it("is refused where the job has no class of a model", async () => {
    const other = await registerModel(w.world, workspaceId, { classes: ["star"] });
    const more = { candidate: { model_id: other.model_id } };
    expect(await w.admin.refused("POST", "/experiments", body(more))).toEqual([
      422,
      "invalid_request",
    ]);
  });
});
