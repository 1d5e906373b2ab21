// Lists that pages show: a page of them, by part of a name and by states, with how many there are.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import type { RunDataset } from "../../../edge/vision/training/runs/dataset.ts";
import { DatasetExport, JobSummary, Overview } from "../../../shared/wire/labeling.ts";
import { Model, TrainingRun, TrainSettings } from "../../../shared/wire/training.ts";
import { frameId, Project, Video } from "../../../shared/wire/vision.ts";
import type { Person } from "../../support/scripted-node.ts";
import { createTeamWorld, type Row, type TeamWorld } from "../../support/team-world.ts";

let team: TeamWorld;
let stranger: Person;
let projectId: string;

const NAMES = ["Straße 1", "100% rain_night.mp4", "rain night", "École", "RAIN", "other"];
const STATES = {
  videos: ["probing", "ready", "failed"],
  jobs: ["queued", "running", "completed", "failed", "stopped"],
  runs: ["queued", "running", "completed", "failed", "stopped"],
} as const;

/** Lists whose entries have names, with the shape of an entry; a project's id is in the path. */
const LISTS = {
  projects: { path: () => "/projects", shape: Project, states: null },
  videos: { path: () => `/projects/${projectId}/videos`, shape: Video, states: STATES.videos },
  jobs: { path: () => "/jobs", shape: JobSummary, states: STATES.jobs },
  models: { path: () => "/models", shape: Model, states: null },
  runs: { path: () => "/train", shape: TrainingRun, states: STATES.runs },
} as const;
type List = keyof typeof LISTS;

const DATASET: RunDataset = {
  manifest: { key: "none", bytes: 1 },
  sha256: "ab",
  sources: [],
  videos: [],
  train: 1,
  val: 1,
  leftOut: { frames: 0, annotatedFrames: 0 },
};

/** Entry of every list for each name, its state the next one of its states. */
async function store(): Promise<void> {
  const { world, workspaceId } = team;
  const database = world.visionDatabase;
  const ids = sql`gen_random_uuid(), ${workspaceId}::uuid, ${projectId}::uuid`;
  for (const [index, name] of NAMES.entries()) {
    const stateOf = (list: "videos" | "jobs" | "runs") => STATES[list][index % STATES[list].length];
    const at = sql`now() + make_interval(secs => ${index}::int)`;
    const jobId = randomUUID();
    const failure = (state: string | undefined) => (state === "failed" ? "a test" : null);
    const ended = ["completed", "failed", "stopped"].includes(stateOf("runs") ?? "")
      ? at
      : sql`NULL`;
    await database.execute(sql`
      INSERT INTO project (id, workspace_id, name, created_at)
      VALUES (gen_random_uuid(), ${workspaceId}::uuid, ${name}, ${at})`);
    await database.execute(sql`
      INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
        content_type, width, height, frame_count, time_base, pts_key, failure,
        created_at)
      VALUES (${ids}, ${name}, 'none', 'upload', ${stateOf("videos")}, 1, 'video/mp4', 1, 1, 1,
        '{1,1}', 'none', ${failure(stateOf("videos"))}, ${at})`);
    await database.execute(sql`
      INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings,
        created_at)
      VALUES (${jobId}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${name}, 'manual',
        ${stateOf("jobs")}, 0.5,
        '{"passes": [[]], "round": 1, "planned": 1, "segmenter": null, "warnings": []}', ${at})`);
    await database.execute(sql`
      INSERT INTO model (id, workspace_id, project_id, name, version, variant, task, classes,
        image_size, parameters, storage_key, bytes, sha256, created_at)
      VALUES (${ids}, ${name}, 1, 'det26n', 'detection', '{person}', 320, 1, 'none', 1, '00', ${at})`);
    await database.execute(sql`
      INSERT INTO training_run (id, workspace_id, project_id, job_id, name, state, settings,
        classes, dataset, failure, created_at, ended_at)
      VALUES (${ids}, ${jobId}::uuid, ${name}, ${stateOf("runs")},
        ${JSON.stringify(TrainSettings.parse({ epochs: 1 }))}::jsonb, '{person}',
        ${JSON.stringify(DATASET)}::jsonb, ${failure(stateOf("runs"))}, ${at}, ${ended})`);
  }
}

