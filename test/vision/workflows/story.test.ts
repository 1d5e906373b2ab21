// The whole path of a workflow with nothing scripted: refused for a wrong port, fixed, deployed,
// served by a real GPU node for an image and for a drawn clip whose truth is known, its webhook
// received, and rolled back. The models are the tests' own small ones, on the CPU.

import { readFileSync } from "node:fs";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { beforeAll, expect, it } from "vitest";
import { RunAnswer, VideoRun } from "../../../edge/vision/workflows/runs/bodies.ts";
import { Workflow, type WorkflowMove } from "../../../shared/wire/workflows.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { rectangles, toolsOrSay } from "../../support/clips.ts";
import { startNode } from "../../support/gpu-node.ts";
import { form } from "../../support/media.ts";
import { type Receiver, startReceiver } from "../../support/receiver.ts";
import { registerModel } from "../../support/registered-model.ts";
import { distance, shownVideo } from "../../support/shown-video.ts";
import { createWorkflowWorld, type WorkflowWorld } from "../../support/workflow-world.ts";

const SIGNING = "a-signing-secret-of-thirty-signs";
const STORY_MS = 180_000;

const tools = toolsOrSay();
let w: WorkflowWorld;
let receiver: Receiver;
beforeAll(async () => {
  if (!tools) return;
  w = await createWorkflowWorld();
  receiver = await startReceiver(SIGNING);
});

/** Two red rectangles' places in one: what is red on the left, and what is green on the right. */
const drawn = () =>
  sharp({ create: { width: 160, height: 120, channels: 3, background: "#000" } })
    .composite([
      {
        input: { create: { width: 30, height: 20, channels: 3, background: "#f00" } },
        left: 10,
        top: 20,
      },
      {
        input: { create: { width: 20, height: 20, channels: 3, background: "#0f0" } },
        left: 100,
        top: 70,
      },
    ])
    .png()
    .toBuffer();

/** detect → crop → segment → count in a zone → condition → draw → webhook. */
const watching = (drawnObjects = "$steps.zone.inside"): WorkflowDefinition => ({
  version: "1.0",
  inputs: [
    { name: "image", kind: "image" },
    {
      name: "zone",
      kind: "zone",
      default: [
        [0, 0],
        [80, 0],
        [80, 120],
        [0, 120],
      ],
    },
  ],
  steps: [
    {
      id: "detect",
      type: "detector@1",
      parameters: { image: "$inputs.image", model: "active", confidence: 0 },
    },
    { id: "few", type: "sort@1", parameters: { detections: "$steps.detect.detections", limit: 2 } },
    {
      id: "crop",
      type: "crop@1",
      // The model has learned nothing: around its boxes each crop shows the whole image.
      parameters: { image: "$inputs.image", detections: "$steps.few.detections", padding: 160 },
    },
    {
      id: "segment",
      type: "segmenter@1",
      parameters: { image: "$steps.crop.crops", prompts: ["red", "green"] },
    },
    { id: "whole", type: "stitch@1", parameters: { detections: "$steps.segment.masks" } },
    {
      id: "zone",
      type: "zone_filter@1",
      parameters: { detections: "$steps.whole.detections", zone: "$inputs.zone" },
    },
    {
      id: "busy",
      type: "condition@1",
      parameters: { left: "$steps.zone.count", right: 1, operator: "greater_or_equal" },
    },
    {
      id: "draw",
      type: "draw_boxes@1",
      parameters: { image: "$inputs.image", detections: drawnObjects },
      when: "$steps.busy.result",
    },
    {
      id: "alert",
      type: "webhook@1",
      parameters: {
        payload: "$steps.zone.count",
        image: "$steps.draw.image",
        url: receiver.url,
        signing_secret: "receiver",
      },
      when: "$steps.busy.result",
    },
  ],
  outputs: [
    { name: "seen", value: "$steps.detect.count" },
    { name: "by_crop", value: "$steps.segment.count" },
    { name: "inside", value: "$steps.zone.count" },
    { name: "drawn", value: "$steps.draw.image" },
    { name: "sent", value: "$steps.alert.sent" },
  ],
});

