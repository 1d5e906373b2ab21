// Counts of a job's annotations that the database keeps, against the rows themselves: after any
// sequence of statements that store, judge, relabel and delete annotations, some of which repeat
// others, and of changes of the threshold, each number that people see is that of a count by hand.
// A failure names its seed; SEED= runs it again.

import { sql } from "drizzle-orm";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import type { z } from "zod";
import { findJob } from "../../../../edge/vision/labeling/jobs/jobs.ts";
import { statusOf } from "../../../../edge/vision/labeling/jobs/status.ts";
import {
  listAnnotations,
  ORDERS,
} from "../../../../edge/vision/labeling/review/annotation-pages.ts";
import { listClasses, overviewOf, statsOf } from "../../../../edge/vision/labeling/review/stats.ts";
import { reportOf } from "../../../../edge/vision/training/runs/dataset.ts";
import { DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import {
  AnnotationPage,
  JobFramePage,
  JobProgress,
  Overview,
  Stats,
} from "../../../../shared/wire/labeling.ts";
import { TrainSettings } from "../../../../shared/wire/training.ts";
import { frameId, parseFrameId } from "../../../../shared/wire/vision.ts";
import { ownSession } from "../../../support/own-session.ts";
import {
  labelAs,
  newProject,
  type Person,
  probeAs,
  register,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const RUNS = Number(process.env.RUNS ?? 6);
const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const FRAMES = 6;
const SIDE = 100;
const CLASSES = ["person", "car", "dog"];
let world: World;
let admin: Person;
let projectId: string;
let videos: string[];

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  const probe = probeAs({ frames: FRAMES, width: SIDE, height: SIDE });
  const node = await scriptedNode(world, admin, { probe, label: labelAs(() => []) });
  projectId = (await newProject(admin)).project_id;
  const one = (await uploadVideo(admin, projectId)).video_id;
  videos = [one, (await uploadVideo(admin, projectId)).video_id];
  await node.work();
});

/** A job of nobody's annotations over both videos. */
async function emptyJob(): Promise<string> {
  const { rows } = await world.visionDatabase.execute<{ id: string }>(sql`
    INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings,
      frames_total)
    SELECT gen_random_uuid(), workspace_id, id, 'job', 'manual', 'completed', 0.5,
      '{"passes": [[]], "round": 1, "planned": 1, "segmenter": null}',
      ${FRAMES * videos.length}::int FROM project WHERE id = ${projectId}::uuid
    RETURNING id::text`);
  const id = rows[0]?.id ?? "";
  for (const [position, video] of videos.entries()) {
    await world.visionDatabase.execute(sql`
      INSERT INTO job_video (job_id, video_id, position, frames)
      VALUES (${id}::uuid, ${video}::uuid, ${position}::int,
        (SELECT array_agg(n) FROM generate_series(0, ${FRAMES - 1}::int) n))`);
  }
  for (const [number, name] of CLASSES.entries()) {
    await world.visionDatabase.execute(sql`
      INSERT INTO job_class (job_id, number, name) VALUES (${id}::uuid, ${number}::int, ${name})`);
  }
  return id;
}