/** Statuses and entries of a list, with the total that its header tells. */
async function read(list: List, query = "", person: Person = team.viewer) {
  const { path, shape } = LISTS[list];
  const response = await person.send("GET", `${path()}${query}`);
  expect([list, query, response.status]).toEqual([list, query, 200]);
  const items = z.array(shape as z.ZodType<Record<string, unknown>>).parse(await response.json());
  const total = Number(response.headers.get("X-Total-Count"));
  return { total, names: items.map((one) => String(one.name ?? one.filename)), items };
}

beforeAll(async () => {
  team = await createTeamWorld({ clips: 1 });
  stranger = await team.stranger();
  projectId = (
    await team.admin.ok<Project>("POST", "/projects", {
      name: "of the lists",
      workspace_id: team.workspaceId,
    })
  ).project_id;
  await store();
});

describe("lists", () => {
  const named = Object.keys(LISTS) as List[];
  /** Names in the order of a list, of which projects have others too. */
  const own = ({ names }: { names: string[] }) => names.filter((name) => NAMES.includes(name));

  it.each(named)("of %s find a part of a name, in letters of either case", async (list) => {
    const inOrder = list === "videos" ? NAMES : NAMES.toReversed();
    for (const [q, found] of [
      ["rain", ["100% rain_night.mp4", "rain night", "RAIN"]],
      ["STRASSE", []],
      ["straße", ["Straße 1"]],
      ["STRAßE", ["Straße 1"]],
      ["e\u0301COLE", ["École"]],
      ["%", ["100% rain_night.mp4"]],
      ["n_n", ["100% rain_night.mp4"]],
      ["_", ["100% rain_night.mp4"]],
      ["\\", []],
      ["' OR true --", []],
    ] as const) {
      const page = await read(list, `?q=${encodeURIComponent(q)}`);
      const expected = inOrder.filter((name) => (found as readonly string[]).includes(name));
      expect([q, page.names, page.total]).toEqual([q, expected, expected.length]);
    }
  });

  it.each(named)("of %s come in pages, with how many there are", async (list) => {
    const all = await read(list);
    expect(own(all)).toEqual(list === "videos" ? NAMES : NAMES.toReversed());
    expect(all.total).toBe(all.names.length);
    const page = await read(list, "?q=rain&offset=1&limit=1");
    const whole = await read(list, "?q=rain");
    expect([page.total, page.names]).toEqual([3, whole.names.slice(1, 2)]);
    const behind = await read(list, "?q=rain&offset=100");
    expect([behind.total, behind.names]).toEqual([3, []]);
    for (const query of ["limit=0", "limit=10001", "offset=-1", "q=", "q=%00", "status=lost"]) {
      const refused = await team.viewer.refused("GET", `${LISTS[list].path()}?${query}`);
      expect([query, refused]).toEqual([query, [422, "invalid_request"]]);
    }
  });

  it.each(["videos", "jobs", "runs"] as const)("of %s are those in some states", async (list) => {
    const { states } = LISTS[list];
    for (const wanted of [states.slice(0, 1), states.slice(0, 2), states]) {
      const page = await read(list, `?status=${wanted.join(",")}`);
      const expected = NAMES.filter((_, index) =>
        (wanted as readonly string[]).includes(states[index % states.length] ?? ""),
      );
      expect([wanted, own(page).toSorted()]).toEqual([wanted, expected.toSorted()]);
      expect(page.total).toBe(page.names.length);
    }
    const both = await read(list, `?status=${states[1]}&q=RAIN`);
    const second = NAMES.filter((_, index) => index % states.length === 1);
    expect(both.names).toEqual(second.filter((name) => /rain/i.test(name)));
    for (const status of ["", "ready,", "lost", "queued,lost", "QUEUED"]) {
      const refused = await team.viewer.refused("GET", `${LISTS[list].path()}?status=${status}`);
      expect([status, refused]).toEqual([status, [422, "invalid_request"]]);
    }
  });

  it("show nobody what is of other workspaces", async () => {
    for (const list of ["projects", "jobs", "models", "runs"] as const) {
      expect(own(await read(list, "", stranger))).toEqual([]);
      expect((await read(list, "?q=rain", stranger)).total).toBe(0);
    }
    expect((await stranger.send("GET", LISTS.videos.path())).status).toBe(404);
  });

  it("of exports are those in some states, in pages", async () => {
    const jobId = await team.job([[0, 1, "cat", [1, 1, 20, 20]]]);
    for (const state of ["queued", "failed", "failed"]) {
      await team.world.visionDatabase.execute(sql`
        INSERT INTO dataset_export (id, workspace_id, job_id, format, state, options, storage_key)
        VALUES (gen_random_uuid(), ${team.workspaceId}::uuid, ${jobId}::uuid, 'coco', ${state}, '{}',
          'none')`);
    }
    const path = `/jobs/${jobId}/exports`;
    const page = async (query: string) => {
      const response = await team.viewer.send("GET", path + query);
      const items = z.array(DatasetExport).parse(await response.json());
      return [Number(response.headers.get("X-Total-Count")), items.map(({ status }) => status)];
    };
    expect(await page("?status=failed&limit=1")).toEqual([2, ["failed"]]);
    expect(await page("?status=failed,queued&offset=2")).toEqual([3, ["queued"]]);
    expect(await page("?status=completed")).toEqual([0, []]);
    expect(await team.viewer.refused("GET", `${path}?status=lost`)).toEqual([
      422,
      "invalid_request",
    ]);
    expect((await stranger.send("GET", path)).status).toBe(404);
  });
});

