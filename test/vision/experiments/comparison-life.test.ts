// What a comparison is run on, what a node says of it, and what becomes of it. Goal: of a job only
// what people reviewed is the truth; nothing that a node says is believed; and what nobody names
// any more leaves nothing behind.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { ComparedFrame } from "../../../shared/tasks/comparison-task.ts";
import { ExportManifest } from "../../../shared/tasks/export-manifest.ts";
import type { ClaimedTask } from "../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS } from "../../../shared/tasks/tasks.ts";
import { DAY, MINUTE } from "../../../shared/time.ts";
import { frameId } from "../../../shared/wire/vision.ts";
import {
  CLASSES,
  type ComparisonWorld,
  createComparisonWorld,
  payloadOf,
  RUN,
} from "../../support/comparison-world.ts";
import {
  comparedBy,
  comparedFrame,
  comparisonOutcome,
  reportOf,
} from "../../support/model-comparisons.ts";
import { MP4 } from "../../support/scripted-node.ts";

let w: ComparisonWorld;

beforeAll(async () => {
  w = await createComparisonWorld();
});
beforeEach(() => {
  w.node.script = { comparison: comparedBy };
});

/** A job of labels on frames of the video: class and whether people accepted, by frame. */
async function job(labels: Record<number, [name: string, accepted: boolean | null][]>) {
  const coco = {
    images: Object.keys(labels).map((frame) => ({
      id: Number(frame),
      file_name: `crossing_00000${frame}.jpg`,
    })),
    categories: CLASSES.map((name, id) => ({ id, name })),
    annotations: Object.entries(labels).flatMap(([frame, all]) =>
      all.map(([name], at) => ({
        image_id: Number(frame),
        category_id: CLASSES.indexOf(name),
        bbox: [40 * at, 0, 30, 30],
      })),
    ),
  };
  const body = { project_id: w.projectId, coco };
  const imported = await w.engineer.ok<{ job: { job_id: string } }>("POST", "/import", body);
  const { job_id: jobId } = imported.job;
  const path = `/jobs/${jobId}/annotations?limit=1000`;
  const { items } = await w.engineer.ok<{
    items: { annotation_id: string; frame_id: string; bbox: number[] }[];
  }>("GET", path);
  for (const { annotation_id, frame_id, bbox } of items) {
    const [, frame = ""] = frame_id.split(".");
    const accepted = labels[Number(frame)]?.[(bbox[0] ?? 0) / 40]?.[1];
    if (accepted !== null) {
      await w.engineer.ok("PATCH", `/annotations/${annotation_id}`, { accepted });
    }
  }
  return jobId;
}

/** The manifest of a run's task, by frame: class names. */
async function truthOf(task: ClaimedTask) {
  const { dataset, video } = payloadOf(task);
  expect(video).toBeNull();
  const response = await fetch(dataset?.manifest.url ?? "");
  const { videos, classes } = ExportManifest.parse(await response.json());
  const frames = videos.flatMap((one) => one.frames);
  return Object.fromEntries(
    frames.map(({ index, annotations }) => [
      index,
      annotations.map(({ class_index }) => classes[class_index]).sort(),
    ]),
  );
}

