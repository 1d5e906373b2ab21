// A job whose frames are all of one video: the quality report and an export hold every annotated
// frame, a run leaves out those at the border of its split and says so, and every route that
// counts gives the same numbers under the same names.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import { TASK_KINDS } from "../../../../shared/tasks/tasks.ts";
import { DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import {
  AnnotationPage,
  DatasetExport,
  type ImportRecord,
  JobProgress,
  Overview,
  Stats,
} from "../../../../shared/wire/labeling.ts";
import {
  box,
  createTrainingWorld,
  labelsOf,
  type TrainingWorld,
} from "../../../support/training-world.ts";

let w: TrainingWorld;
/** The manifest of the export that the node made last. */
let manifest: ExportManifest;

beforeAll(async () => {
  w = await createTrainingWorld();
  await w.video("long.mp4", { frames: 1_000 });
  w.node.script.export = async (task, by) => {
    const payload = TASK_KINDS.export.payload.parse(task.payload);
    manifest = ExportManifest.parse(await (await fetch(payload.manifest.url)).json());
    await by.write(task, { key: payload.archive.key }, "a zip");
    return { bytes: 5, summary: { original_images: 0 } };
  };
});

const reportOf = async (jobId: string) =>
  DatasetReport.parse(await w.admin.ok("GET", `/train/dataset-stats/${jobId}`));

/** The summary of an export, and the frames of its manifest. */
async function exportOf(jobId: string, options: object = {}) {
  const stop = w.node.start();
  const made = DatasetExport.parse(await w.admin.ok("POST", `/jobs/${jobId}/export`, options));
  await stop();
  expect(made.status).toBe("completed");
  return { summary: made.summary, frames: manifest.videos.flatMap(({ frames }) => frames) };
}

describe("the quality report", () => {
  it.each([
    [49, "det26n", "aggressive", 150, true],
    [50, "det26n", "standard", 100, true],
    [99, "det26n", "standard", 100, true],
    [100, "det26n", "standard", 100, false],
    [199, "det26n", "standard", 100, false],
    [200, "det26s", "standard", 100, false],
    [999, "det26s", "standard", 100, false],
    [1_000, "det26m", "standard", 100, false],
  ] as const)("of %i annotated frames counts all: %s, %s, %i epochs", async (...row) => {
    const [frames, variant, augmentation, epochs, few] = row;
    const report = await reportOf(await w.labeled(labelsOf("long", frames)));
    expect(report).toMatchObject({
      annotated_frames: frames,
      total_frames: frames,
      total_annotations: frames,
      class_balance: [{ class: "cell", count: frames, percentage: 100, annotated_frames: frames }],
      recommended: { variant, augmentation, epochs, image_size: 640 },
    });
    expect(report.warnings.map(({ code }) => code).includes("few_frames")).toBe(few);
    expect(report.left_out_frames).toBeGreaterThan(0);
    expect(report.left_out_annotated_frames).toBe(report.left_out_frames);
  });

  it.each([
    [29, 640],
    [30, 1280],
  ])("recommends %i small objects of 120 to be trained at %i px", async (small, pixels) => {
    const labels = {
      ...labelsOf("long", 120, box(0, 0.2)),
      ...labelsOf("long", small, box(0, 0.05)),
    };
    const report = await reportOf(await w.labeled(labels));
    expect(report.small_object_share).toBe(small / 120);
    expect(report.recommended.image_size).toBe(pixels);
    const warned = report.warnings.some(({ code }) => code === "small_objects");
    expect(warned).toBe(pixels === 1280);
  });
});

describe("a run", () => {
  it("leaves out the frames that its report counts apart, and says so", async () => {
    const jobId = await w.labeled({ ...labelsOf("long", 60), ...background(60, 80) });
    const report = await reportOf(jobId);
    expect(report).toMatchObject({ annotated_frames: 60, total_frames: 80 });
    const { run_id: runId } = await w.admin.ok<{ run_id: string }>("POST", "/train", {
      job_id: jobId,
    });
    const { left_out_frames, left_out_annotated_frames } = await w.run(runId);
    expect(left_out_frames).toBeGreaterThan(0);
    expect({ left_out_frames, left_out_annotated_frames }).toEqual({
      left_out_frames: report.left_out_frames,
      left_out_annotated_frames: report.left_out_annotated_frames,
    });
    const task = await w.claimed();
    const written = ExportManifest.parse(await (await fetch(task.train.manifest.url)).json());
    const frames = written.videos.flatMap((video) => video.frames);
    expect(written.left_out_frames).toBe(left_out_frames);
    expect(frames).toHaveLength(80 - (left_out_frames ?? 0));
    const annotated = frames.filter(({ annotations }) => annotations.length > 0);
    expect(annotated).toHaveLength(60 - (left_out_annotated_frames ?? 0));
    await w.admin.ok("POST", `/train/${runId}/stop`);
    await w.finish(task, { outcome: "cancelled", result: null });
  });

  it("of several videos leaves out nothing", async () => {
    const runId = await w.train();
    expect(await w.run(runId)).toMatchObject({ left_out_frames: 0, left_out_annotated_frames: 0 });
    await w.admin.ok("POST", `/train/${runId}/stop`);
  });
});

describe("a report of accepted annotations", () => {
  it("leaves out frames with pending ones, as a run does", async () => {
    const lines = `${box(0)}\n${box(1, 0.05)}`;
    const jobId = await w.labeled(
      { ...labelsOf("left", 4, lines), ...labelsOf("right", 2, lines), left_000009: "" },
      ["cell", "dot"],
    );
    const { items } = await w.admin.ok<{ items: { annotation_id: string; frame_id: string }[] }>(
      ...(["GET", `/jobs/${jobId}/annotations?limit=100`] as const),
    );
    const [half, ...whole] = Map.groupBy(items, ({ frame_id }) => frame_id).values();
    // On one frame one of two is pending still; on the others all are judged.
    const judged = [...(half?.slice(0, 1) ?? []), ...whole.flat()];
    for (const { annotation_id: id } of judged) {
      await w.admin.ok("PATCH", `/annotations/${id}`, { accepted: true });
    }
    const accepted = { include: "accepted" };
    const report = DatasetReport.parse(
      await w.admin.ok("GET", `/train/dataset-stats/${jobId}?include=accepted`),
    );
    expect(report).toMatchObject({
      total_frames: 6,
      annotated_frames: 5,
      pending_frames: 1,
      total_annotations: 10,
      recommended: accepted,
      not_trainable: null,
    });
    // A box of 5 % by 5 % of the frame is small.
    expect(report.small_object_share).toBe(0.5);
    expect(report.class_balance).toMatchObject([
      { class: "cell", count: 5, annotated_frames: 5 },
      { class: "dot", count: 5, annotated_frames: 5 },
    ]);
    expect(report.warnings.map(({ code }) => code)).toContain("pending_frames");
    const everything = await reportOf(jobId);
    expect(everything).toMatchObject({ total_frames: 7, annotated_frames: 6, pending_frames: 0 });
    const runId = await w.train({ job_id: jobId, ...accepted });
    expect((await w.run(runId)).settings).toMatchObject(accepted);
    const task = await w.claimed();
    const text = await (await fetch(task.train.manifest.url)).text();
    const { videos } = ExportManifest.parse(JSON.parse(text));
    const counts = videos.flatMap(({ frames }) => frames.map((frame) => frame.annotations.length));
    expect(counts.toSorted()).toEqual([0, 2, 2, 2, 2, 2]);
    await w.admin.ok("POST", `/train/${runId}/stop`);
    await w.finish(task, { outcome: "cancelled", result: null });
  });
});

describe("a report of images", () => {
  it("warns of the same image twice, which a split keeps on one side, and of doubtful boxes", async () => {
    const stills = ["one", "two", "three", "four", "five"];
    for (const name of stills) await w.video(`${name}.png`, { frames: 1, width: 640, height: 480 });
    const hash = "ab".repeat(32);
    await w.world.visionDatabase.execute(sql`
      UPDATE video SET probe = probe || jsonb_build_object('pixels_sha256', ${hash}::text)
       WHERE filename IN ('one.png', 'four.png')`);
    const lines = `${box(0)}\n${box(1)}`;
    const thin = "0 0.5 0.5 0.001 0.4";
    const jobId = await w.labeled(
      { one: lines, two: box(0), three: `${box(0)}\n${thin}`, four: box(0), five: box(1) },
      ["cell", "cells"],
    );
    const { warnings } = await reportOf(jobId);
    const data = (code: string) => warnings.find((one) => one.code === code)?.data;
    expect(data("similar_images")).toEqual({ images: 2, groups: [["one.png", "four.png"]] });
    expect(data("two_classes")).toEqual({ boxes: 1 });
    expect(data("tiny_boxes")).toEqual({ boxes: 1 });
    expect(data("similar_classes")).toEqual({ pairs: [["cell", "cells"]] });
    for (let seed = 0; seed < 8; seed++) {
      await exportOf(jobId, { seed });
      const sideOf = (name: string) =>
        manifest.videos.find(({ filename }) => filename === name)?.frames[0]?.split;
      expect(sideOf("one.png")).toBe(sideOf("four.png"));
    }
  });
});

describe("an export", () => {
  it("holds every annotated frame, and counts those within a second of the other side", async () => {
    const jobId = await w.labeled(labelsOf("long", 200));
    const { summary, frames } = await exportOf(jobId);
    expect(frames).toHaveLength(200);
    expect(new Set(frames.map(({ index }) => index)).size).toBe(200);
    const border = atBorder(frames);
    expect(new Set(border.map(({ split }) => split)).size).toBe(2);
    expect(summary).toEqual({
      total_frames: 200,
      annotated_frames: 200,
      total_annotations: 200,
      border_frames: border.length,
      left_out_frames: 0,
      left_out_annotated_frames: 0,
      pending_frames: 0,
      original_images: 0,
    });
  });

  it("is listed with the others of its job, the newest first, and no other job's", async () => {
    const [jobId, other] = [
      await w.labeled(labelsOf("long", 4)),
      await w.labeled(labelsOf("left", 4)),
    ];
    const made: string[] = [];
    for (const format of ["yolo", "coco", "voc"]) {
      await exportOf(jobId, { format });
      const [newest] = await w.admin.ok<DatasetExport[]>("GET", `/jobs/${jobId}/exports`);
      expect(newest).toMatchObject({ job_id: jobId, format, status: "completed" });
      expect(await w.admin.ok("GET", `/exports/${newest?.export_id}`)).toMatchObject({
        export_id: newest?.export_id,
        summary: newest?.summary,
      });
      made.unshift(String(newest?.export_id));
    }
    const listed = async (query: string) => {
      const found = await w.admin.ok<DatasetExport[]>("GET", `/jobs/${jobId}/exports${query}`);
      return DatasetExport.array()
        .parse(found)
        .map((one) => one.export_id);
    };
    expect(await listed("")).toEqual(made);
    expect(await listed("?limit=1&offset=1")).toEqual(made.slice(1, 2));
    expect(await w.admin.ok("GET", `/jobs/${other}/exports`)).toEqual([]);
  });

  it("of accepted annotations has no frame with a pending one, and counts those", async () => {
    const jobId = await w.labeled(labelsOf("long", 10));
    await w.world.visionDatabase.execute(sql`
      UPDATE annotation SET review = 'accepted' WHERE job_id = ${jobId}::uuid AND frame_index >= 3`);
    const { summary, frames } = await exportOf(jobId, { include: "accepted" });
    expect(frames.map(({ index }) => index)).toEqual([3, 4, 5, 6, 7, 8, 9]);
    expect(summary).toMatchObject({ total_frames: 7, annotated_frames: 7, pending_frames: 3 });
  });

  it("of videos that are whole on one side has none within a second of the other", async () => {
    const jobId = await w.labeled({ ...labelsOf("long", 30), ...labelsOf("left", 8) });
    expect((await exportOf(jobId)).summary).toMatchObject({ total_frames: 38, border_frames: 0 });
  });

  it("leaves the frames at the border out where that is asked for, and says so", async () => {
    const jobId = await w.labeled(labelsOf("long", 200));
    const report = await reportOf(jobId);
    const { summary, frames } = await exportOf(jobId, { split_gap: true });
    const border = atBorder(frames);
    expect(border.length).toBeGreaterThan(0);
    expect(frames).toHaveLength(200 - report.left_out_frames);
    expect(summary).toMatchObject({
      total_frames: 200,
      annotated_frames: 200,
      border_frames: border.length,
      left_out_frames: report.left_out_frames,
      left_out_annotated_frames: report.left_out_annotated_frames,
    });
  });
});

describe("counts of one job", () => {
  it("are equal under equal names, over every route that has them", async () => {
    const lines = `${box(0, 0.2)}\n${box(1, 0.4)}`;
    const jobId = await w.labeled(labelsOf("long", 60, lines), ["cell", "dot"]);
    const listed = async () =>
      AnnotationPage.parse(await w.admin.ok("GET", `/jobs/${jobId}/annotations?limit=1000`));
    const on = async (frame: number) =>
      (await listed()).items.filter(({ frame_id: id }) => id.endsWith(`.${frame}`));
    // Both of one frame are rejected; of others one is a duplicate, or below the threshold.
    for (const one of await on(0)) {
      await w.admin.ok("PATCH", `/annotations/${one.annotation_id}`, { accepted: false });
    }
    const [better, worse] = await on(1);
    const [unsure] = await on(2);
    await w.admin.ok("PATCH", `/jobs/${jobId}`, { threshold: 0.5 });
    await w.world.visionDatabase.execute(sql`
      UPDATE annotation SET duplicate_of = ${better?.annotation_id}::uuid
       WHERE id = ${worse?.annotation_id}::uuid`);
    await w.world.visionDatabase.execute(sql`
      UPDATE annotation SET confidence = 0.4 WHERE id = ${unsure?.annotation_id}::uuid`);
    const status = JobProgress.parse(await w.admin.ok("GET", `/status/${jobId}`));
    const overview = Overview.parse(await w.admin.ok("GET", `/jobs/${jobId}/overview`));
    const stats = Stats.parse(await w.admin.ok("GET", `/jobs/${jobId}/stats`));
    const report = await reportOf(jobId);
    const { summary } = await exportOf(jobId);
    expect(status.stored_annotations).toBe(120);
    expect((await listed()).total).toBe(119);
    expect([overview.annotation_count, stats.annotation_count]).toEqual([118, 118]);
    expect(stats.duplicates).toBe(1);
    expect([report.total_annotations, summary?.total_annotations]).toEqual([116, 116]);
    const annotated = [overview, report, summary].map((one) => one?.annotated_frames);
    expect(annotated).toEqual([59, 59, 59]);
    expect([report.total_frames, summary?.total_frames]).toEqual([60, 60]);
    const counts = (list: readonly { class: string; count: number }[]) =>
      list.map((one) => [one.class, one.count]);
    expect(counts(overview.per_class)).toEqual(counts(stats.per_class));
    const imported = await w.admin.ok<ImportRecord>("POST", "/import", {
      project_id: w.projectId,
      yolo: { names: ["cell"], labels: labelsOf("long", 3) },
    });
    expect(imported.stored_annotations).toBe(3);
  });
});

/** Frames within a second, at ten frames a second, of a frame on the other side. */
const atBorder = (frames: ExportManifest["videos"][number]["frames"]) =>
  frames.filter((one) =>
    frames.some((other) => other.split !== one.split && Math.abs(other.index - one.index) <= 10),
  );

/** Labels of frames without an annotation, from the first inclusive to the last exclusive. */
const background = (from: number, to: number) =>
  Object.fromEntries(Object.entries(labelsOf("long", to, "")).slice(from));
