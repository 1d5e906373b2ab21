// Comparisons over HTTP, made by nodes that answer as scripted over the real protocol. Goal: what
// is stored is what is run, every refusal says why, and results are read by pages.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  type Comparison,
  ComparisonResult,
} from "../../../edge/vision/experiments/comparisons/records.ts";
import {
  type ComparisonWorld,
  createComparisonWorld,
  NOBODYS,
  payloadOf,
  RUN,
} from "../../support/comparison-world.ts";
import { form, mp4, png, text } from "../../support/media.ts";
import { comparedBy, comparedFrame, comparisonOutcome } from "../../support/model-comparisons.ts";

let w: ComparisonWorld;

beforeAll(async () => {
  w = await createComparisonWorld();
});
beforeEach(() => {
  w.node.script = { comparison: comparedBy };
});

describe("a configuration", () => {
  it("is stored with its defaults, listed newest first and by pages", async () => {
    const first = await w.made();
    expect(first).toMatchObject({
      workspace_id: w.workspaceId,
      name: "old and new",
      settings: {
        model_a: { model_id: w.a.model_id, alias: null, export_id: null, confidence: 0.25 },
        model_b: { model_id: w.b.model_id, alias: null, export_id: null, confidence: 0.4 },
        image_size: null,
        iou: 0.5,
        classes: { a: {}, b: {}, truth: {} },
      },
    });
    const classes = { b: { car: "person", person: null } };
    const second = await w.made({ name: " named ", image_size: 320, iou: 0.7, classes });
    expect(second.name).toBe("named");
    expect(second.settings.classes).toEqual({ a: {}, truth: {}, ...classes });
    const list = (query = "") => w.viewer.ok<Comparison[]>("GET", `/comparisons${query}`);
    expect((await list()).slice(0, 2)).toEqual([second, first]);
    expect(await list("?limit=1&offset=1")).toEqual([first]);
    expect(await list(`?workspace_id=${w.workspaceId}&limit=1`)).toEqual([second]);
    const elsewhere = `/comparisons?workspace_id=${NOBODYS}`;
    expect(await w.viewer.refused("GET", elsewhere)).toEqual([404, "not_found"]);
  });

  it("is for engineers to make and delete", async () => {
    const { comparison_id } = await w.made();
    const body = { name: "mine", ...w.configurationOf() };
    for (const person of [w.viewer, w.annotator]) {
      expect(await person.refused("POST", "/comparisons", body)).toEqual([403, "forbidden"]);
      const path = `/comparisons/${comparison_id}`;
      expect(await person.refused("DELETE", path)).toEqual([403, "forbidden"]);
    }
  });

  it.each<[string, object, RegExp]>([
    ["no name", { name: undefined }, /^name/],
    ["a name of blanks", { name: "  " }, /^name/],
    ["no model", { model_a: {} }, /^model_a: give either/],
    ["two names of a model", { model_b: { model_id: NOBODYS, alias: "active" } }, /^model_b: give/],
    [
      "an export of an alias",
      { model_a: { alias: "active", export_id: NOBODYS } },
      /^model_a: exp/,
    ],
    ["a confidence above 1", { model_a: { model_id: NOBODYS, confidence: 2 } }, /^model_a.conf/],
    ["a side that is no multiple of 32", { image_size: 100 }, /^image_size/],
    ["an overlap of nothing", { iou: 0 }, /^iou/],
    ["a class without a name", { classes: { a: { "": "x" } } }, /^classes.a/],
    ["a class by a number", { classes: { a: { car: 3 } } }, /^classes.a/],
    ["a name that it does not know", { models: [] }, /models/],
  ])("is refused with %s", async (_, more, detail) => {
    const body = { name: "x", ...w.configurationOf(), ...more };
    const response = await w.engineer.send("POST", "/comparisons", body);
    expect([response.status, await response.json()]).toEqual([
      422,
      expect.objectContaining({
        code: "invalid_request",
        detail: expect.stringMatching(detail),
      }),
    ]);
  });

  it("is of models and exports that are there", async () => {
    const post = (more: object) =>
      w.engineer.refused("POST", "/comparisons", { name: "x", ...w.configurationOf(), ...more });
    expect(await post({ model_a: { model_id: NOBODYS } })).toEqual([404, "not_found"]);
    expect(await post({ model_a: { alias: "canary" } })).toEqual([409, "state_conflict"]);
    const missing = { model_id: w.a.model_id, export_id: NOBODYS };
    expect(await post({ model_a: missing })).toEqual([404, "not_found"]);
  });

  it("runs an export that is there, end to end and one image at a time", async () => {
    const exported = async (output: string, batch: number | null, state = "completed") => {
      const id = crypto.randomUUID();
      const key = `ws/${w.workspaceId}/model-exports/${w.a.model_id}/${id}/model.onnx`;
      const there = state === "completed";
      await w.world.visionDatabase.execute(sql`
        INSERT INTO model_export (id, workspace_id, model_id, fingerprint, format, artifact,
          precision, output, height, width, batch, bytes_expected, state, storage_key, bytes, sha256)
        VALUES (${id}::uuid, ${w.workspaceId}::uuid, ${w.a.model_id}::uuid, ${id}, 'onnx', 'file',
          'fp32', ${output}, 64, 96, ${batch}::int, 1, ${state}, ${there ? key : null}, 7, 'ab')`);
      return { model_id: w.a.model_id, export_id: id };
    };
    const refusal = async (model_a: object, more: object = {}) => {
      const body = { name: "x", ...w.configurationOf({ model_a }), ...more };
      return w.engineer.refused("POST", "/comparisons", body);
    };
    expect(await refusal(await exported("raw", 1))).toEqual([422, "invalid_request"]);
    expect(await refusal(await exported("end_to_end", 4))).toEqual([422, "invalid_request"]);
    expect(await refusal(await exported("end_to_end", 1, "queued"))).toEqual([
      409,
      "state_conflict",
    ]);
    const model_a = await exported("end_to_end", null);
    expect(await refusal(model_a, { image_size: 320 })).toEqual([422, "invalid_request"]);
    const configuration = w.configurationOf({ model_a });
    const { session_id, model_a: told } = await w.begun({ configuration, video_id: w.videoId });
    expect(told).toMatchObject({ export_id: model_a.export_id, image_size: [64, 96] });
    const { models } = payloadOf(await w.claimed());
    expect(models[0]).toMatchObject({ size: [64, 96], file_sha256: "ab", file: { bytes: 7 } });
    expect(models[1]).toMatchObject({ size: [160, 160], file: null, file_sha256: null });
    expect((await w.resultOf(session_id)).status).toBe(202);
  });
});