const confidence = fc.constantFrom(null, 0, 0.05, 0.29, 0.333, 0.5, 0.7, 0.85, 0.95, 1);
const review = fc.constantFrom("pending", "pending", "accepted", "rejected");
const Row = fc.record({
  video: fc.nat(1),
  frame: fc.nat(FRAMES - 1),
  class: fc.nat(CLASSES.length - 1),
  confidence,
  review,
  source: fc.constantFrom("model", "person", "import"),
  width: fc.constantFrom(1, 4, 10, 50),
  /** What it repeats: one of those that come with it, by its place. */
  repeats: fc.option(fc.nat(8), { freq: 2 }),
});
/** Every n-th annotation of the job, from one on. */
const some = { every: fc.integer({ min: 1, max: 5 }), from: fc.nat(4) };
const Step = fc.oneof(
  fc.record({ kind: fc.constant("store" as const), rows: fc.array(Row, { maxLength: 9 }) }),
  fc.record({ kind: fc.constant("judge" as const), ...some, review }),
  fc.record({ kind: fc.constant("relabel" as const), ...some, class: fc.nat(2) }),
  fc.record({ kind: fc.constant("sure" as const), ...some, confidence }),
  fc.record({ kind: fc.constant("delete" as const), ...some }),
  fc.record({
    kind: fc.constant("threshold" as const),
    threshold: fc.constantFrom(0, 0.3, 0.333, 0.5, 0.71, 1),
  }),
  fc.record({ kind: fc.constant("mark" as const), video: fc.nat(1), frame: fc.nat(FRAMES - 1) }),
);
type Step = typeof Step extends fc.Arbitrary<infer Value> ? Value : never;

async function take(id: string, step: Step): Promise<void> {
  const { visionDatabase: database } = world;
  if (step.kind === "store") {
    const ids = step.rows.map(() => crypto.randomUUID());
    const rows = step.rows.map((row, place) => ({
      ...row,
      id: ids[place],
      video: videos[row.video],
      // The second of two that are stored may repeat the first, and the first the second.
      repeats: row.repeats === null || row.repeats === place ? null : (ids[row.repeats] ?? null),
    }));
    await database.execute(sql`
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
        x2, y2, confidence, review, source, duplicate_of)
      SELECT r.id, j.workspace_id, j.id, r.video, r.frame, r.class, 0, 0, r.width, 10,
        r.confidence, r.review, r.source, r.repeats
        FROM job j, jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) r(id uuid, video uuid,
          frame int, class int, confidence real, review text, source text, width real,
          repeats uuid) WHERE j.id = ${id}::uuid`);
    return;
  }
  if (step.kind === "threshold") {
    await admin.ok("PATCH", `/jobs/${id}`, { threshold: step.threshold });
    return;
  }
  if (step.kind === "mark") {
    const frame_ids = [frameId(videos[step.video] ?? "", step.frame)];
    await admin.ok("POST", `/jobs/${id}/frames/review`, { reviewed: true, filter: { frame_ids } });
    return;
  }
  const chosen = sql`id IN (SELECT id FROM (
      SELECT id, row_number() OVER (ORDER BY created_at, id) AS n FROM annotation
       WHERE job_id = ${id}::uuid) x WHERE n % ${step.every}::int = ${step.from % step.every}::int)`;
  if (step.kind === "delete") await database.execute(sql`DELETE FROM annotation WHERE ${chosen}`);
  if (step.kind === "judge") {
    await database.execute(sql`UPDATE annotation SET review = ${step.review} WHERE ${chosen}`);
  }
  if (step.kind === "relabel") {
    await database.execute(sql`
      UPDATE annotation SET class_number = ${step.class}::int WHERE ${chosen}`);
  }
  if (step.kind === "sure") {
    await database.execute(sql`
      UPDATE annotation SET confidence = ${step.confidence}::real WHERE ${chosen}`);
  }
}

interface KnownRow extends Record<string, unknown> {
  id: string;
  frame: string;
  class: string;
  review: "pending" | "accepted" | "rejected";
  source: string;
  confidence: number | null;
  repeats: string | null;
  area: number;
  shown: boolean;
  repeated: boolean;
}

