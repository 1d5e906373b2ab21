// What a stop registers, and what of a stopped run may be registered besides. Goal: the model is
// the run's latest weights, and no object that a node only claims to have written becomes a model.

import { beforeAll, describe, expect, it } from "vitest";
import { BEST_WEIGHTS, Model } from "../../../../shared/wire/training.ts";
import { colleague } from "../../../support/scripted-node.ts";
import {
  createTrainingWorld,
  epoch,
  sha256OfZeros,
  type TrainingWorld,
} from "../../../support/training-world.ts";

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld();
});

const stop = (runId: string) => w.admin.ok("POST", `/train/${runId}/stop`);
const modelsOf = (runId: string) => w.admin.ok<Model[]>("GET", `/models?run_id=${runId}`);

describe("a stop", () => {
  it("registers the latest weights, and lets the best before be registered by one call", async () => {
    const runId = await w.train({ name: "Latest", epochs: 9 });
    const task = await w.claimed();
    await w.report(task, { epoch: 2, recent: [epoch(1, 0.8), epoch(2, 0.3)] });
    expect(await w.run(runId)).toMatchObject({ best_epoch: 1 });
    const register = () => w.admin.send("POST", `/train/${runId}/register`, { checkpoint: "best" });
    expect((await register()).status).toBe(409);
    await stop(runId);
    // Stopped within the third epoch: its weights are validated, and no class but one has objects.
    const latest = { ...epoch(3, 0.2).metrics, "per_class/none/recall": null };
    const best = await w.stored(task, BEST_WEIGHTS, 24);
    const flushed = await w.result(task, [epoch(1, 0.8), epoch(2, 0.3)], { stopped: true });
    const model = { ...(flushed.model as NonNullable<typeof flushed.model>), epoch: 3 };
    const bestModel = {
      ...model,
      epoch: 1,
      metrics: epoch(1, 0.8).metrics,
      weights: { ...best, sha256: sha256OfZeros(24) },
    };
    const content_type = "application/octet-stream";
    const artifacts = [{ name: BEST_WEIGHTS, ...best, content_type, model: bestModel }];
    const result = { ...flushed, model: { ...model, metrics: latest }, artifacts };
    await w.finish(task, { outcome: "cancelled", result });
    const stopped = await w.run(runId);
    expect(stopped).toMatchObject({ status: "stopped", epoch: 2, best_epoch: 3 });
    expect(stopped.best_metrics).toEqual(latest);
    const [registered] = await modelsOf(runId);
    expect(registered).toMatchObject({ version: 1, metrics: latest, bytes: 16 });
    const listed = await w.admin.ok<object[]>("GET", `/train/${runId}/artifacts`);
    const url = expect.stringContaining(`/artifacts/${BEST_WEIGHTS}`);
    expect(listed).toEqual([{ name: BEST_WEIGHTS, bytes: 24, content_type, url }]);
    const file = await w.admin.send("GET", `/train/${runId}/artifacts/${BEST_WEIGHTS}`);
    expect((await fetch(file.headers.get("Location") ?? "")).status).toBe(200);

    const answers = await Promise.all([register(), register()]);
    expect(answers.map(({ status }) => status)).toEqual([201, 201]);
    const [made, again] = await Promise.all(
      answers.map(async (answer) => Model.parse(await answer.json())),
    );
    expect(made).toMatchObject({ version: 2, metrics: epoch(1, 0.8).metrics, bytes: 24 });
    expect(again).toEqual(made);
    expect(await w.run(runId)).toMatchObject({
      model_id: made?.model_id,
      best_epoch: 1,
      best_metrics: epoch(1, 0.8).metrics,
    });
    expect(await modelsOf(runId)).toHaveLength(2);
    const wrong = await w.admin.refused("POST", `/train/${runId}/register`, {
      checkpoint: "first",
    });
    expect(wrong).toEqual([422, "invalid_request"]);
    const annotator = await colleague(w.world, w.admin, "annotator");
    const body = { checkpoint: "best" };
    const forbidden = await annotator.refused("POST", `/train/${runId}/register`, body);
    expect(forbidden).toEqual([403, "forbidden"]);
  });

  it("has no best weights to register that a node only claims to have written", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await stop(runId);
    const flushed = await w.result(task, [epoch(1)], { stopped: true });
    const best = await w.stored(task, BEST_WEIGHTS, 24);
    const weights = { ...best, sha256: sha256OfZeros(23) };
    const model = { ...(flushed.model as NonNullable<typeof flushed.model>), weights };
    const content_type = "application/octet-stream";
    const artifacts = [{ name: BEST_WEIGHTS, ...best, content_type, model }];
    await w.finish(task, { outcome: "cancelled", result: { ...flushed, artifacts } });
    const refused = await w.admin.refused("POST", `/train/${runId}/register`, {
      checkpoint: "best",
    });
    expect(refused).toEqual([409, "state_conflict"]);
    expect(await modelsOf(runId)).toHaveLength(1);
  });
});
