// What a node answers against what it was asked, over the real protocol. Goal: a bad answer fails
// its attempt by name and never the job's settling, and nothing that a node writes once its task
// ended is ever read.

import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { findTask } from "../../../edge/vision/tasks/queue/queue.ts";
import { type ClaimedTask, WriteAddress } from "../../../shared/tasks/node-protocol.ts";
import { type Detection, TASK_KINDS, type TaskKind } from "../../../shared/tasks/tasks.ts";
import type { Job } from "../../../shared/wire/labeling.ts";
import type { Video } from "../../../shared/wire/vision.ts";
import { jpeg, png } from "../../support/media.ts";
import {
  JPEG,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../support/scripted-node.ts";
import { createWorld, type World } from "../../support/world.ts";

const [WIDTH, HEIGHT] = [64, 48];
const FRAMES = 3;
let world: World;
let admin: Person;
let node: ScriptedNode;
let videoId: string;
let projectId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, {
    probe: probeAs({ frames: FRAMES, width: WIDTH, height: HEIGHT }),
  });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});

const detection = (more: Partial<Detection> = {}): Detection => ({
  class_name: "person",
  bbox: [0, 0, WIDTH, HEIGHT],
  confidence: 0.9,
  polygon: null,
  duplicate_of: null,
  ...more,
});
const answer = (frames: readonly number[], detections: readonly Detection[] = [detection()]) => ({
  frames: frames.map((frame_index) => ({ frame_index, detections: [...detections] })),
  segmenter: "scripted",
  seconds: 0.1,
  warnings: [],
});
const ALL = [0, 1, 2];

async function begun(): Promise<{ jobId: string; task: ClaimedTask }> {
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
  const { job_id: jobId } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  return { jobId, task: await claimed("label") };
}

async function claimed(kind: TaskKind): Promise<ClaimedTask> {
  await world.visionDatabase.execute(
    sql`UPDATE task SET available_at = now() - interval '1 second'`,
  );
  const task = await node.claim([kind]);
  expect(task?.kind).toBe(kind);
  return task as ClaimedTask;
}

/** How the service took a result. */
async function reply(task: ClaimedTask, result: Record<string, unknown>) {
  const response = await node.finish(task, { outcome: "finished", result });
  expect(response.status).toBe(200);
  return (await response.json()) as { status: string; problem?: string };
}

describe("a label task's answer", () => {
  const wrong: [string, Record<string, unknown>, RegExp][] = [
    ["a frame that nobody asked for", answer([...ALL, 7]), /frame 7 was not asked for/],
    ["a frame twice", answer([0, 1, 2, 2]), /answered twice/],
    ["a frame missing", answer([0, 2]), /frame 1 is not answered/],
    ["a class of its own", answer(ALL, [detection({ class_name: "car" })]), /a class that was not/],
    ["a box beyond the frame", answer(ALL, [detection({ bbox: [0, 0, 65, 9] })]), /not inside/],
    ["a box that no float holds", answer(ALL, [detection({ bbox: [0, 0, 1e300, 9] })]), /inside/],
    ["an outline of half a point", answer(ALL, [detection({ polygon: [0, 0, 9] })]), /no ring/],
    [
      "an outline beyond the frame",
      answer(ALL, [detection({ polygon: [0, 0, 99, 0, 9, 9] })]),
      /outline is not inside/,
    ],
    ["a duplicate of none", answer(ALL, [detection({ duplicate_of: 5 })]), /duplicate of no other/],
    ["a confidence above 1", answer(ALL, [detection({ confidence: 2 })]), /^result\.frames/],
  ];
  it.each(wrong)("fails its attempt by name: %s", async (_, result, problem) => {
    const { jobId, task } = await begun();
    expect(await reply(task, result)).toEqual({
      status: "queued",
      repeated: false,
      problem: expect.stringMatching(problem),
    });
    const [error] = (await findTask(world.visionDatabase, task.task_id))?.errors ?? [];
    expect(error).toMatchObject({ code: "bad_result", detail: expect.stringMatching(/refused: /) });
    // The next attempt's good answer settles the job as if nothing had been.
    expect(await reply(await claimed("label"), answer(ALL))).toMatchObject({ status: "finished" });
    expect(await admin.ok<Job>("GET", `/jobs/${jobId}`)).toMatchObject({ status: "completed" });
    await admin.ok("DELETE", `/jobs/${jobId}`);
  });

  it("is stored at the edge of what a float holds", async () => {
    const { jobId, task } = await begun();
    const tiny = detection({ bbox: [1e-46, 0, 1, 1e-30], confidence: 1e-46 });
    expect(await reply(task, answer(ALL, [tiny]))).toMatchObject({ status: "finished" });
    const page = await admin.ok<{ total: number }>(
      "GET",
      `/jobs/${jobId}/annotations?max_confidence=1&min_confidence=0`,
    );
    expect(page.total).toBe(FRAMES);
    await admin.ok("DELETE", `/jobs/${jobId}`);
  });

  it("may leave frames out once the task is canceled, but answers no others", async () => {
    const { jobId, task } = await begun();
    await admin.ok("POST", `/jobs/${jobId}/stop`);
    const partial = { outcome: "cancelled" as const, result: answer([1]) };
    const response = await node.finish(task, partial);
    expect(await response.json()).toEqual({ status: "cancelled", repeated: false });
    await admin.ok("DELETE", `/jobs/${jobId}`);
    const { jobId: other, task: lying } = await begun();
    await admin.ok("POST", `/jobs/${other}/stop`);
    const refused = await node.finish(lying, { outcome: "cancelled", result: answer([8]) });
    expect(await refused.json()).toMatchObject({
      status: "cancelled",
      problem: expect.any(String),
    });
    expect(await admin.ok<Job>("GET", `/jobs/${other}`)).toMatchObject({ status: "stopped" });
    await admin.ok("DELETE", `/jobs/${other}`);
  });
});