/** All there is of a job, judged by the words of the documents. */
async function truthOf(id: string) {
  const { visionDatabase: database } = world;
  const { rows } = await database.execute<KnownRow>(sql`
    SELECT a.id::text, a.video_id || '.' || a.frame_index AS frame, c.name AS class, a.review,
      a.source, a.confidence, a.duplicate_of::text AS repeats,
      (a.x2 - a.x1) * (a.y2 - a.y1) / ${SIDE * SIDE}::float8 AS area
      FROM annotation a JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
     WHERE a.job_id = ${id}::uuid`);
  const { rows: jobs } = await database.execute<{ threshold: number; marked: string[] }>(sql`
    SELECT threshold, (SELECT coalesce(json_agg(video_id || '.' || frame_index), '[]')
      FROM frame_review WHERE job_id = job.id) AS marked FROM job WHERE id = ${id}::uuid`);
  const { threshold = 0, marked = [] } = jobs[0] ?? {};
  const byId = new Map(rows.map((row) => [row.id, row]));
  for (const row of rows) row.shown = row.confidence === null || row.confidence >= threshold;
  for (const row of rows) {
    const better = byId.get(row.repeats ?? "");
    row.repeated =
      row.shown &&
      row.review === "pending" &&
      Boolean(better?.shown && better.review !== "rejected");
  }
  return { rows, threshold, marked };
}

const count = <Item>(items: readonly Item[], which: (item: Item) => boolean) =>
  items.filter(which).length;

async function compare(id: string) {
  const { rows, marked } = await truthOf(id);
  const shown = rows.filter((row) => row.shown);
  const unrepeated = shown.filter((row) => !row.repeated);
  const byFrame = (of: readonly KnownRow[]) => Map.groupBy(of, ({ frame }) => frame);

  const status = JobProgress.parse(await admin.ok("GET", `/status/${id}`));
  expect(status.stored_annotations).toBe(rows.length);

  for (const [query, own] of [
    ["", unrepeated],
    ["?duplicates=true", shown],
  ] as const) {
    const stats = Stats.parse(await admin.ok("GET", `/jobs/${id}/stats${query}`));
    expect(stats.annotation_count).toBe(own.length);
    expect(stats.duplicates).toBe(count(shown, (row) => row.repeated));
    expect(stats.reviewed).toEqual({
      accepted: count(own, (row) => row.review === "accepted"),
      rejected: count(own, (row) => row.review === "rejected"),
      pending: count(own, (row) => row.review === "pending"),
    });
    const within = (of: readonly KnownRow[]) => (bin: { from: number | null; to: number | null }) =>
      count(of, ({ confidence: sure }) =>
        sure === null || bin.from === null || bin.to === null
          ? sure === bin.from
          : sure >= bin.from && (sure < bin.to || bin.to === 1),
      );
    for (const one of stats.per_class) {
      const ofClass = own.filter((row) => row.class === one.class);
      expect(one.count).toBe(ofClass.length);
      expect(one.accepted).toBe(count(ofClass, (row) => row.review === "accepted"));
      const counts = one.confidence_histogram.map((bin) => bin.count);
      expect(counts).toEqual(one.confidence_histogram.map(within(ofClass)));
    }
    for (const bin of stats.box_area_histogram) {
      const inside = ({ area }: KnownRow) => area >= bin.from * 0.999 && area < bin.to * 0.999;
      expect(bin.count).toBe(count(own, inside));
    }
    const sizes = Map.groupBy(byFrame(own).values(), ({ length }) => length);
    const withSome = stats.annotations_per_frame.filter(({ annotations }) => annotations > 0);
    expect(withSome).toEqual(
      [...sizes]
        .map(([annotations, frames]) => ({ annotations, frames: frames.length }))
        .toSorted((one, other) => one.annotations - other.annotations),
    );
  }

  const overview = Overview.parse(await admin.ok("GET", `/jobs/${id}/overview`));
  const useful = unrepeated.filter((row) => row.review !== "rejected");
  expect(overview.annotated_frames).toBe(byFrame(useful).size);
  expect(overview.annotation_count).toBe(unrepeated.length);
  const done = [...byFrame(shown)]
    .filter(([, of]) => of.some((row) => row.review !== "pending"))
    .filter(([, of]) => of.every((row) => row.review !== "pending" || row.repeated))
    .map(([frame]) => frame);
  const all = FRAMES * videos.length;
  const reviewed = new Set([...done, ...marked]).size;
  expect(overview.completion_percentage).toBeCloseTo((100 * reviewed) / all, 6);
  expect(overview.stages).toEqual({ label: all - reviewed, review: 0, done: reviewed });

  const frames = JobFramePage.parse(await admin.ok("GET", `/jobs/${id}/frames`));
  for (const { frame_id, annotations } of frames.items) {
    const own = byFrame(shown).get(frame_id) ?? [];
    expect(annotations).toEqual({
      total: own.length,
      pending: count(own, (row) => row.review === "pending"),
      accepted: count(own, (row) => row.review === "accepted"),
      rejected: count(own, (row) => row.review === "rejected"),
    });
  }
  const bare = JobFramePage.parse(await admin.ok("GET", `/jobs/${id}/frames?annotated=false`));
  expect(bare.total).toBe(all - byFrame(shown).size);

  const report = DatasetReport.parse(await admin.ok("GET", `/train/dataset-stats/${id}`));
  for (const one of report.class_balance) {
    const own = useful.filter((row) => row.class === one.class);
    expect([one.class, one.count, one.annotated_frames]).toEqual([
      one.class,
      own.length,
      byFrame(own).size,
    ]);
  }
  await compareLists(id, shown);
}