describe("a run", () => {
  it("answers an image at once, with both models' objects and an overlay", async () => {
    const { comparison_id } = await w.made();
    const content = png(300, 200);
    const sent: Uint8Array[] = [];
    w.node.script.comparison = async (task, by) => {
      const { video } = payloadOf(task);
      sent.push(new Uint8Array(await (await fetch(video?.url ?? "")).arrayBuffer()));
      return comparedBy(task, by);
    };
    const body = form(["comparison_id", comparison_id], { content, filename: "a.png" });
    const response = await w.working(() => w.annotator.send("POST", RUN, body));
    const result = ComparisonResult.parse(await response.json());
    expect(response.status).toBe(200);
    expect(sent).toEqual([content]);
    const { overlays: _, report: __, ...summary } = comparisonOutcome([comparedFrame(0)], 1);
    expect(result).toMatchObject({
      comparison_id,
      workspace_id: w.workspaceId,
      status: "completed",
      failure: null,
      progress: null,
      model_a: {
        model_id: w.a.model_id,
        name: "a",
        version: 1,
        export_id: null,
        confidence: 0.25,
        image_size: [96, 96],
      },
      model_b: { model_id: w.b.model_id, confidence: 0.4, image_size: [160, 160] },
      input: { kind: "image", filename: "a.png", video_id: null, job_id: null, export_id: null },
      summary,
      total: 1,
    });
    const [frame] = result.frames ?? [];
    const { overlay_url, ...rest } = frame ?? { overlay_url: null };
    expect(rest).toEqual(comparedFrame(0));
    const overlay = await fetch(overlay_url ?? "");
    expect([overlay.status, overlay.headers.get("Content-Type")]).toEqual([200, "image/jpeg"]);
    expect(await w.keysIn("predictions")).toEqual([]);
    expect((await w.resultOf(result.session_id)).result).toMatchObject({ summary });
  });

  it("goes on after the wait, tells how far it is, and is read by pages", async () => {
    const { comparison_id } = await w.made({ image_size: 320, iou: 0.6 });
    const asked = { comparison_id, video_id: w.videoId, fps: 2, frames_max: 60, overlays: 2 };
    const { session_id, status, summary, frames } = await w.begun(asked);
    expect([status, summary, frames]).toEqual(["queued", null, null]);
    const task = await w.claimed();
    const payload = payloadOf(task);
    expect(payload).toMatchObject({
      session_id,
      iou: 0.6,
      video_id: w.videoId,
      filename: "crossing.mp4",
      fps: 2,
      frames_max: 60,
      split: "all",
      dataset: null,
    });
    expect(payload.models.map(({ size, confidence }) => [size, confidence])).toEqual([
      [[320, 320], 0.25],
      [[320, 320], 0.4],
    ]);
    expect(payload.models.map(({ model }) => model.image_size)).toEqual([320, 320]);
    const report = { fence: task.fence, done: 3, total: 50 };
    await w.node.api.ok("POST", `/node/tasks/${task.task_id}/progress`, report);
    expect(await w.resultOf(session_id)).toMatchObject({
      status: 202,
      result: { status: "running", progress: { done: 3, total: 50 }, ended_at: null },
    });
    const all = Array.from({ length: 50 }, (_, at) => comparedFrame(at, 10 - Math.floor(at / 5)));
    expect(await w.finished(task, await comparedBy(task, w.node, all))).toMatchObject({
      status: "finished",
    });
    const { status: done, result } = await w.resultOf(session_id);
    expect([done, result.total, result.frames?.length]).toEqual([200, 50, 20]);
    const urls = result.frames?.map(({ overlay_url }) => overlay_url !== null);
    expect(urls?.filter(Boolean)).toHaveLength(2);
    const indexes = async (query: string) =>
      (await w.resultOf(session_id, query)).result.frames?.map((frame) => frame.frame_index);
    expect(await indexes("?offset=18&limit=4")).toEqual([18, 19, 20, 21]);
    expect(await indexes("?offset=39&limit=100")).toEqual([
      39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49,
    ]);
    expect(await indexes("?offset=40&limit=1")).toEqual([40]);
    expect(await indexes("?offset=50")).toEqual([]);
    const path = `/comparisons/result/${session_id}`;
    expect(await w.viewer.refused("GET", `${path}?limit=101`)).toEqual([422, "invalid_request"]);
  });

  it("takes a video of a form, and forgets its file whatever becomes of it", async () => {
    const configuration = JSON.stringify(w.configurationOf());
    const sent = () =>
      form(["configuration", configuration], { content: mp4(), filename: "c.mp4" }, ["fps", "2.5"]);
    const path = `${RUN}?wait_seconds=0`;
    const first = await w.annotator.ok<ComparisonResult>("POST", path, sent());
    expect(first).toMatchObject({
      comparison_id: null,
      input: { kind: "video", filename: "c.mp4" },
    });
    expect(await w.keysIn("predictions")).toHaveLength(1);
    const task = await w.claimed();
    expect(payloadOf(task)).toMatchObject({ fps: 2.5, video_id: null, filename: "c.mp4" });
    const failed = { code: "unsupported_media", detail: "c.mp4: it has no frames" };
    await w.node.finish(task, { outcome: "failed", ...failed, retryable: false });
    expect(await w.keysIn("predictions")).toEqual([]);
    const { status, result } = await w.resultOf(first.session_id);
    expect([status, result.status, result.failure]).toEqual([200, "failed", failed.detail]);
    expect(result.frames).toBeNull();
    // Who waits is told so at once, in the node's words.
    w.node.script.comparison = () => ({ outcome: "failed", ...failed, retryable: false });
    const refused = await w.working(() => w.annotator.send("POST", RUN, sent()));
    expect([refused.status, (await refused.json()) as object]).toEqual([
      415,
      expect.objectContaining({ code: "unsupported_media", detail: failed.detail }),
    ]);
    expect(await w.keysIn("predictions")).toEqual([]);
  });

  it.each<[string, () => FormData | object, number, RegExp]>([
    ["nothing to look at", () => ({ comparison_id: NOBODYS }), 422, /none is there/],
    ["two things", () => ({ video_id: NOBODYS, job_id: NOBODYS }), 422, /video_id and job_id are/],
    ["no way to compare", () => ({ video_id: NOBODYS }), 422, /^comparison_id: give either/],
    [
      "two ways to compare",
      () => ({ comparison_id: NOBODYS, configuration: w.configurationOf(), video_id: NOBODYS }),
      422,
      /^comparison_id: give either/,
    ],
    [
      "a side of no dataset",
      () => ({ configuration: w.configurationOf(), video_id: NOBODYS, split: "val" }),
      422,
      /^split/,
    ],
    [
      "a rate of a job",
      () => ({ configuration: w.configurationOf(), job_id: NOBODYS, fps: 2 }),
      422,
      /^fps/,
    ],
    [
      "nobody's comparison",
      () => ({ comparison_id: NOBODYS, video_id: NOBODYS }),
      404,
      /no such c/,
    ],
    [
      "nobody's video",
      () => ({ configuration: w.configurationOf(), video_id: NOBODYS }),
      404,
      /no such video/,
    ],
    [
      "nobody's job",
      () => ({ configuration: w.configurationOf(), job_id: NOBODYS }),
      404,
      /no such job/,
    ],
    [
      "nobody's dataset",
      () => ({ configuration: w.configurationOf(), export_id: NOBODYS }),
      404,
      /no such export/,
    ],
    [
      "no frames",
      () => ({ configuration: w.configurationOf(), video_id: NOBODYS, frames_max: 0 }),
      422,
      /^frames_max/,
    ],
    ["a file before whose it is", () => form({ content: png() }), 422, /^comparison_id: give/],
    [
      "whose it is twice",
      () => form(["comparison_id", NOBODYS], ["comparison_id", NOBODYS]),
      422,
      /twice/,
    ],
    [
      "a field that it does not know",
      () => form(["comparision", NOBODYS], { content: png() }),
      422,
      /did you mean comparison_id/,
    ],
    [
      "a configuration that is none",
      () => form(["configuration", "{"], { content: png() }),
      422,
      /^configuration/,
    ],
    [
      "a file that is neither",
      () => form(["configuration", JSON.stringify(w.configurationOf())], { content: text() }),
      415,
      /JPEG/,
    ],
    [
      "two files",
      () =>
        form(
          ["configuration", JSON.stringify(w.configurationOf())],
          { content: png() },
          { content: png() },
        ),
      422,
      /only one/,
    ],
    [
      "a file and a video",
      () =>
        form(["configuration", JSON.stringify(w.configurationOf())], { content: png() }, [
          "video_id",
          NOBODYS,
        ]),
      422,
      /file and video_id/,
    ],
    [
      "a file that is too large",
      () => form(["configuration", JSON.stringify(w.configurationOf())], { content: mp4(41_000) }),
      413,
      /larger/,
    ],
    [
      "an image of too many pixels",
      () =>
        form(["configuration", JSON.stringify(w.configurationOf())], {
          content: png(20_000, 9_000),
        }),
      413,
      /pixels/,
    ],
  ])("is refused with %s, and leaves nothing", async (_, body, status, detail) => {
    const response = await w.annotator.send("POST", RUN, body());
    const reply = (await response.json()) as { detail: string };
    expect([response.status, reply.detail]).toEqual([status, expect.stringMatching(detail)]);
    expect(await w.keysIn("predictions")).toEqual([]);
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT id FROM comparison_session WHERE input->>'video_id' = ${NOBODYS}`);
    expect(rows).toEqual([]);
  });

  it("is for annotators, of their own workspace", async () => {
    const { comparison_id } = await w.made();
    const body = { comparison_id, video_id: w.videoId };
    expect(await w.viewer.refused("POST", RUN, body)).toEqual([403, "forbidden"]);
    const other = { ...body, workspace_id: NOBODYS };
    expect(await w.annotator.refused("POST", RUN, other)).toEqual([404, "not_found"]);
  });
});