describe("a run on what is known", () => {
  it("takes of a job what people reviewed, and nothing else", async () => {
    const jobId = await job({
      0: [
        ["person", true],
        ["car", false],
      ],
      1: [
        ["person", true],
        ["car", null],
      ],
      2: [["car", false]],
      3: [["person", null]],
      4: [],
      5: [],
    });
    const mark = (frames: number[]) =>
      w.engineer.ok("POST", `/jobs/${jobId}/frames/review`, {
        reviewed: true,
        filter: { frame_ids: frames.map((frame) => frameId(w.videoId, frame)) },
      });
    await mark([3, 4]);
    const asked = { configuration: w.configurationOf(), job_id: jobId };
    const { session_id, input } = await w.begun(asked);
    expect(input).toMatchObject({ kind: "job", job_id: jobId, split: null });
    const task = await w.claimed();
    expect(await truthOf(task)).toEqual({ 0: ["person"], 2: [], 3: ["person"], 4: [] });
    const all: ComparedFrame[] = [0, 2, 3, 4].map((frame) => ({
      ...comparedFrame(frame),
      video_id: w.videoId,
      truth: [],
    }));
    await w.finished(task, await comparedBy(task, w.node, all));
    expect((await w.resultOf(session_id)).result.frames?.[0]).toMatchObject({ truth: [] });
  });

  it("is refused where nobody reviewed a frame, and leaves no session", async () => {
    const jobId = await job({ 0: [["person", null]], 1: [] });
    const before = await w.keysIn("comparisons");
    const response = await w.annotator.send("POST", RUN, {
      configuration: w.configurationOf(),
      job_id: jobId,
    });
    expect([response.status, await response.json()]).toEqual([
      409,
      expect.objectContaining({
        detail: expect.stringMatching(/no frame of the job was reviewed/),
      }),
    ]);
    expect(await w.keysIn("comparisons")).toEqual(before);
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT id FROM comparison_session WHERE input->>'job_id' = ${jobId}`);
    expect(rows).toEqual([]);
  });

  it("takes of a dataset the frames of its side as they were exported", async () => {
    const jobId = await job({ 0: [["person", true]], 1: [["car", true]], 2: [["car", null]] });
    w.node.script.export = async (task, by) => {
      const { archive } = TASK_KINDS.export.payload.parse(task.payload);
      await by.write(task, { key: archive.key }, "a zip");
      return { bytes: 5, summary: {} };
    };
    const exported = await w.working(() =>
      w.engineer.ok<{ export_id: string }>("POST", `/jobs/${jobId}/export`, { val_share: 0.4 }),
    );
    const { export_id } = exported;
    await w.engineer.ok("POST", `/jobs/${jobId}/annotations/delete`, { filter: {} });
    const asked = { configuration: w.configurationOf(), export_id };
    const { input } = await w.begun(asked);
    expect(input).toMatchObject({ kind: "export", export_id, split: "val", job_id: null });
    const task = await w.claimed();
    expect(payloadOf(task)).toMatchObject({ split: "val" });
    expect(await truthOf(task)).toEqual({ 0: ["person"], 1: ["car"], 2: ["car"] });
    expect(payloadOf(task).dataset?.videos.map(({ bytes }) => bytes)).toEqual([MP4.length]);
    expect((await w.begun({ ...asked, split: "all" })).input.split).toBe("all");
    expect(payloadOf(await w.claimed()).split).toBe("all");
    await w.world.visionDatabase.execute(sql`
      UPDATE dataset_export SET state = 'queued' WHERE id = ${export_id}::uuid`);
    expect(await w.annotator.refused("POST", RUN, asked)).toEqual([409, "state_conflict"]);
  });
});

describe("what a node says of a comparison", () => {
  const good = comparedFrame(0, 2);
  const second = comparedFrame(1, 1);
  const [object] = good.objects;
  const withObject = (more: object) => ({
    ...good,
    objects: [{ ...object, ...more } as ComparedFrame["objects"][number]],
  });
  const outcomeOf = (frames: readonly ComparedFrame[], more: object = {}) => ({
    ...comparisonOutcome(frames, 1),
    ...more,
  });
  const far = { class: "person", confidence: 0.9, bbox: [0, 0, 700, 20] as const };
  it.each<[string, readonly ComparedFrame[], object, RegExp]>([
    ["a class of neither model", [comparedFrame(0, 1, "dog")], {}, /class that is not compared/],
    ["a box outside of the frame", [withObject({ a: far })], {}, /not inside 640 × 360/],
    ["an object of nobody", [withObject({ a: null, b: null })], {}, /nobody found/],
    ["frames out of order", [second, good], {}, /not in its order/],
    ["a line that is no frame", [{ ...good, width: -1 }], {}, /not readable/],
    ["fewer frames than it says", [good], { frames_compared: 2 }, /1 frames are told, of 2/],
    ["more frames than were asked for", [good], { frames_compared: 301 }, /over 300 frames/],
    ["other bytes", [good], { report: { ...reportOf([good]).report, bytes: 7 } }, /of 7 bytes/],
    [
      "another SHA-256",
      [good],
      { report: { ...reportOf([good]).report, sha256: "0".repeat(64) } },
      /not those of the SHA-256/,
    ],
    [
      "other offsets",
      [good],
      { report: { ...reportOf([good]).report, blocks: [3] } },
      /offsets of the frames/,
    ],
    [
      "too many offsets",
      [good],
      { report: { ...reportOf([good]).report, blocks: [0, 9] } },
      /1 frames are told, of 1/,
    ],
    ["no overlay", [good], { overlays: [] }, /0 overlays were drawn/],
    ["an overlay of another size", [good], { overlays: [3] }, /overlay 0 is not in the store/],
    ["a figure that is none", [good], { seconds: -1 }, /^result\.seconds/],
  ])("is refused, by name: %s", async (_, frames, more, problem) => {
    const asked = { configuration: w.configurationOf(), video_id: w.videoId, overlays: 1 };
    const { session_id } = await w.begun(asked);
    const task = await w.claimed();
    const { report, overlays } = payloadOf(task);
    await w.node.write(task, { key: report.key }, reportOf(frames).bytes);
    const [announced = 0] = outcomeOf(frames).overlays;
    await w.node.write(task, { key: overlays[0]?.key ?? "" }, new Uint8Array(announced));
    expect(await w.finished(task, outcomeOf(frames, more))).toMatchObject({
      status: "queued",
      problem: expect.stringMatching(problem),
    });
    expect((await w.resultOf(session_id)).result).toMatchObject({ status: "queued", frames: null });
    await w.world.visionDatabase.execute(sql`DELETE FROM task WHERE id = ${task.task_id}::uuid`);
  });

  it("is taken from the next attempt, and only that one's objects are read", async () => {
    const asked = { configuration: w.configurationOf(), video_id: w.videoId, overlays: 1 };
    const { session_id } = await w.begun(asked);
    const task = await w.claimed();
    await w.node.write(task, { key: payloadOf(task).report.key }, "torn");
    await w.finished(task, outcomeOf([good]));
    const again = await w.claimed();
    await w.finished(again, await comparedBy(again, w.node, [good, second]));
    expect((await w.resultOf(session_id)).result).toMatchObject({ status: "completed", total: 2 });
  });
});

describe("what is over", () => {
  const run = async (comparisonId: string) => {
    const { session_id } = await w.begun({ comparison_id: comparisonId, video_id: w.videoId });
    return session_id;
  };
  const folderOf = (sessionId: string) => w.keysIn(`comparisons/${sessionId}`);

  it("goes with its comparison: results, files, and what is under way", async () => {
    const { comparison_id } = await w.made();
    const done = await run(comparison_id);
    await w.node.work();
    expect((await w.resultOf(done)).status).toBe(200);
    expect((await folderOf(done)).length).toBeGreaterThan(1);
    const underWay = await run(comparison_id);
    const task = await w.claimed();
    const queued = await run(comparison_id);
    const response = await w.engineer.send("DELETE", `/comparisons/${comparison_id}`);
    expect(response.status).toBe(204);
    const gone = [404, "not_found"];
    for (const id of [done, underWay, queued]) {
      expect(await w.viewer.refused("GET", `/comparisons/result/${id}`)).toEqual(gone);
      expect(await folderOf(id)).toEqual([]);
    }
    expect(await w.engineer.refused("DELETE", `/comparisons/${comparison_id}`)).toEqual(gone);
    expect(await w.annotator.refused("POST", RUN, { comparison_id, video_id: w.videoId })).toEqual(
      gone,
    );
    // The node did not hear of it in time: what it writes goes, too.
    await w.finished(task, await comparedBy(task, w.node));
    expect(await folderOf(underWay)).toEqual([]);
    expect(await w.node.claim(["comparison"])).toBeNull();
  });

  it("is kept for a day, then its files go before its row", async () => {
    const { comparison_id } = await w.made();
    const id = await run(comparison_id);
    await w.node.work();
    const { ended_at } = (await w.resultOf(id)).result;
    const ended = Date.parse(ended_at ?? "");
    await w.world.tick(ended + DAY - MINUTE);
    expect((await w.resultOf(id)).status).toBe(200);
    await w.world.visionDatabase.execute(sql`
      UPDATE comparison_session SET ended_at = ended_at - interval '25 hours'
       WHERE id = ${id}::uuid`);
    await w.world.tick(Date.now());
    await expect.poll(() => folderOf(id)).toEqual([]);
    expect(await w.viewer.refused("GET", `/comparisons/result/${id}`)).toEqual([404, "not_found"]);
    await expect
      .poll(async () => {
        const { rows } = await w.world.visionDatabase.execute(
          sql`SELECT id FROM comparison_session WHERE id = ${id}::uuid`,
        );
        return rows;
      })
      .toEqual([]);
  });

  it("is swept by the next minute where a crash came between", async () => {
    const { comparison_id } = await w.made();
    const id = await run(comparison_id);
    await w.node.work();
    await w.world.visionDatabase.execute(
      sql`UPDATE comparison_session SET forgotten_at = now() WHERE id = ${id}::uuid`,
    );
    await w.world.tick(Date.now());
    await expect.poll(() => folderOf(id)).toEqual([]);
  });

  it("is failed where a crash kept it from being enqueued", async () => {
    const { comparison_id } = await w.made();
    const id = await run(comparison_id);
    await w.world.visionDatabase.execute(
      sql`DELETE FROM task WHERE subject = ${`comparison:${id}`}`,
    );
    await w.world.visionDatabase.execute(sql`
      UPDATE comparison_session SET created_at = now() - interval '6 minutes'
       WHERE id = ${id}::uuid`);
    await w.world.tick(Date.now());
    await expect.poll(async () => (await w.resultOf(id)).result.status).toBe("failed");
    expect((await w.resultOf(id)).result.failure).toMatch(/interrupted/);
  });

  it("takes of the workspace's storage until it goes", async () => {
    const { comparison_id } = await w.made();
    const id = await run(comparison_id);
    await w.node.work();
    const bytes = async (set: ReturnType<typeof sql>) => {
      const { rows } = await w.world.visionDatabase.execute<{ bytes: number }>(sql`
        UPDATE comparison_session SET bytes = ${set} WHERE id = ${id}::uuid
        RETURNING bytes::float8 AS bytes`);
      return rows[0]?.bytes;
    };
    const { report, overlays } = comparisonOutcome([comparedFrame(0)], 1);
    expect(await bytes(sql`bytes`)).toBe(report.bytes + (overlays[0] ?? 0));
    await bytes(sql`10::bigint ^ 15`);
    const body = { comparison_id, video_id: w.videoId };
    expect(await w.annotator.refused("POST", RUN, body)).toEqual([413, "quota_exceeded"]);
    await w.engineer.send("DELETE", `/comparisons/${comparison_id}`);
    const configuration = w.configurationOf();
    await w.begun({ configuration, video_id: w.videoId });
    await w.node.work();
  });
});