/** Asks at a route that waits for a node, and lets the node answer. */
async function waited(kind: TaskKind, path: string, body: object, result: object) {
  const asking = admin.send("POST", path, body);
  let task: ClaimedTask | null = null;
  await expect
    .poll(async () => {
      task ??= await node.claim([kind]);
      return task;
    })
    .not.toBeNull();
  // It is set in a callback, which the compiler does not follow.
  const { status, problem } = await reply(task as unknown as ClaimedTask, { ...result });
  const answered = await asking;
  const told = (await answered.json()) as Record<string, unknown>;
  return { said: problem ?? status, answered: [answered.status, told.code], told };
}

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");
/** How a node's refused answer shows where somebody waits for it. */
const FAILED = [502, "task_failed"];

describe("a preview's answer", () => {
  const preview = (image: string) => ({
    frames: [{ frame_index: 0, detections: [detection()], image }],
    segmenter: "scripted",
    warnings: [],
  });
  const ask = (result: object) => {
    const body = { frame_ids: [`${videoId}.0`], prompts: ["person"] };
    return waited("preview", "/label/preview", body, result);
  };
  const whole = base64(jpeg(WIDTH, HEIGHT));

  it.each([
    ["no base64", preview("%%%"), /^frame 0: the image is no image\/jpeg/],
    ["no image", preview(""), /no image\/jpeg/],
    ["an image of another type", preview(base64(png(WIDTH, HEIGHT))), /no image\/jpeg/],
    ["another frame's size", preview(base64(jpeg(HEIGHT, WIDTH))), /is not 64 × 48 pixels/],
    [
      "an image twice",
      { ...preview(whole), frames: [0, 0].flatMap(() => preview(whole).frames) },
      /answered twice/,
    ],
    ["words without end", { ...preview(whole), warnings: ["x".repeat(3_000)] }, /^result\.warn/],
  ])("fails its task by name: %s", async (_, result, problem) => {
    expect(await ask(result)).toMatchObject({
      said: expect.stringMatching(problem),
      answered: FAILED,
    });
  });

  it("is shown where it is one", async () => {
    const { said, told } = await ask(preview(whole));
    expect([said, told]).toMatchObject(["finished", { previews: [{ image: whole }] }]);
  });
});

describe("the answer to clicks", () => {
  const mask = (more: Record<string, unknown> = {}) => ({
    masks: [
      {
        png: base64(png(WIDTH, HEIGHT)),
        rle: { size: [HEIGHT, WIDTH], counts: [0, WIDTH * HEIGHT] },
        polygon: [0, 0, WIDTH, 0, WIDTH, HEIGHT],
        bbox: [0, 0, WIDTH, HEIGHT],
        score: 1,
        ...more,
      },
    ],
    segmenter: "scripted",
  });
  const ask = (result: object) => {
    const body = { frame_id: `${videoId}.0`, points: [{ x: 1, y: 1, label: 1 }] };
    return waited("segment", "/label/segment-points", body, result);
  };

  it.each([
    ["no image", mask({ png: "" }), /no image\/png/],
    ["an image of another type", mask({ png: base64(jpeg(WIDTH, HEIGHT)) }), /no image\/png/],
    ["an image of another size", mask({ png: base64(png(WIDTH, 9)) }), /is not 64 × 48 pixels/],
    ["a score above 1", mask({ score: 1.1 }), /^result\.masks\.0\.score/],
    ["a score below 0", mask({ score: -0.1 }), /^result\.masks\.0\.score/],
    ["runs of another size", mask({ rle: { size: [WIDTH, HEIGHT], counts: [3_072] } }), /runs/],
    ["an outline elsewhere", mask({ polygon: [0, 0, 99, 0, 9, 9] }), /outline is not inside/],
  ])("fails its task by name: %s", async (_, result, problem) => {
    expect(await ask(result)).toMatchObject({
      said: expect.stringMatching(problem),
      answered: FAILED,
    });
  });

  it("is shown where it is one", async () => {
    const { said, told } = await ask(mask());
    expect([said, told]).toMatchObject(["finished", { mask: { confidence: 1 }, alternatives: [] }]);
  });
});