/** Two lines, one walked over from the other side than the other. */
const lines: WorkflowDefinition = {
  version: "1.0",
  inputs: [{ name: "frame", kind: "image" }],
  steps: [
    {
      id: "find",
      type: "segmenter@1",
      parameters: { image: "$inputs.frame", prompts: ["red", "green"] },
    },
    { id: "track", type: "tracker@1", parameters: { detections: "$steps.find.masks" } },
    {
      id: "west",
      type: "line_counter@1",
      parameters: {
        tracks: "$steps.track.tracks",
        line: [
          [45, 0],
          [45, 120],
        ],
      },
    },
    {
      id: "east",
      type: "line_counter@1",
      parameters: {
        tracks: "$steps.track.tracks",
        line: [
          [55, 120],
          [55, 0],
        ],
      },
    },
    {
      id: "draw",
      type: "draw_boxes@1",
      parameters: {
        image: "$inputs.frame",
        detections: "$steps.track.tracks",
        colour: "#ffffff",
        thickness: 4,
      },
    },
  ],
  outputs: [
    { name: "drawn", value: "$steps.draw.image" },
    { name: "west_in", value: "$steps.west.count_in" },
    { name: "west_out", value: "$steps.west.count_out" },
    { name: "east_in", value: "$steps.east.count_in" },
    { name: "east_out", value: "$steps.east.count_out" },
  ],
};

const at = (slug: string, more = "") => `/workflows/saved/${slug}${more}`;
const deploy = async (slug: string) =>
  Workflow.parse(await w.engineer.ok("POST", at(slug, "/deploy")));

