// What serves against what trains: the ONNX of a weights file and the engine that wrote the file.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { deployedModel } from "../../../gpu-node/export/folded.ts";
import { writeOnnx } from "../../../gpu-node/export/onnx.ts";
import { readTensors } from "../../../gpu-node/export/safetensors.ts";
import { float, floats, openSession, run } from "../../../gpu-node/segmenters/runtime.ts";
import { ENGINE_ENVIRONMENT, loadEngine, type Native } from "../../../native/load.ts";
import { detectorGraph } from "../../../shared/detector.ts";
import { randomWeights, seeded, tensorFile } from "../../support/weights.ts";

Object.assign(process.env, ENGINE_ENVIRONMENT);
const loaded = loadEngine();
if ("missing" in loaded) process.stderr.write(`SKIPPED: ${loaded.missing}\n`);
const native = ("native" in loaded ? loaded.native : undefined) as Native;

const dir = mkdtempSync(join(tmpdir(), "vantage-engine-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

describe.skipIf(!native)("an engine's weights under the runtime that serves", () => {
  it.each([
    ["det26n", 3, 2, 160],
    ["det26n", 80, 1, 320],
    ["det26n", 2, 1, 96],
  ] as const)(
    "find what the engine finds: %s of %i classes, %i pictures of %i pixels",
    async (variant, classes, count, side) => {
      const names = Array.from({ length: classes }, (_, index) => `class ${index}`);
      const graph = detectorGraph(variant, classes);
      const given = join(dir, `${variant}-${classes}.safetensors`);
      const saved = join(dir, `${variant}-${classes}-saved.safetensors`);
      writeFileSync(given, tensorFile(randomWeights(graph, 7)));
      const random = seeded(9);
      const images = Float32Array.from({ length: count * 3 * side * side }, random);
      const engine = new native.Engine({ graph, device: "cpu", seed: 1, threads: 2 });
      await engine.ready;
      expect((await engine.load(given)).missing).toEqual([]);
      await engine.save(saved, { note: "from the engine" });
      const confidence = 0.3;
      const found = await engine.predict({ images, count, height: side, width: side }, confidence);
      await engine.close();

      const file = readTensors(readFileSync(saved));
      expect(file.metadata.note).toBe("from the engine");
      const model = deployedModel({ variant, classes: names, task: "detection" }, file);
      const onnx = writeOnnx(model, {
        ...{ output: "detections", size: [side, side], batch: null, metadata: {} },
      });
      const session = await openSession(onnx, { cpuThreads: 2, device: "cpu" });
      const outputs = await run(session, { images: float(images, [count, 3, side, side]) });
      const rows = floats(outputs, "output0");
      await session.release();
      for (let image = 0; image < count; image++) {
        const each = rows.length / 6 / count;
        const served = Array.from({ length: each }, (_, row) =>
          rows.subarray((image * each + row) * 6, (image * each + row + 1) * 6),
        ).filter((row) => (row[4] ?? 0) >= confidence);
        const trained = found[image] as Float32Array;
        // A score at the cut, or at the place of the last row, may fall to either side of it.
        expect(Math.abs(served.length - trained.length / 6)).toBeLessThanOrEqual(2);
        let unmatched = 0;
        for (let at = 0; at < trained.length; at += 6) {
          const box = trained.subarray(at, at + 6);
          const alike = served.some((row) =>
            row.every((value, place) => {
              const tolerance = place < 4 ? 2e-2 : place === 4 ? 1e-4 : 0;
              return Math.abs(value - (box[place] ?? 0)) <= tolerance;
            }),
          );
          if (!alike) unmatched += 1;
        }
        expect(unmatched).toBeLessThanOrEqual(2);
      }
    },
    120_000,
  );
});
