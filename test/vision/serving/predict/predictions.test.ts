// Predictions over HTTP, with a node whose answers the test decides. Goal: detections come as the
// contract says, of the model that was asked for; every refusal says why; and the files of requests
// do not stay.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Parts } from "../../../../edge/vision/base/parts.ts";
import {
  deleteUnusedFiles,
  KEPT_PREDICTIONS,
} from "../../../../edge/vision/serving/predict/predictions.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { DAY, HOUR, MINUTE } from "../../../../shared/time.ts";
import { VideoPrediction } from "../../../../shared/wire/serving.ts";
import { avi, form, mp4, png, text } from "../../../support/media.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import { forgetRows } from "../../../support/retention.ts";
import {
  colleague,
  type Person,
  register,
  type Script,
  type ScriptedNode,
  scriptedNode,
} from "../../../support/scripted-node.ts";
import { tensorFile } from "../../../support/weights.ts";
import { createWorld, type World } from "../../../support/world.ts";

const UPLOAD_MAX = 40_000;
const WORKSPACE_MAX = 30_000;
/** Nobody reads a weight here, and a real file's would fill the workspace. */
const NO_WEIGHTS = tensorFile(new Map());
const ABSENT = "00000000-0000-4000-8000-000000000000";

let world: World;
let annotator: Person;
let viewer: Person;
let workspaceId: string;
let node: ScriptedNode;
let model: RegisteredModel;
let asked: TaskPayload<"predict">[];