it.skipIf(!tools)(
  "is refused, fixed, deployed, served for an image and a clip, and rolled back",
  async () => {
    const { code } = await w.admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
    startNode({ VANTAGE_URL: w.world.urls.vision, VANTAGE_NODE_CODE: code });
    const model = await registerModel(w.world, w.workspaceId, { classes: ["disc", "plate"] });
    await w.world.visionDatabase.execute(
      sql`UPDATE model SET active = true WHERE id = ${model.model_id}::uuid`,
    );
    const secret = { value: SIGNING, workspace_id: w.workspaceId };
    await w.engineer.ok("PUT", "/workflows/secrets/receiver", secret);

    const body = { slug: "watch", name: "Watch", workspace_id: w.workspaceId };
    const wrong = { ...body, definition: watching("$steps.zone.count") };
    const refusal = await w.engineer.send("POST", "/workflows", wrong);
    expect([refusal.status, await refusal.json()]).toEqual([
      422,
      expect.objectContaining({
        code: "invalid_workflow",
        problems: [
          expect.objectContaining({ code: "wrong_kind", step: "draw", port: "detections" }),
        ],
      }),
    ]);
    await w.engineer.ok("POST", "/workflows", { ...body, definition: watching() });
    await deploy("watch");

    const offered = async () => {
      const { rows } = await w.world.visionDatabase.execute<{ count: number }>(sql`
        SELECT count(*)::int AS count FROM node
         WHERE capabilities->'kinds' ? 'workflow' AND capabilities->'line' = 'true'`);
      return rows[0]?.count;
    };
    await expect.poll(offered).toBe(1);

    const content = new Uint8Array(await drawn());
    const serve = async (query = "") =>
      RunAnswer.parse(
        await w.engineer.ok(
          "POST",
          `/workflows/serve/watch${query}`,
          form({ field: "image", content }),
        ),
      );
    const looked = RunAnswer.parse(
      await w.engineer.ok("POST", "/workflows/run/image", form({ content })),
    );
    expect(looked.outputs.predictions).toMatchObject({ frame: { width: 160, height: 120 } });
    const seen = Buffer.from(String(looked.outputs.image).split(",")[1] ?? "", "base64");
    expect(await sharp(seen).metadata()).toMatchObject({ width: 160, height: 120 });

    const answer = await serve();
    // One is red and in the zone, one is green and outside of it; each of two crops shows both,
    // which are one object each again once they are stitched.
    expect(answer.outputs).toMatchObject({ by_crop: [2, 2], inside: 1, sent: true });
    expect(answer).toMatchObject({ version: 1, served_by: expect.stringMatching(/^node\/./) });
    expect(answer.steps.find(({ step }) => step === "detect")?.models).toMatchObject([
      { asked: "active", model_id: model.model_id, version: 1 },
    ]);
    const segment = answer.steps.find(({ step }) => step === "segment");
    expect(segment).toMatchObject({ elements: 2, models: [{ asked: "default" }] });
    const jpeg = Buffer.from(String(answer.outputs.drawn).split(",")[1] ?? "", "base64");
    expect(await sharp(jpeg).metadata()).toMatchObject({ width: 160, height: 120 });
    expect(answer.effects).toMatchObject([{ step: "alert", status: "queued" }]);
    await expect.poll(() => receiver.arrivals.length).toBe(1);
    expect(receiver.arrivals[0]).toMatchObject({
      verified: true,
      body: { payload: 1, image: expect.stringMatching(/^data:image\/jpeg;base64,/) },
    });

    const quiet = watching();
    const busy = quiet.steps.find(({ id }) => id === "busy");
    if (busy) busy.parameters = { ...busy.parameters, right: 2 };
    await w.engineer.ok("PUT", at("watch"), { definition: quiet });
    expect((await serve("?dry_run=true")).version).toBe(1);
    await deploy("watch");
    const second = await serve();
    expect(second).toMatchObject({ version: 2, effects: [] });
    expect(second.outputs).toMatchObject({ inside: 1, drawn: null, sent: null });
    const { move } = await w.engineer.ok<{ move: WorkflowMove }>("POST", at("watch", "/rollback"));
    expect(move).toMatchObject({ kind: "rollback", before: 2, after: 1 });
    const back = await serve("?dry_run=true");
    expect(back).toMatchObject({ version: 1, effects: [{ step: "alert", status: "dry_run" }] });
    expect(receiver.arrivals).toHaveLength(1);

    const counting = { slug: "lines", name: "Lines", workspace_id: w.workspaceId };
    await w.engineer.ok("POST", "/workflows", { ...counting, definition: lines });
    await deploy("lines");
    const clip = new Uint8Array(readFileSync(rectangles(4)));
    const path =
      "/workflows/serve/lines/video?wait_seconds=90&frames_max=100&annotated_output=drawn";
    const video = VideoRun.parse(await w.engineer.ok("POST", path, form({ content: clip })));
    expect(video).toMatchObject({ slug: "lines", version: 1, status: "completed", effects: [] });
    // The red one, 30 pixels wide, moves right by 2 pixels a frame from x = 10 on; the green one
    // stands. It is past x = 45 from frame 18 on, and past x = 55 from frame 23 on.
    expect(video.frames).toHaveLength(40);
    const counts = (index: number) => video.frames?.[index]?.outputs;
    expect(counts(15)).toEqual({ drawn: null, west_in: 0, west_out: 0, east_in: 0, east_out: 0 });
    expect(counts(20)).toMatchObject({ west_in: 1, east_out: 0 });
    expect(counts(39)).toMatchObject({ west_in: 1, west_out: 0, east_in: 0, east_out: 1 });
    // Its boxes are drawn where the red one is, on every frame that its tracker has it.
    const { annotated_video_url: url = null, ...ended } = video;
    const file = new Uint8Array(await (await fetch(url ?? "")).arrayBuffer());
    const [made, before] = [shownVideo(file), shownVideo(clip)];
    expect(made).toMatchObject({ width: 160, height: 120 });
    expect(made.times).toEqual(video.frames?.map(({ time }) => time));
    for (const index of [10, 25, 39]) {
      const [x, y] = [10 + 2 * index, 30];
      expect(distance(made.at(index, x, y), [255, 255, 255])).toBeLessThan(90);
      expect(distance(before.at(index, x, y), [255, 255, 255])).toBeGreaterThan(150);
      expect(distance(made.at(index, 150, 10), before.at(index, 150, 10))).toBeLessThan(20);
    }
    const read = VideoRun.parse(await w.viewer.ok("GET", `/workflows/runs/${video.run_id}`));
    // Each look gives an address of its own.
    expect(read).toEqual({ ...ended, annotated_video_url: expect.stringContaining(".mp4") });
    const left = await w.world.media.list({ prefix: `ws/${w.workspaceId}/predictions/` });
    expect(left.objects.map(({ size }) => size)).toEqual([file.length]);
  },
  STORY_MS,
);
