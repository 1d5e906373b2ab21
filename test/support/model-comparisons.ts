// How a scripted node compares two models: a few frames with an object each, written as a node
// does.

import { createHash } from "node:crypto";
import { type ComparedFrame, REPORT_BLOCK_FRAMES } from "../../shared/tasks/comparison-task.ts";
import type { ClaimedTask } from "../../shared/tasks/node-protocol.ts";
import { type Prediction, TASK_KINDS, type TaskResult } from "../../shared/tasks/tasks.ts";
import { jpeg } from "./media.ts";
import type { ScriptedNode } from "./scripted-node.ts";

/** An overlay, as a node would send it. */
const JPEG = jpeg();

type Result = TaskResult<"comparison">;

/** A frame on which both found one object, and each so many of its own. */
export function comparedFrame(index: number, alone = 1, className = "person"): ComparedFrame {
  const object = (x: number): Prediction => ({
    class: className,
    confidence: 0.91,
    bbox: [x, 8, x + 24, 30],
  });
  const [a, b] = [object(12), object(12)];
  const each = Array.from({ length: alone }, (_, at) => object(40 + 30 * at));
  return {
    video_id: null,
    filename: "crossing.mp4",
    frame_index: index,
    time: index / 10,
    width: 640,
    height: 360,
    difference: 2 * alone,
    both: 1,
    other_class: 0,
    only_a: alone,
    only_b: alone,
    objects: [
      { match: "both", iou: 1, a, b },
      ...each.map((one) => ({ match: "only_a" as const, iou: null, a: one, b: null })),
      ...each.map((one) => ({ match: "only_b" as const, iou: null, a: null, b: one })),
    ],
    truth: null,
  };
}

/** The frames as their object holds them, with the offsets of its blocks. */
export function reportOf(frames: readonly ComparedFrame[]) {
  const lines = frames.map((frame) => Buffer.from(`${JSON.stringify(frame)}\n`));
  const blocks: number[] = [];
  let offset = 0;
  for (const [index, line] of lines.entries()) {
    if (index % REPORT_BLOCK_FRAMES === 0) blocks.push(offset);
    offset += line.length;
  }
  const bytes = Buffer.concat(lines);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { bytes, report: { bytes: bytes.length, sha256, blocks } };
}

/** What a node reports of these frames. */
export function comparisonOutcome(frames: readonly ComparedFrame[], overlays: number): Result {
  const sum = (pick: (frame: ComparedFrame) => number) =>
    frames.reduce((total, frame) => total + pick(frame), 0);
  return {
    frames_compared: frames.length,
    left_out: 0,
    agreement: {
      both: sum(({ both }) => both),
      other_class: 0,
      only_a: sum(({ only_a }) => only_a),
      only_b: sum(({ only_b }) => only_b),
      iou: 1,
    },
    figures: null,
    latency: {
      a: { p50_ms: 8.5, p95_ms: 9.5 },
      b: { p50_ms: 12.5, p95_ms: 14.5 },
      device: "cpu",
    },
    seconds: 0.4,
    report: reportOf(frames).report,
    overlays: Array.from({ length: overlays }, () => JPEG.length),
  };
}

/** Writes the frames and an overlay of each of the first ones, and answers as a node does. */
export async function comparedBy(
  task: ClaimedTask,
  node: ScriptedNode,
  frames: readonly ComparedFrame[] = [comparedFrame(0)],
): Promise<Result> {
  const { report, overlays } = TASK_KINDS.comparison.payload.parse(task.payload);
  const drawn = overlays.slice(0, frames.length);
  for (const { key } of drawn) await node.write(task, { key }, JPEG);
  await node.write(task, { key: report.key }, reportOf(frames).bytes);
  return comparisonOutcome(frames, drawn.length);
}
