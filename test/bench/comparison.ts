// What a comparison of two models costs beside the models' own time: the two predictors alone on
// each decoded frame, one after the other, and the node's task on the same video, all of it.
// Run: npm run bench -- comparison [--frames 1000 --size 320 --variant det26n]

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { openFootage } from "../../gpu-node/media/footage.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import type { ModelSource, TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { clip } from "../support/clips.ts";
import { startNodeService } from "../support/node-service.ts";
import { taskContext } from "../support/task-context.ts";
import { generatedModel } from "../support/weights.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    frames: { type: "string", default: "1000" },
    size: { type: "string", default: "320" },
    variant: { type: "string", default: "det26n" },
  },
});
type Payload = TaskPayload<"comparison">;
const FRAMES = Number(values.frames);
const SIZE = Number(values.size);
/**
 * Objects that each model tells of a frame, about: those of drawn weights are sure of hundreds,
 * which no trained one is, and a comparison takes 100,000 in all.
 */
const OBJECTS = 20;
const sideOf = (model: ModelSource, confidence: number): Payload["models"][number] => ({
  model,
  confidence,
  size: [SIZE, SIZE],
  file: null,
  file_sha256: null,
});
const print = (line: string) => process.stdout.write(`${line}\n`);
print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);

const dir = mkdtempSync(join(tmpdir(), "vantage-bench-comparison-"));
const service = await startNodeService();
try {
  const machine = { device: "cpu" as const, cpuThreads: cpus().length, trainingDir: dir };
  const context = await taskContext(service, dir, { machine });
  const drawn = ["-f", "lavfi", "-i", `testsrc2=s=640x360:r=25:d=${FRAMES / 25}`];
  const file = readFileSync(clip("bench.mp4", ...drawn, "-c:v", "libx264", "-pix_fmt", "yuv420p"));
  const video = service.source("video", file);
  const more = { variant: values.variant as ModelSource["variant"], image_size: SIZE };
  const models = [1, 2].map((seed) =>
    generatedModel((key, bytes) => service.source(key, bytes), { ...more, seed }),
  ) as [ModelSource, ModelSource];

  /** The confidence of which a model tells so many objects on the first frame. */
  const thresholdOf = (model: ModelSource) =>
    context.predictors.use(model, context.cancel, async (predictor) => {
      const footage = await openFootage(context, video);
      const found: number[] = [];
      for await (const { image } of footage.read([0], { longestSide: SIZE })) {
        const predictions = await predictor.predict(image, { of: footage, confidence: 0.001 });
        found.push(...predictions.map(({ confidence }) => confidence));
      }
      await footage.close();
      return found.sort((one, other) => other - one)[OBJECTS - 1] ?? 0.001;
    });
  const sure = [await thresholdOf(models[0]), await thresholdOf(models[1])] as const;

  const alone = () =>
    context.predictors.use(models[0], context.cancel, (a) =>
      context.predictors.use(models[1], context.cancel, async (b) => {
        await a.warm();
        await b.warm();
        const footage = await openFootage(context, video);
        const all = Array.from({ length: footage.frameCount }, (_, index) => index);
        let ms = 0;
        for await (const { image } of footage.read(all, { longestSide: SIZE })) {
          const began = performance.now();
          await a.predict(image, { of: footage, confidence: sure[0] });
          await b.predict(image, { of: footage, confidence: sure[1] });
          ms += performance.now() - began;
        }
        await footage.close();
        return ms;
      }),
    );

  const compare = async () => {
    const payload: Payload = {
      session_id: "bench",
      iou: 0.5,
      classes: { a: {}, b: {}, truth: {} },
      video_id: null,
      filename: "bench.mp4",
      fps: null,
      frames_max: FRAMES,
      split: "all",
      models: [sideOf(models[0], sure[0]), sideOf(models[1], sure[1])],
      video,
      dataset: null,
      report: service.target("report"),
      overlays: Array.from({ length: 8 }, (_, rank) => service.target(`overlay-${rank}`)),
    };
    const began = performance.now();
    const outcome = await runTask("comparison", payload, context);
    const ms = performance.now() - began;
    if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
    return { ms, result: outcome.result as TaskResult<"comparison"> };
  };

  print(`${FRAMES} frames of 640×360, ${values.variant} at ${SIZE} px, twice each, in turn`);
  print(
    "| predictors alone, s | comparison, s | ratio | frames/s | p50 A, B in ms | MB resident |",
  );
  print("|---|---|---|---|---|---|");
  await alone();
  for (let round = 0; round < 2; round++) {
    const own = await alone();
    const { ms, result } = await compare();
    const rate = ((1_000 * result.frames_compared) / ms).toFixed(1);
    const { a, b } = result.latency;
    const resident = Math.round(process.memoryUsage.rss() / 1024 ** 2);
    print(
      `| ${(own / 1_000).toFixed(1)} | ${(ms / 1_000).toFixed(1)} | ${(ms / own).toFixed(3)} | ` +
        `${rate} | ${a.p50_ms.toFixed(1)}, ${b.p50_ms.toFixed(1)} | ${resident} |`,
    );
  }
  await context.predictors.clear();
} finally {
  await service.close();
  rmSync(dir, { recursive: true, force: true });
}
process.exit(0);
