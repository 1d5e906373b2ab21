// A segmenter asked about uploaded files by the queue, with a node that claims tasks as the test
// says: images that no line takes, and clips. Goal: the same answers as by the line, a clip's under
// its id for a day, and no file of a request stays.

import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Parts } from "../../../../edge/vision/base/parts.ts";
import {
  deleteUnusedFiles,
  KEPT_PREDICTIONS,
} from "../../../../edge/vision/serving/predict/predictions.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import type { SamFinding } from "../../../../shared/tasks/sam.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { DAY, HOUR, MINUTE, systemClock } from "../../../../shared/time.ts";
import { SamPrediction, SamVideoPrediction } from "../../../../shared/wire/serving.ts";
import { form, mp4, png } from "../../../support/media.ts";
import { forgetRows } from "../../../support/retention.ts";
import {
  codeOf,
  createSamWorld,
  finding,
  HEIGHT,
  image,
  json,
  MIB,
  type Part,
  PERSON,
  requestsOf,
  resultOf,
  type SamWorld,
  SEGMENTING,
  WIDTH,
  WORKSPACE_MAX,
} from "../../../support/sam-world.ts";
import { type Script, type ScriptedNode, scriptedNode } from "../../../support/scripted-node.ts";

const ABSENT = "00000000-0000-4000-8000-000000000000";

let w: SamWorld;
beforeAll(async () => {
  w = await createSamWorld();
});
afterEach(async () => {
  expect(await w.stored()).toEqual([]);
});