/** Filters of the listing with the rows that they name. */
async function compareLists(id: string, shown: readonly KnownRow[]) {
  const { rows } = await truthOf(id);
  const [video = ""] = videos;
  const surer = (min: number) => rows.filter((row) => (row.confidence ?? 1) >= min);
  const isOf = (one: string, row: KnownRow) => row.frame.startsWith(one);
  const indexOf = (row: KnownRow) => parseFrameId(row.frame)?.index ?? Number.NaN;
  const filters: [string, readonly KnownRow[]][] = [
    ["", shown],
    ["class_name=car", shown.filter((row) => row.class === "car")],
    ["accepted=null", shown.filter((row) => row.review === "pending")],
    [
      "source=person&accepted=true",
      shown.filter((row) => row.review === "accepted" && row.source === "person"),
    ],
    ["duplicates=true", shown.filter((row) => row.repeated)],
    [
      "duplicates=false&class_name=dog",
      shown.filter((row) => !row.repeated && row.class === "dog"),
    ],
    ["min_confidence=0", rows],
    ["min_confidence=0.7", surer(0.7)],
    ["min_confidence=0.29&class_name=car", surer(0.29).filter((row) => row.class === "car")],
    ["min_confidence=1", surer(1)],
    ["min_confidence=0.333", surer(0.333)],
    ["max_confidence=0.7", shown.filter((row) => row.confidence !== null && row.confidence <= 0.7)],
    [`frame_id=${video}.1`, shown.filter((row) => row.frame === `${video}.1`)],
    [
      `video_id=${video}&accepted=false`,
      shown.filter((row) => isOf(video, row) && row.review === "rejected"),
    ],
    [
      `video_id=${video}&class_name=car&accepted=null`,
      shown.filter((row) => isOf(video, row) && row.class === "car" && row.review === "pending"),
    ],
    [`video_id=${video}&min_confidence=0.29`, surer(0.29).filter((row) => isOf(video, row))],
    ["from_index=1", shown.filter((row) => indexOf(row) >= 1)],
    [
      "from_index=1&to_index=2&duplicates=false",
      shown.filter((row) => indexOf(row) === 1 && !row.repeated),
    ],
    ["to_index=2&duplicates=true", shown.filter((row) => indexOf(row) < 2 && row.repeated)],
    ["to_index=2&duplicates=true&accepted=true", []],
    [
      "from_index=1&source=person",
      shown.filter((row) => indexOf(row) >= 1 && row.source === "person"),
    ],
  ];
  for (const [query, named] of filters) {
    for (const sort of Object.keys(ORDERS)) {
      const path = `/jobs/${id}/annotations?${query}&sort=${sort}`;
      const whole = AnnotationPage.parse(await admin.ok("GET", `${path}&limit=1000`));
      expect([query, whole.total, whole.next]).toEqual([query, named.length, null]);
      const ids = whole.items.map((one) => one.annotation_id);
      expect(new Set(ids)).toEqual(new Set(named.map((row) => row.id)));
      if (named.length > 0) expect(await walked(path)).toEqual(ids);
    }
  }
}