describe("jobs of a list", () => {
  it("tell how far people are with them", async () => {
    const boxes = [1, 3, 5].flatMap((frame): Row[] => [
      [0, frame, "cat", [1, 1, 20, 20]],
      [0, frame, "dog", [40, 40, 60, 60]],
    ]);
    const id = await team.job([...boxes, [0, 7, "owl", [1, 1, 9, 9]]], [0, 1, 3, 5, 7]);
    const summary = async () =>
      z
        .array(JobSummary)
        .parse(await team.viewer.ok("GET", "/jobs?counts=true&limit=100"))
        .find(({ job_id }) => job_id === id);
    const counts = (pending: number, accepted: number, rejected: number) => ({
      total: pending + accepted + rejected,
      pending,
      accepted,
      rejected,
    });
    expect(await summary()).toMatchObject({
      annotations: counts(7, 0, 0),
      frames: { total: 5, done: 0 },
    });
    const review = (accepted: boolean, frame: number, class_name?: string) =>
      team.admin.ok("POST", `/jobs/${id}/annotations/review`, {
        accepted,
        filter: { frame_id: frameId(team.clips[0] ?? "", frame), class_name },
      });
    await review(true, 1);
    await review(true, 3, "cat");
    await review(false, 5);
    const frame_ids = [frameId(team.clips[0] ?? "", 0)];
    await team.admin.ok("POST", `/jobs/${id}/frames/review`, {
      reviewed: true,
      filter: { frame_ids },
    });
    // A frame that the job does not label becomes one of its frames.
    await team.admin.ok("POST", "/annotations", {
      job_id: id,
      frame_id: frameId(team.clips[0] ?? "", 9),
      class: "cat",
      bbox: [1, 1, 9, 9],
    });
    const overview = Overview.parse(await team.viewer.ok("GET", `/jobs/${id}/overview`));
    expect(await summary()).toMatchObject({
      annotations: { ...counts(2, 4, 2), total: overview.annotation_count },
      frames: { total: overview.frame_count, done: overview.stages.done },
    });
    expect(overview).toMatchObject({ frame_count: 6, stages: { done: 4 } });
    // What repeats another needs no judgement, and what the threshold hides is not counted.
    await team.world.visionDatabase.execute(sql`
      WITH better AS (SELECT * FROM annotation
        WHERE job_id = ${id}::uuid AND frame_index = 7 LIMIT 1)
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number, x1, y1,
        x2, y2, confidence, source, duplicate_of)
      SELECT gen_random_uuid(), workspace_id, job_id, video_id, frame_index, class_number, 1, 1, 9, 9,
        n, 'model', id FROM better, unnest('{0.9,0.1}'::float8[]) n`);
    expect((await summary())?.annotations?.total).toBe(8);
    const [plain] = z.array(JobSummary).parse(await team.viewer.ok("GET", "/jobs?limit=1"));
    expect([plain?.annotations, plain?.frames]).toEqual([null, null]);
    for (const query of ["counts=true", "counts=true&limit=101", "counts=1"]) {
      const refused = await team.viewer.refused("GET", `/jobs?${query}`);
      expect([query, refused]).toEqual([query, [422, "invalid_request"]]);
    }
  });
});
