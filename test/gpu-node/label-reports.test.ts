// What a label task reports while it works. Goal: frames go out as they are labeled, each once and
// as the result has them, and no more often than the service should store them.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import type { Tools } from "../../gpu-node/media/ffmpeg.ts";
import { run } from "../../gpu-node/tasks/label.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import type { TaskReport } from "../../shared/tasks/node-protocol.ts";
import { TASK_KINDS } from "../../shared/tasks/tasks.ts";
import { rectangles, toolsOrSay } from "../support/clips.ts";
import { type NodeService, startNodeService } from "../support/node-service.ts";
import { openRectangles } from "../support/rectangles.ts";
import { taskContext } from "../support/task-context.ts";

const tools = toolsOrSay();
const FRAMES = [0, 5, 10, 15];
let service: NodeService;
let dir: string;

beforeAll(async () => {
  service = await startNodeService();
  dir = mkdtempSync(join(tmpdir(), "vantage-label-"));
});
afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
  return service.close();
});

it.skipIf(tools === null)("carries once a second the frames labeled since", async () => {
  const told: TaskReport[] = [];
  const musts: unknown[] = [];
  const clock = vi.spyOn(performance, "now").mockImplementation(() => 600 * told.length);
  const context: RunnerContext = {
    ...(await taskContext(service, dir)),
    tools: tools as Tools,
    useSegmenter: (_, work) => work(openRectangles()),
    progress: (report, must) => {
      told.push(report);
      musts.push(must);
    },
  };
  const payload = TASK_KINDS.label.payload.parse({
    video: service.source("ws/a/videos/v/source", readFileSync(rectangles())),
    video_id: "v",
    job_id: "j",
    prompts: [{ kind: "text", class_name: "red", text: "red" }],
    frames: FRAMES,
    resolution: null,
    images: FRAMES.map(() => null),
    segmenter: null,
    model: null,
  });
  const whole = await run(payload, context).finally(() => clock.mockRestore());
  const [first, ...rest] = whole.frames;
  const parts = [[first], undefined, rest.slice(0, 2), undefined];
  expect(told.map(({ partial }) => partial?.frames)).toEqual(parts);
  expect(TASK_KINDS.label.result.parse(told[2]?.partial).segmenter).toBe(whole.segmenter);
  // What goes out in any case: parts, and the last.
  expect(musts).toEqual([true, false, true, true]);
});