describe("the queue", () => {
  beforeEach(() => w.alone());

  let node: ScriptedNode;
  let payloads: TaskPayload<"sam">[];

  /** Sends a request while a node that claims tasks works as the script says. */
  async function working<Result>(script: Script, run: () => Promise<Result>): Promise<Result> {
    payloads = [];
    node = await scriptedNode(w.world, w.admin, script, SEGMENTING);
    const stop = node.start();
    try {
      return await run();
    } finally {
      await stop();
    }
  }
  const finding_ =
    (...findings: SamFinding[]): NonNullable<Script["sam"]> =>
    (task) => {
      payloads.push(TASK_KINDS.sam.payload.parse(task.payload));
      return { ...resultOf(findings) };
    };

  it("takes what no line can: no line, a line that went, and a large image", async () => {
    await working({ sam: finding_(finding()) }, async () => {
      const queued = async (...parts: Part[]) => {
        const response = await w.ask(...parts);
        const { objects } = SamPrediction.parse(await response.json());
        return [response.status, response.headers.get("X-Served-By"), objects.length];
      };
      expect(await queued(image(), PERSON)).toEqual([200, null, 1]);
      const end = await w.opened();
      expect(await queued(image(9 * MIB), PERSON)).toEqual([200, null, 1]);
      const crops = Array.from({ length: 10 }, () => ({ ...image(700_000), field: "crop" }));
      expect(await queued(image(8 * MIB - 1), ...crops)).toEqual([200, null, 1]);
      expect(requestsOf(end)).toBe(0);
      end.socket.terminate();
      expect(await queued(image(), PERSON)).toEqual([200, null, 1]);
    });
    expect(payloads.map(({ frames_max, fps, video }) => [frames_max, fps, video.bytes])).toEqual([
      [1, null, png().length],
      [1, null, 9 * MIB],
      [1, null, 8 * MIB - 1],
      [1, null, png().length],
    ]);
  });

  it("refuses a result as the line does, and tells a node's words", async () => {
    const asked = async (sam: NonNullable<Script["sam"]>) =>
      (await codeOf(await working({ sam }, () => w.ask(image(), PERSON)))).slice(0, 2);
    expect(await asked(finding_(finding({ prompt: 3 })))).toEqual([502, "task_failed"]);
    const failing = (code: string) => () => ({
      outcome: "failed" as const,
      code,
      detail: "so it is",
      retryable: false,
    });
    expect(await asked(failing("unsupported_media"))).toEqual([415, "unsupported_media"]);
    expect(await asked(failing("prompt_unknown"))).toEqual([422, "prompt_unknown"]);
    expect(await asked(failing("internal"))).toEqual([502, "task_failed"]);
  });

  const clip = (...parts: Part[]) => form(...parts, { content: mp4() });
  const frames = [0, 1, 2].map((index) => ({
    frame_index: index,
    time: index / 2,
    findings: index === 1 ? [] : [finding()],
  }));
  const onClip: NonNullable<Script["sam_video"]> = (task) => {
    const payload = TASK_KINDS.sam_video.payload.parse(task.payload);
    payloads.push(payload);
    const left_out = { frames: payload.uncut ? 0 : 4, objects: 5, masks: 6 };
    return resultOf([], { frames, left_out });
  };

  it("looks at the frames of a clip, and keeps what was found under its id", async () => {
    const query = "?fps=2&frames_max=3";
    const said = await working({ sam_video: onClip }, () =>
      w.annotator.ok("POST", `/predict/sam/video${query}`, clip(PERSON, ["mask", "rle"])),
    );
    const predicted = SamVideoPrediction.parse(said);
    expect(predicted).toMatchObject({
      status: "completed",
      failure: null,
      frames_done: 3,
      frames_total: 3,
      width: WIDTH,
      height: HEIGHT,
      segmenter: "scripted",
      left_out: { frames: 4, objects: 5, masks: 6 },
    });
    expect(predicted.frames?.map(({ time, objects }) => [time, objects.length])).toEqual([
      [0, 1],
      [0.5, 0],
      [1, 1],
    ]);
    const [object] = predicted.frames?.[0]?.objects ?? [];
    expect(object).toMatchObject({ class: "person", prompt: { kind: "text", index: 0 } });
    expect(payloads).toMatchObject([{ fps: 2, frames_max: 3, threshold: 0.5, mask: "rle" }]);
    const path = `/predict/sam/video/${predicted.prediction_id}`;
    expect(await w.viewer.ok("GET", path)).toEqual(predicted);
    // It is none of a model.
    const other = `/predict/video/${predicted.prediction_id}`;
    expect(await w.viewer.refused("GET", other)).toEqual([404, "not_found"]);
    expect(await w.viewer.refused("GET", `/predict/sam/video/${ABSENT}`)).toEqual([
      404,
      "not_found",
    ]);
  });

  it("answers a long one with 202 and its id, and says how far it is", async () => {
    node = await scriptedNode(w.world, w.admin, {}, SEGMENTING);
    const path = "/predict/sam/video?wait_seconds=0";
    const response = await w.annotator.send("POST", path, clip(PERSON));
    expect(response.status).toBe(202);
    const { prediction_id, ...rest } = SamVideoPrediction.parse(await response.json());
    const own = `/predict/sam/video/${prediction_id}`;
    expect(response.headers.get("Location")).toBe(`/api/v1${own}`);
    expect(rest).toMatchObject({ status: "queued", frames: null, left_out: null, warnings: [] });
    const task = (await node.claim(["sam_video"])) as ClaimedTask;
    const progress = { fence: task.fence, done: 5, total: 30, detail: {} };
    await node.api.ok("POST", `/node/tasks/${task.task_id}/progress`, progress);
    expect(await w.viewer.ok("GET", own)).toMatchObject({ status: "running", frames_done: 5 });
    payloads = [];
    const result = (await onClip(task, node)) as Record<string, unknown>;
    expect(payloads).toMatchObject([{ frames_max: 600, fps: null, uncut: true }]);
    await node.finish(task, { outcome: "finished", result });
    expect(await w.viewer.ok("GET", own)).toMatchObject({ status: "completed" });
  });

  it("keeps the file of a clip that waits, and forgets a result after a day", async () => {
    node = await scriptedNode(w.world, w.admin, { sam_video: onClip }, SEGMENTING);
    const path = "/predict/sam/video?wait_seconds=0";
    const { prediction_id } = await w.annotator.ok<{ prediction_id: string }>(
      ...(["POST", path] as const),
      clip(PERSON),
    );
    const [needed] = await w.stored();
    const at = (clock: number) =>
      ({
        database: w.world.visionDatabase,
        bucket: w.world.media,
        clock: () => clock,
        // The duty uses no other part.
      }) as unknown as Parts;
    const later = systemClock() + 2 * HOUR;
    for (let minute = 0; minute < 60; minute++) {
      await deleteUnusedFiles(at(later + minute * MINUTE));
    }
    expect(await w.stored()).toEqual([needed]);
    payloads = [];
    await node.work();
    const own = `/predict/sam/video/${prediction_id}`;
    expect(await w.viewer.ok("GET", own)).toMatchObject({ status: "completed" });
    await forgetRows(at(later + 2 * DAY), KEPT_PREDICTIONS);
    expect(await w.viewer.refused("GET", own)).toEqual([404, "not_found"]);
  });

  it("says why a clip failed, at once and later", async () => {
    const failing = (code: string) => () => ({
      outcome: "failed" as const,
      code,
      detail: "the clip cannot be decoded",
      retryable: false,
    });
    const post = (path = "/predict/sam/video") => w.annotator.send("POST", path, clip(PERSON));
    const asked = async (code: string) =>
      (await codeOf(await working({ sam_video: failing(code) }, post))).slice(0, 2);
    expect(await asked("internal")).toEqual([502, "task_failed"]);
    expect(await asked("unsupported_media")).toEqual([415, "unsupported_media"]);
    expect(await asked("too_many_frames")).toEqual([413, "too_many_frames"]);
    const cutting: NonNullable<Script["sam_video"]> = () =>
      resultOf([], { frames, left_out: { frames: 1, objects: 0, masks: 0 } });
    const cut = await working({ sam_video: cutting }, post);
    expect((await codeOf(cut)).slice(0, 2)).toEqual([502, "task_failed"]);
    const later = await post("/predict/sam/video?wait_seconds=0");
    const { prediction_id } = SamVideoPrediction.parse(await later.json());
    node.script = { sam_video: failing("unsupported_media") };
    await node.work();
    expect(await w.viewer.ok("GET", `/predict/sam/video/${prediction_id}`)).toMatchObject({
      status: "failed",
      failure: "the clip cannot be decoded",
      frames: null,
    });
  });

  it.each<[string, Part[], number, string, RegExp]>([
    ["clicks", [json("points", { x: 1, y: 1, label: 1 })], 422, "invalid_request", /of one image/],
    ["a box", [json("bbox", [1, 1, 2, 2])], 422, "invalid_request", /of one image/],
    ["nothing to look for", [], 422, "invalid_request", /required/],
    ["an unknown word", [["prompts", "persn"]], 422, "prompt_unknown", /person/],
  ])("answers a clip with %s with its status", async (_, parts, status, code, detail) => {
    node = await scriptedNode(w.world, w.admin, {}, SEGMENTING);
    const response = await w.annotator.send("POST", "/predict/sam/video", clip(...parts));
    expect(await codeOf(response)).toEqual([status, code, expect.stringMatching(detail)]);
  });

  it("answers a clip that is none, no form, a full workspace and no node", async () => {
    const post = async (body: unknown, query = "") =>
      (await w.annotator.refused("POST", `/predict/sam/video${query}`, body)) as unknown[];
    expect(await post(clip(PERSON))).toEqual([503, "no_node"]);
    node = await scriptedNode(w.world, w.admin, {}, SEGMENTING);
    expect(await post(form(image(), PERSON))).toEqual([415, "unsupported_media"]);
    expect(await post(new Uint8Array([1]))).toEqual([400, "bad_body"]);
    const full = form({ content: mp4(WORKSPACE_MAX + 1) }, PERSON);
    expect(await post(full)).toEqual([413, "quota_exceeded"]);
    expect(await post(clip(PERSON), "?frames_max=601")).toEqual([422, "invalid_request"]);
  });
});