/** The ids of a listing, page by page. */
async function walked(path: string): Promise<string[]> {
  const ids: string[] = [];
  let cursor = "";
  for (;;) {
    const page: z.output<typeof AnnotationPage> = AnnotationPage.parse(
      await admin.ok("GET", `${path}&limit=3${cursor}`),
    );
    ids.push(...page.items.map((one) => one.annotation_id));
    if (page.next === null) return ids;
    cursor = `&cursor=${encodeURIComponent(page.next)}`;
  }
}

it("tells what a count by hand tells, whatever was done to annotations", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(Step, { minLength: 3, maxLength: 7 }), async (steps) => {
      const id = await emptyJob();
      const rows = fc.sample(Row, { numRuns: 9, seed: 7 });
      await take(id, { kind: "store", rows });
      for (const step of steps) await take(id, step);
      await compare(id);
    }),
    { numRuns: RUNS, ...seed },
  );
});

it("loses no count where many store into one job at once while its threshold moves", async () => {
  const id = await emptyJob();
  const batches = fc.sample(fc.array(Row, { minLength: 5, maxLength: 9 }), {
    numRuns: 12,
    seed: 3,
  });
  await Promise.all([
    ...batches.map((rows) => take(id, { kind: "store", rows })),
    ...([0.3, 0.71, 0.333] as const).map((threshold) => take(id, { kind: "threshold", threshold })),
    take(id, { kind: "judge", every: 2, from: 1, review: "rejected" }),
  ]);
  await compare(id);
});

it("keeps no counts of a job that is gone", async () => {
  const id = await emptyJob();
  await take(id, { kind: "store", rows: fc.sample(Row, { numRuns: 9, seed: 7 }) });
  await admin.ok("DELETE", `/jobs/${id}`);
  const { rows } = await world.visionDatabase.execute(sql`
    SELECT (SELECT count(*) FROM annotation_count WHERE job_id = ${id}::uuid)::int AS annotations,
      (SELECT count(*) FROM area_count WHERE job_id = ${id}::uuid)::int AS areas,
      (SELECT count(*) FROM frame_count WHERE job_id = ${id}::uuid)::int AS frames`);
  expect(rows).toEqual([{ annotations: 0, areas: 0, frames: 0 }]);
});

describe("cursors", () => {
  it("refuses what is none, and one of another order", async () => {
    const id = await emptyJob();
    await take(id, { kind: "store", rows: fc.sample(Row, { numRuns: 9, seed: 7 }) });
    const { next } = AnnotationPage.parse(
      await admin.ok("GET", `/jobs/${id}/annotations?limit=1&min_confidence=0`),
    );
    const of = (cursor: string, sort: string) =>
      admin.refused("GET", `/jobs/${id}/annotations?sort=${sort}&cursor=${cursor}`);
    const invalid = [422, "invalid_request"];
    expect(await of("what", "frame")).toEqual(invalid);
    const [video = "", id1] = [videos[0], crypto.randomUUID()];
    const wrong = [
      ["frame", 1, 2],
      ["frame", video, 10 ** 12, id1],
      ["frame", video, -1, id1],
      ["confidence", 1e300, id1],
    ];
    for (const one of wrong) {
      const cursor = btoa(JSON.stringify(one));
      expect([one, await of(cursor, `${one[0]}`)]).toEqual([one, invalid]);
    }
    // Smaller than what Postgres takes for a confidence.
    const tiny = btoa(JSON.stringify(["confidence", 1e-300, id1]));
    await admin.ok("GET", `/jobs/${id}/annotations?sort=confidence&cursor=${tiny}`);
    expect(await of(next ?? "", "confidence")).toEqual(invalid);
  });
});

