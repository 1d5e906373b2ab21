// A clip with its boxes drawn, as a node makes it. Goal: every frame that was looked at is there at
// its true time, its boxes are where they were found in their class's colour, and what is found is
// the same with the drawing and without.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openFootage, secondsOf } from "../../../gpu-node/media/footage.ts";
import { COLOURS } from "../../../gpu-node/media/overlay.ts";
import { annotate } from "../../../gpu-node/tasks/annotate.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import type { TaskResult } from "../../../shared/tasks/tasks.ts";
import { clip, TOOLS, toolsOrSay, variableRate } from "../../support/clips.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { distance, shownVideo } from "../../support/shown-video.ts";
import { generatedModel } from "../../support/weights.ts";

const found = toolsOrSay();
let service: NodeService;
let context: RunnerContext;
let dir: string;
beforeEachTask("annotated", (own) => {
  ({ service, context, dir } = own);
});

const stored = (path: string) => service.source(crypto.randomUUID(), readFileSync(path));

/** A grey clip, large enough for lines of some pixels. */
const grey = () =>
  clip(
    "grey.mp4",
    ...["-f", "lavfi", "-i", "color=c=gray:s=1200x800:r=10:d=0.5"],
    ...["-c:v", "libx264", "-pix_fmt", "yuv420p"],
  );

/** A stored video as a player shows it. */
const decodedOf = (key: string) => shownVideo(service.objects.get(key) as Buffer);

const rgbOf = (colour = "") =>
  [1, 3, 5].map((from) => Number.parseInt(colour.slice(from, from + 2), 16));

describe.skipIf(!found)("an annotated video", () => {
  it("has the boxes of each frame on their pixels, and nothing on a frame without", async () => {
    const footage = await openFootage(context, stored(grey()));
    const classes = ["disc", "star"];
    const boxes = [
      { class: "disc", confidence: 0.9, bbox: [200, 150, 500, 450] as const },
      { class: "star", confidence: 0.5, bbox: [700, 300, 1_000, 700] as const },
    ];
    const frames = [0, 1, 2, 3, 4].map((index) => ({
      frame_index: index,
      time: secondsOf(footage, index),
      predictions: boxes.slice(0, index % 3).map(({ bbox, ...one }) => ({
        ...one,
        bbox: [...bbox] as [number, number, number, number],
      })),
    }));
    const target = service.target("made/annotated.mp4", "video/mp4");
    const made = await annotate({ footage, frames, classes, target }, context);
    await footage.close();
    expect(service.objects.get(made.key)?.length).toBe(made.bytes);
    const video = decodedOf(made.key);
    expect(video.times).toEqual([0, 0.1, 0.2, 0.3, 0.4]);
    for (const { frame_index: index } of frames) {
      for (const [at, { bbox }] of boxes.entries()) {
        const isDrawn = at < index % 3;
        const [x1, y1, x2, y2] = bbox;
        const [middleX, middleY] = [(x1 + x2) / 2, (y1 + y2) / 2];
        const edges = [
          ...[video.at(index, x1, middleY), video.at(index, x2, middleY)],
          ...[video.at(index, middleX, y2), video.at(index, middleX, y1)],
        ];
        const wanted = isDrawn ? rgbOf(COLOURS[at]) : [128, 128, 128];
        for (const edge of edges) expect(distance(edge, wanted)).toBeLessThan(isDrawn ? 70 : 12);
        expect(distance(video.at(index, middleX, middleY), [128, 128, 128])).toBeLessThan(12);
        // Its name stands above it on its colour.
        const tag = video.at(index, x1 + 3, y1 - 10);
        expect(distance(tag, wanted)).toBeLessThan(40);
      }
    }
  });

  it("of a clip of uneven frames has each at its true time, and costs no detection", async () => {
    const model = await generatedModel((key, bytes) => service.source(key, bytes));
    const video = stored(variableRate());
    const payload = { model, video, fps: null, frames_max: 15, confidence: 0.3 };
    const run = async (more: Record<string, unknown>) => {
      const outcome = await runTask("predict", { ...payload, ...more }, context);
      if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
      return outcome.result as TaskResult<"predict">;
    };
    const annotated = service.target("made/uneven.mp4", "video/mp4");
    const [plain, drawn] = [await run({}), await run({ annotated })];
    expect(plain.annotated).toBeUndefined();
    expect(drawn.frames).toEqual(plain.frames);
    expect(drawn.frames.some(({ predictions }) => predictions.length > 0)).toBe(true);
    const { times, width } = decodedOf(drawn.annotated?.key ?? "");
    expect([times.length, width]).toEqual([15, 320]);
    expect(
      new Set(times.slice(1).map((time, at) => (time - (times[at] ?? 0)).toFixed(3))).size,
    ).toBe(2);
    expect(times).toEqual(drawn.frames.map(({ time }) => time));
    // Of fewer frames it has these alone; without a detection it is the clip.
    const few = await run({ annotated, fps: 5, confidence: 1 });
    expect(few.frames.every(({ predictions }) => predictions.length === 0)).toBe(true);
    expect(decodedOf(few.annotated?.key ?? "").times).toEqual(few.frames.map(({ time }) => time));
  });

  it("fails the task in words where this node's ffmpeg cannot write it", async () => {
    const model = await generatedModel((key, bytes) => service.source(key, bytes));
    const script = join(dir, "ffmpeg");
    const real = TOOLS?.ffmpeg ?? "ffmpeg";
    const lines = ["#!/bin/sh", 'case "$*" in *libx264*) echo "no room" >&2; exit 3;; esac'];
    writeFileSync(script, `${[...lines, `exec ${real} "$@"`].join("\n")}\n`, { mode: 0o755 });
    const tools = TOOLS && { ...TOOLS, ffmpeg: script };
    const annotated = service.target("made/never.mp4", "video/mp4");
    const video = stored(grey());
    const payload = { model, video, fps: null, frames_max: 200, confidence: 0.3, annotated };
    const outcome = await runTask("predict", payload, { ...context, tools });
    expect(outcome).toMatchObject({
      outcome: "failed",
      code: "video_not_written",
      detail: "ffmpeg did not write the annotated video: exit status 3; no room",
      retryable: true,
    });
    expect(service.objects.has("made/never.mp4")).toBe(false);
  });
});
