// A process that assigns the targets of a scene at 640 px and prints by how many megabytes its
// memory grew at the most: dense-scenes.test.ts. Its argument is the number of objects by image.

import { readFileSync } from "node:fs";
import { loadEngine } from "../../native/load.ts";
import { dice } from "./training-world.ts";

const loaded = loadEngine();
if ("missing" in loaded) throw new Error(loaded.missing);
const { native } = loaded;
const SIDE = 640;
const ANCHORS = [8, 16, 32].reduce((sum, stride) => sum + (SIDE / stride) ** 2, 0);

function sceneOf(counts: readonly number[]) {
  const random = dice(1);
  const objects = Math.max(...counts, 1);
  const corners = () => {
    const [x, y] = [random(SIDE - 40), random(SIDE - 40)];
    return [x, y, x + 4 + random(36), y + 4 + random(36)];
  };
  const truths = counts.flatMap((count) =>
    Array.from({ length: objects }, (_, index) => [index < count ? 0 : -1, ...corners()]),
  );
  return {
    classes: 1,
    height: SIDE,
    width: SIDE,
    oneToOne: false,
    images: counts.length,
    boxes: Float32Array.from({ length: counts.length * 4 * ANCHORS }, () => random(SIDE)),
    logits: new Float32Array(counts.length * ANCHORS),
    truths: Float32Array.from(truths.flat()),
  };
}

const peakMegabytes = () =>
  Number(/^VmHWM:\s+(\d+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1]) / 1024;
const scene = sceneOf((process.argv[2] as string).split(",").map(Number));
native.assignTargets(sceneOf([5]));
const before = peakMegabytes();
native.assignTargets(scene);
process.stdout.write(`${peakMegabytes() - before}\n`);