describe("a job of 20,000 annotations, right after they were stored", () => {
  const ANNOTATIONS = 20_000;
  /** Of all of them one in ten may be read, where a page has a hundred. */
  const READ_MAX = 2_000;

  it("is read without reading its annotations", async () => {
    const id = await emptyJob();
    await world.visionDatabase.execute(sql`
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
        x2, y2, confidence, review, source, duplicate_of)
      SELECT md5(${id}::text || n)::uuid, j.workspace_id, j.id, v.video_id, n / 2 % 500,
        CASE WHEN n % 2000 = 0 THEN 2 ELSE n % 2 END, 0, 0, 1 + n % 90, 10, (n % 100) / 100.0,
        CASE WHEN n % 5000 = 0 THEN 'rejected' ELSE 'pending' END, 'model',
        CASE WHEN n % 5 = 4 THEN md5(${id}::text || (n - 1))::uuid END
        FROM job j JOIN job_video v ON v.job_id = j.id,
        generate_series(0, ${ANNOTATIONS - 1}::int) n
       WHERE j.id = ${id}::uuid AND v.position = n % 2`);
    const own = await ownSession(world);
    const { rows } = await world.visionDatabase.execute<{ workspace: string }>(sql`
      SELECT workspace_id::text AS workspace FROM job WHERE id = ${id}::uuid`);
    const job = await findJob(own.database, [rows[0]?.workspace ?? ""], id);
    const page = (filter: object, sort: keyof typeof ORDERS = "frame") =>
      listAnnotations(
        own.database,
        { jobId: id, threshold: 0.5, shownFrom: 0.5, ...filter },
        { sort, offset: 0, limit: 100 },
      );
    const last = await page({}, "confidence");
    const reads: Record<string, () => Promise<unknown>> = {
      overview: () => overviewOf(own.database, job, 0),
      stats: () => statsOf(own.database, job, { duplicates: false }),
      classes: () => listClasses(own.database, job, { duplicates: true }),
      status: () => statusOf(own.database, job, 0),
      "first page": () => page({}),
      "least sure": () => page({}, "confidence"),
      "after a page": () =>
        listAnnotations(
          own.database,
          { jobId: id, threshold: 0.5, shownFrom: 0.5 },
          { sort: "confidence", cursor: last.next ?? "", offset: 0, limit: 100 },
        ),
      "a rare class": () => page({ className: "dog" }, "confidence"),
      "the few that were rejected": () => page({ accepted: false }, "confidence"),
      "what nobody did": () => page({ source: "person" }),
      "what is pending": () => page({ accepted: null }, "-confidence"),
      "a frame, by confidence": () =>
        page({ frame: { videoId: videos[0] ?? "", index: 1 } }, "confidence"),
      "what repeats": () => page({ duplicates: true }),
      "frames from one on": () => page({ fromIndex: 250 }),
      "what is pending in a video": () => page({ videoId: videos[0], accepted: null }),
      "a rare class in frames from one on": () =>
        page({ fromIndex: 10, className: "dog" }, "confidence"),
      "a rare class of a video": () => page({ videoId: videos[0], className: "dog" }),
    };
    const read: Record<string, number> = {};
    for (const [name, act] of Object.entries(reads))
      read[name] = await own.rowsRead("annotation", act);
    // The report of the dataset looks for likely mistakes: at each once, of many at the first.
    const report = () => reportOf(own.database, job, TrainSettings.parse({}));
    expect(await own.rowsRead("annotation", report)).toBeLessThanOrEqual(ANNOTATIONS);
    await own.end();
    const tooMany = Object.entries(read).filter(([, rows]) => !(rows <= READ_MAX));
    expect(tooMany).toEqual([]);
  });
});
