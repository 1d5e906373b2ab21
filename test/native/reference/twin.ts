// An engine and a reference state with the same weights, and the engine's maps beside the
// reference's.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Engine, HeadMaps, Maps, TrainingOptions } from "../../../native/index.d.ts";
import type { Native } from "../../../native/load.ts";
import { type DetectorGraph, stateTensors } from "../../../shared/detector.ts";
import { type BranchMaps, type DetectorMaps, type State, stateOf } from "./forward.ts";
import type { Recipe } from "./optimizer.ts";
import { distance } from "./scenes.ts";
import { randomWeights, writeWeights } from "./weights.ts";

export interface Twin {
  engine: Engine;
  state: State;
  graph: DetectorGraph;
}

/** Calls with an engine that has loaded seeded weights; frees it whatever happens. */
export async function withTwin<Result>(
  native: Native,
  options: { graph: DetectorGraph; seed: number; training?: TrainingOptions },
  work: (twin: Twin) => Promise<Result>,
): Promise<Result> {
  const { graph, seed, training } = options;
  const weights = randomWeights(graph, seed);
  const folder = mkdtempSync(join(tmpdir(), "vantage-golden-"));
  const settings = {
    graph,
    device: "cpu",
    seed,
    threads: 1,
    ...(training && { training }),
  } as const;
  const engine = new native.Engine(settings);
  try {
    const path = join(folder, "weights.safetensors");
    writeWeights(path, graph, weights);
    const report = await engine.load(path);
    if (report.matched.length !== stateTensors(graph).length)
      throw new Error(JSON.stringify(report));
    const state = stateOf(graph, (name) => weights.get(name) as Float32Array);
    return await work({ engine, state, graph });
  } finally {
    await engine.close();
    rmSync(folder, { recursive: true });
  }
}

/** A recipe as the engine takes it: without any augmentation. */
export const trainingOf = (recipe: Recipe, imageSize: number): TrainingOptions => ({
  ...{ ...recipe, imageSize, gains: { box: 7.5, cls: 0.5, dfl: 1.5 } },
  augmentation: {
    ...{ mosaic: 0, mixup: 0, flipLeftRight: 0, flipUpDown: 0, scale: 0, translate: 0, rotate: 0 },
    ...{ shear: 0, hsv: [0, 0, 0], closeMosaic: 0 },
  },
});

/** Distance of every map from the reference's, by its name. */
export function mapDistances(found: Maps, expected: DetectorMaps): Map<string, number> {
  const distances = new Map<string, number>();
  const compare = (
    name: string,
    one: HeadMaps["box"][0] | undefined,
    other: typeof expected.prototypes,
  ) => {
    if (!one || !other || one.shape.join() !== other.shape.join()) {
      throw new Error(`${name}: [${one?.shape}] beside [${other?.shape}]`);
    }
    distances.set(name, distance(one.values, other.values));
  };
  const branch = (name: string, one: HeadMaps | undefined, other: BranchMaps | undefined) => {
    for (const part of ["box", "cls", "mask"] as const) {
      const maps = other?.[part] ?? [];
      if ((one?.[part]?.length ?? 0) !== maps.length) throw new Error(`${name}.${part} differ`);
      for (const [level, map] of maps.entries()) {
        compare(`${name}.${part}.${level}`, one?.[part]?.[level], map);
      }
    }
  };
  branch("o2m", found.o2m, expected.o2m);
  branch("o2o", found.o2o, expected.o2o);
  if (found.prototypes || expected.prototypes) {
    compare("prototypes", found.prototypes, expected.prototypes);
  }
  return distances;
}

export const worst = (distances: ReadonlyMap<string, number>): [string, number] =>
  [...distances].reduce((so, entry) => (entry[1] > so[1] ? entry : so), ["none", 0]);