describe("images of frames", () => {
  const image = () => admin.send("GET", `/videos/${videoId}/frames/1.jpg`);
  const addressOf = async (task: ClaimedTask, key: string, body: Uint8Array) => {
    const md5 = createHash("md5").update(body).digest("hex");
    const asked = { fence: task.fence, key, bytes: body.length, md5 };
    const path = `/node/tasks/${task.task_id}/target`;
    return WriteAddress.parse(await node.api.ok("POST", path, asked));
  };

  it("are what the task wrote while it was the node's, whatever is written later", async () => {
    const { jobId, task } = await begun();
    const { images } = TASK_KINDS.label.payload.parse(task.payload);
    const key = images[1]?.key ?? "";
    const spoilt = Uint8Array.from([...JPEG, 66]);
    const [good, late] = [await addressOf(task, key, JPEG), await addressOf(task, key, spoilt)];
    const put = ({ url, headers }: WriteAddress, body: Uint8Array<ArrayBuffer>) =>
      fetch(url, { method: "PUT", headers, body });
    expect((await put(good, JPEG)).status).toBe(200);
    expect(await reply(task, answer(ALL))).toMatchObject({ status: "finished" });
    // The attempt's own key is free again; nobody reads it.
    expect((await put(late, spoilt)).status).toBe(200);
    const shown = await image();
    expect([shown.status, new Uint8Array(await shown.arrayBuffer())]).toEqual([200, JPEG]);
    await admin.ok("DELETE", `/jobs/${jobId}`);
  });

  it("are refused where they are not there", async () => {
    const asking = admin.send("GET", `/videos/${videoId}/frames/2.jpg`);
    let task: ClaimedTask | null = null;
    await expect
      .poll(async () => {
        task ??= await node.claim(["frames"]);
        return task;
      })
      .not.toBeNull();
    // It is set in a callback, which the compiler does not follow.
    const { problem } = await reply(task as unknown as ClaimedTask, {});
    expect(problem).toMatch(/image of frame 2 is not in the store/);
    expect((await asking).status).toBe(502);
  });
});

describe("a probe's answer", () => {
  const FOUND = {
    broken: null,
    content_type: "video/mp4",
    width: WIDTH,
    height: HEIGHT,
    fps: 10,
    frame_count: FRAMES,
    duration_seconds: 0.3,
    time_base: [1, 1000],
    probe: {},
  };
  it.each([
    ["no size", { width: 0 }, /^result/],
    ["frames beyond counting", { frame_count: 2 ** 40 }, /^result/],
    ["a type that browsers run", { content_type: "text/html" }, /^result/],
    ["a clock that stands", { time_base: [1, 0] }, /^result/],
    ["facts without end", { probe: { x: "y".repeat(100_000) } }, /probe: too long/],
    ["another number of frames than times", { frame_count: 4 }, /table of 4 frames' times/],
  ])("fails its attempt by name: %s", async (_, more, problem) => {
    const video = await uploadVideo(admin, projectId);
    const task = await claimed("probe");
    const { pts, thumbnail } = TASK_KINDS.probe.payload.parse(task.payload);
    await node.write(task, { key: pts.key }, new Uint8Array(4 * FRAMES));
    await node.write(task, { key: thumbnail.key }, JPEG);
    const said = await reply(task, { ...FOUND, ...more });
    expect(said).toMatchObject({ status: "queued", problem: expect.stringMatching(problem) });
    // The next attempt makes the video ready.
    await world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second'`,
    );
    await node.work();
    const read = await admin.ok<Video>("GET", `/videos/${video.video_id}`);
    expect(read).toMatchObject({ status: "ready" });
  });
});