beforeAll(async () => {
  world = await createWorld({
    services: ["vision"],
    environment: {
      vision: { UPLOAD_BYTES_MAX: String(UPLOAD_MAX), WORKSPACE_BYTES_MAX: String(WORKSPACE_MAX) },
    },
  });
  const admin = await register(world);
  annotator = await colleague(world, admin, "annotator");
  viewer = await colleague(world, admin, "viewer");
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  model = await registerModel(world, workspaceId, { file: NO_WEIGHTS });
  expect(await annotator.refused("POST", "/predict/image", image())).toEqual([
    409,
    "state_conflict",
  ]);
  await world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model.model_id}::uuid`,
  );
  expect(await annotator.refused("POST", "/predict/video", clip())).toEqual([503, "no_node"]);
  expect(await annotator.refused("POST", "/predict/image", image())).toEqual([503, "no_node"]);
  node = await scriptedNode(world, admin);
});
beforeEach(() => {
  asked = [];
});

const image = (content = png()) => form({ content, filename: "a.png" });
const clip = (content = mp4()) => form({ content });

const FOUND = [
  { class: "disc", confidence: 0.9, bbox: [1, 2, 30.5, 40] },
  { class: "star", confidence: 0.4, bbox: [0, 0, 640, 480] },
];

/** Answers a prediction with what it found on so many frames, half a second each. */
const finding =
  (frames: number): NonNullable<Script["predict"]> =>
  (task) => {
    const payload = TASK_KINDS.predict.payload.parse(task.payload);
    asked.push(payload);
    return {
      width: 640,
      height: 480,
      left_out: payload.uncut ? 0 : 2,
      seconds: 0.1,
      frames: Array.from({ length: frames }, (_, index) => ({
        frame_index: index,
        time: index / 2,
        predictions: index === 1 ? [] : FOUND,
      })),
    };
  };

const failing = (code: string, detail: string) => () => ({
  outcome: "failed" as const,
  code,
  detail,
  retryable: false,
});

/** Sends a request while the node works as the script says. */
async function working<Result>(
  predict: NonNullable<Script["predict"]>,
  ask: () => Promise<Result>,
): Promise<Result> {
  node.script = { predict };
  const stop = node.start();
  try {
    return await ask();
  } finally {
    await stop();
  }
}

const stored = async () =>
  (await world.media.list({ prefix: `ws/${workspaceId}/predictions/` })).objects.map(
    ({ key }) => key,
  );

describe("POST /predict/image", () => {
  const predict = (query = "", body = image()) =>
    annotator.ok("POST", `/predict/image${query}`, body);

  it("gives an array of class, confidence and bbox, and keeps no image", async () => {
    const content = png(300, 200);
    let bytes = new Uint8Array();
    const script: Script["predict"] = async (task, by) => {
      const { video } = TASK_KINDS.predict.payload.parse(task.payload);
      bytes = new Uint8Array(await (await fetch(video.url)).arrayBuffer());
      return finding(1)(task, by);
    };
    expect(await working(script, () => predict("", image(content)))).toEqual(FOUND);
    expect(bytes).toEqual(content);
    expect(asked[0]).toMatchObject({
      confidence: 0.25,
      fps: null,
      frames_max: 1,
      model: {
        model_id: model.model_id,
        classes: model.classes,
        sha256: model.sha256,
        image_size: 96,
      },
    });
    expect(await stored()).toEqual([]);
  });

  it("takes a confidence, and another model by its id or alias", async () => {
    const other = await registerModel(world, workspaceId, { file: NO_WEIGHTS, image_size: 64 });
    await world.visionDatabase.execute(sql`
      INSERT INTO model_alias (workspace_id, alias, model_id)
      VALUES (${workspaceId}::uuid, 'staging', ${other.model_id}::uuid)`);
    await working(finding(1), async () => {
      await predict("?confidence=0.7");
      await predict(`?model_id=${other.model_id}&confidence=0`);
      await predict(`?alias=staging&workspace_id=${workspaceId}`);
    });
    expect(asked.map((one) => [one.model.model_id, one.confidence])).toEqual([
      [model.model_id, 0.7],
      [other.model_id, 0],
      [other.model_id, 0.25],
    ]);
  });

  it.each<[string, string, () => FormData, [number, string]]>([
    // A body that is no form is the point.
    ["no form", "", () => new Uint8Array([1]) as never, [400, "bad_body"]],
    ["a model that is nobody's", `?model_id=${ABSENT}`, image, [404, "not_found"]],
    ["a foreign workspace", `?workspace_id=${ABSENT}`, image, [404, "not_found"]],
    ["an alias of none", "?alias=canary", image, [409, "state_conflict"]],
    [
      "a file that is too large",
      "",
      () => form({ content: large(png(), UPLOAD_MAX + 1) }),
      [413, "file_too_large"],
    ],
    ["too many pixels", "", () => image(png(20_000, 20_000)), [413, "file_too_large"]],
    [
      "a full workspace",
      "",
      () => form({ content: large(png(), WORKSPACE_MAX + 1) }),
      [413, "quota_exceeded"],
    ],
    ["a video", "", () => clip(), [415, "unsupported_media"]],
    ["a text", "", () => form({ content: text() }), [415, "unsupported_media"]],
    [
      "no file",
      "",
      () => form(["a", "b"], { field: "other", content: png() }),
      [422, "invalid_request"],
    ],
    ["two files", "", () => form({ content: png() }, { content: png() }), [422, "invalid_request"]],
    ["an empty file", "", () => form({ content: new Uint8Array() }), [422, "invalid_request"]],
    ["a confidence of 2", "?confidence=2", image, [422, "invalid_request"]],
    ["an alias beside an id", `?alias=canary&model_id=${ABSENT}`, image, [422, "invalid_request"]],
  ])("answers %s with its status", async (_, query, body, expected) => {
    await working(finding(1), async () => {
      const response = await annotator.send("POST", `/predict/image${query}`, body());
      const { code = "" } = (await response.json()) as { code?: string };
      expect([response.status, code]).toEqual(expected);
    });
    expect(await stored()).toEqual([]);
  });

  it("is for annotators, not for viewers", async () => {
    expect(await viewer.refused("POST", "/predict/image", image())).toEqual([403, "forbidden"]);
    expect(await viewer.refused("POST", "/predict/video", clip())).toEqual([403, "forbidden"]);
  });

  it("says what a node could not do, and what it could not read", async () => {
    const asking = () => annotator.refused("POST", "/predict/image", image());
    expect(await working(failing("bad_weights", "spoilt"), asking)).toEqual([502, "task_failed"]);
    const unread = failing("unsupported_media", "the image cannot be decoded");
    expect(await working(unread, asking)).toEqual([415, "unsupported_media"]);
    expect(await stored()).toEqual([]);
  });
});

const large = (start: Uint8Array, bytes: number) => {
  const file = new Uint8Array(bytes);
  file.set(start);
  return file;
};

const at = (clock: number) =>
  ({
    database: world.visionDatabase,
    bucket: world.media,
    clock: () => clock,
    // The duty uses no other part.
  }) as unknown as Parts;
/** The duty of an hour's minutes: each workspace has one of them. */
const hourFrom = async (start: number) => {
  let deleted = 0;
  for (let minute = 0; minute < 60; minute++) {
    deleted += await deleteUnusedFiles(at(start + minute * MINUTE));
  }
  return deleted;
};

describe("POST /predict/video", () => {
  it("gives the detections of each frame when they are there in time", async () => {
    const query = "?fps=2&frames_max=3&confidence=0.5";
    const answer = await working(finding(3), () =>
      annotator.ok("POST", `/predict/video${query}`, clip()),
    );
    const predicted = VideoPrediction.parse(answer);
    expect(predicted).toMatchObject({
      status: "completed",
      failure: null,
      model_id: model.model_id,
      width: 640,
      height: 480,
      frames_done: 3,
      frames_total: 3,
      left_out: 2,
      frames: [
        { frame_index: 0, time: 0, detections: FOUND },
        { frame_index: 1, time: 0.5, detections: [] },
        { frame_index: 2, time: 1, detections: FOUND },
      ],
    });
    expect(asked[0]).toMatchObject({ fps: 2, frames_max: 3, confidence: 0.5 });
    expect(await stored()).toEqual([]);
    // Its result is there for a while, for every member of the workspace.
    const path = `/predict/video/${predicted.prediction_id}`;
    expect(await viewer.ok("GET", path)).toEqual(predicted);
    const status = await viewer.ok<{ last_prediction_at: string }>("GET", "/serve/status");
    expect(Date.parse(status.last_prediction_at)).toBeGreaterThan(Date.now() - MINUTE);
  });

  it("is asked for every frame up to 3,000, and cut only by the sender's `frames_max`", async () => {
    const path = "/predict/video";
    const whole = await working(finding(3_000), () => annotator.ok("POST", path, clip()));
    expect(VideoPrediction.parse(whole).frames).toHaveLength(3_000);
    expect(whole).toMatchObject({ frames_total: 3_000, left_out: 0 });
    await working(finding(3), () => annotator.ok("POST", `${path}?frames_max=3`, clip()));
    expect(asked).toMatchObject([{ fps: null, frames_max: 3_000, uncut: true }, { frames_max: 3 }]);
    expect(asked[1]?.uncut).toBeUndefined();
  });

  it("refuses a longer clip by name, with its frames and the most that are looked at", async () => {
    const detail = "the clip has 3,010 frames to look at, and at most 3,000 are";
    const long = failing("too_many_frames", detail);
    const response = await working(long, () => annotator.send("POST", "/predict/video", clip()));
    expect(response.status).toBe(413);
    expect(await response.json()).toMatchObject({ code: "too_many_frames", detail });
    // A node that cuts the clip all the same.
    const cutting: NonNullable<Script["predict"]> = (task, by) => ({
      ...(finding(3)(task, by) as object),
      left_out: 10,
    });
    const refused = () => annotator.refused("POST", "/predict/video", clip());
    expect(await working(cutting, refused)).toEqual([502, "task_failed"]);
    expect(await stored()).toEqual([]);
  });

  it("shows of a node's answer what the contract names, and no more", async () => {
    const chatty: NonNullable<Script["predict"]> = (task, by) => {
      const found = (finding(1)(task, by) as { frames: Record<string, unknown>[] }).frames;
      const predictions = FOUND.map((one) => ({ ...one, debug: "x" }));
      const frames = found.map((frame) => ({ ...frame, predictions }));
      return { width: 640, height: 480, left_out: 0, seconds: 0.1, frames };
    };
    const answer = await working(chatty, () => annotator.ok("POST", "/predict/video", clip()));
    expect((answer as VideoPrediction).frames?.[0]?.detections).toEqual(FOUND);
    const path = "/predict/image";
    expect(await working(chatty, () => annotator.ok("POST", path, image()))).toEqual(FOUND);
  });

  it("names what was meant by a word that is another route's", async () => {
    const response = await annotator.send("POST", "/predict/video?threshold=0.5", clip());
    const { detail } = (await response.json()) as { detail: string };
    const meant = "threshold: unknown parameter; did you mean confidence?";
    expect([response.status, detail]).toEqual([422, meant]);
  });

  it("gives masks where they are asked for, and no answer of a node without them", async () => {
    const outlining = await registerModel(world, workspaceId, {
      file: NO_WEIGHTS,
      task: "segmentation",
    });
    const path = `/predict/video?mask=rle&model_id=${outlining.model_id}`;
    const mask = { rle: { size: [480, 640], counts: [100, 20, 640 * 480 - 120] } };
    const detections = [
      { ...FOUND[0], mask },
      { ...FOUND[1], mask: null },
    ];
    const drawing: NonNullable<Script["predict"]> = (task, by) => {
      const result = finding(1)(task, by) as { frames: Record<string, unknown>[] };
      const frames = result.frames.map((frame) => ({ ...frame, predictions: detections }));
      return { ...result, frames, masks_left_out: 1 };
    };
    const answer = await working(drawing, () => annotator.ok("POST", path, clip()));
    expect(answer).toMatchObject({ frames: [{ detections }], masks_left_out: 1 });
    expect(asked[0]).toMatchObject({ mask: "rle" });
    const refused = () => annotator.refused("POST", path, clip());
    expect(await working(finding(1), refused)).toEqual([502, "task_failed"]);
    expect(await annotator.refused("POST", "/predict/video?mask=rle", clip())).toEqual([
      422,
      "invalid_request",
    ]);
  });

  it("gives the clip with its boxes drawn for as long as its record is there", async () => {
    const path = "/predict/video?annotated=true";
    // As much as the workspace may have.
    const drawn = new Uint8Array(WORKSPACE_MAX).fill(7);
    const drawing: NonNullable<Script["predict"]> = async (task, by) => {
      const { annotated } = TASK_KINDS.predict.payload.parse(task.payload);
      const key = await by.write(task, { key: annotated?.key ?? "" }, drawn);
      const result = finding(2)(task, by) as object;
      return { ...result, annotated: { key, bytes: drawn.length } };
    };
    const answer = VideoPrediction.parse(
      await working(drawing, () => annotator.ok("POST", path, clip())),
    );
    const file = await fetch(answer.annotated_video_url ?? "");
    expect(file.headers.get("Content-Type")).toBe("video/mp4");
    expect(new Uint8Array(await file.arrayBuffer())).toEqual(drawn);
    // Another look gives another address; who asked for none is given none.
    const again = await viewer.ok<VideoPrediction>("GET", `/predict/video/${answer.prediction_id}`);
    expect((await fetch(again.annotated_video_url ?? "")).status).toBe(200);
    expect(await annotator.refused("POST", path, clip())).toEqual([413, "quota_exceeded"]);
    expect(await stored()).toHaveLength(1);
    expect(await hourFrom(Date.now() + 2 * HOUR)).toBe(0);
    await forgetRows(at(Date.now() + 2 * DAY), KEPT_PREDICTIONS);
    expect(await hourFrom(Date.now() + 2 * HOUR)).toBe(1);
    const plain = await working(finding(2), () =>
      annotator.ok<object>("POST", "/predict/video", clip()),
    );
    expect(plain).not.toHaveProperty("annotated_video_url");
    expect(await stored()).toEqual([]);
  });

  it("takes no annotated video that is not in the store, and none that nobody asked for", async () => {
    const saying =
      (annotated: { key: string; bytes: number } | null): NonNullable<Script["predict"]> =>
      (task, by) => ({ ...(finding(1)(task, by) as object), ...(annotated && { annotated }) });
    const path = "/predict/video?annotated=true";
    const asking = () => annotator.refused("POST", path, clip());
    const foreign = { key: `ws/${workspaceId}/predictions/other.mp4`, bytes: 10 };
    const absent: NonNullable<Script["predict"]> = (task, by) => {
      const { annotated } = TASK_KINDS.predict.payload.parse(task.payload);
      const [stem] = (annotated?.key ?? "").split(".mp4");
      const key = `${stem}.${task.task_id.slice(0, 8)}-${task.fence}.mp4`;
      return saying({ key, bytes: 10 })(task, by);
    };
    for (const script of [saying(null), saying(foreign), absent]) {
      expect(await working(script, asking)).toEqual([502, "task_failed"]);
    }
    const unasked = () => annotator.refused("POST", "/predict/video", clip());
    expect(await working(saying(foreign), unasked)).toEqual([502, "task_failed"]);
    const failed: NonNullable<Script["predict"]> = async (task, by) => {
      const { annotated } = TASK_KINDS.predict.payload.parse(task.payload);
      await by.write(task, { key: annotated?.key ?? "" }, new Uint8Array(9));
      return failing("video_not_written", "no room")();
    };
    expect(await working(failed, asking)).toEqual([502, "task_failed"]);
    expect(await stored()).toEqual([]);
    const other = "/predict/video?annotated=yes";
    expect(await annotator.refused("POST", other, clip())).toEqual([422, "invalid_request"]);
  });

  it("answers a long one with 202 and its id", async () => {
    const response = await annotator.send("POST", "/predict/video?wait_seconds=0", clip(avi()));
    expect(response.status).toBe(202);
    const { prediction_id, ...rest } = VideoPrediction.parse(await response.json());
    const path = `/predict/video/${prediction_id}`;
    expect(response.headers.get("Location")).toBe(`/api/v1${path}`);
    expect(rest).toMatchObject({ status: "queued", frames: null, frames_done: null });
    expect(await stored()).toHaveLength(1);
    const task = (await node.claim(["predict"])) as ClaimedTask;
    const progress = { fence: task.fence, done: 5, total: 300, detail: {} };
    await node.api.ok("POST", `/node/tasks/${task.task_id}/progress`, progress);
    expect(await viewer.ok("GET", path)).toMatchObject({
      status: "running",
      frames_done: 5,
      frames_total: 300,
      frames: null,
    });
    const result = (await finding(1)(task, node)) as Record<string, unknown>;
    await node.finish(task, { outcome: "finished", result });
    expect(await viewer.ok("GET", path)).toMatchObject({ status: "completed" });
    expect(await stored()).toEqual([]);
  });

  it("says why one failed, also later", async () => {
    const asking = () => annotator.refused("POST", "/predict/video", clip());
    expect(await working(failing("internal", "no"), asking)).toEqual([502, "task_failed"]);
    const broken = failing("unsupported_media", "the video cannot be decoded");
    expect(await working(broken, asking)).toEqual([415, "unsupported_media"]);
    const later = await annotator.ok<{ prediction_id: string }>(
      "POST",
      "/predict/video?wait_seconds=0",
      clip(),
    );
    node.script = { predict: broken };
    await node.work();
    expect(await viewer.ok("GET", `/predict/video/${later.prediction_id}`)).toMatchObject({
      status: "failed",
      failure: "the video cannot be decoded",
      frames: null,
    });
    expect(await stored()).toEqual([]);
  });

  it.each<[string, string, () => FormData, [number, string]]>([
    // A body that is no form is the point.
    ["no form", "", () => new Uint8Array([1]) as never, [400, "bad_body"]],
    ["a model that is nobody's", `?model_id=${ABSENT}`, clip, [404, "not_found"]],
    ["an alias of none", "?alias=canary", clip, [409, "state_conflict"]],
    [
      "a file that is too large",
      "",
      () => form({ content: mp4(UPLOAD_MAX + 1) }),
      [413, "file_too_large"],
    ],
    ["an image", "", () => image(), [415, "unsupported_media"]],
    ["a rate of nothing", "?fps=0", clip, [422, "invalid_request"]],
    ["too many frames", "?frames_max=3001", clip, [422, "invalid_request"]],
  ])("answers %s with its status", async (_, query, body, expected) => {
    expect(await annotator.refused("POST", `/predict/video${query}`, body())).toEqual(expected);
    expect(await stored()).toEqual([]);
  });
});

describe("what a crash left behind", () => {
  it("goes after an hour, unless a task still needs it", async () => {
    const later = await annotator.send("POST", "/predict/video?wait_seconds=0", clip());
    const { prediction_id } = (await later.json()) as { prediction_id: string };
    const [needed] = await stored();
    const orphan = `ws/${workspaceId}/predictions/${crypto.randomUUID()}`;
    await world.media.put(orphan, "lost");
    const other = `ws/${workspaceId}/videos/kept`;
    await world.media.put(other, "kept");
    expect(await hourFrom(Date.now() - HOUR)).toBe(0);
    expect(await hourFrom(Date.now() + 2 * HOUR)).toBe(1);
    expect(await stored()).toEqual([needed]);
    expect(await world.media.get(other)).not.toBeNull();
    node.script = { predict: finding(1) };
    await node.work();
    expect(await stored()).toEqual([]);
    const path = `/predict/video/${prediction_id}`;
    expect((await viewer.send("GET", path)).status).toBe(200);
    await forgetRows(at(Date.now() + 2 * DAY), KEPT_PREDICTIONS);
    expect(await viewer.refused("GET", path)).toEqual([404, "not_found"]);
  });
});
