// An engine and a reference state with the same weights, and the engine's maps beside the
// reference's.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type {
  Engine,
  EngineOptions,
  HeadMaps,
  Maps,
  TrainingOptions,
} from "../../../native/index.d.ts";
import { type DetectorGraph, stateTensors } from "../../../shared/detector/detector.ts";
import { DEVICE, native } from "../engine.ts";
import { type BranchMaps, type DetectorMaps, type State, stateOf } from "./forward.ts";
import type { Recipe } from "./optimizer.ts";
import { distance } from "./scenes.ts";
import { randomWeights, type Weights, writeWeights } from "./weights.ts";

export interface EnginePair {
  engine: Engine;
  state: State;
  graph: DetectorGraph;
}

/** Calls with an engine that has loaded seeded weights; frees it whatever happens. */
export async function withPair<Result>(
  options: Pick<EngineOptions, "graph" | "seed" | "training" | "precision"> &
    Pick<EngineOptions, "fusedNorm" | "channelsLast"> & { weights?: Weights; threads?: number },
  work: (twin: EnginePair) => Promise<Result>,
): Promise<Result> {
  const { graph, seed, threads = 1, training, precision, fusedNorm, channelsLast } = options;
  const weights = options.weights ?? randomWeights(graph, seed);
  const folder = mkdtempSync(join(tmpdir(), "vantage-golden-"));
  const settings = {
    graph,
    device: DEVICE,
    seed,
    threads,
    ...(training && { training }),
    ...(precision && { precision }),
    ...(fusedNorm !== undefined && { fusedNorm }),
    ...(channelsLast !== undefined && { channelsLast }),
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
  ...recipe,
  imageSize,
  gains: { box: 7.5, cls: 0.5, dfl: 1.5 },
  augmentation: {
    mosaic: 0,
    mixup: 0,
    flipLeftRight: 0,
    flipUpDown: 0,
    scale: 0,
    translate: 0,
    rotate: 0,
    shear: 0,
    hsv: [0, 0, 0],
    closeMosaic: 0,
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
  for (const part of ["prototypes", "semantic"] as const) {
    if (found[part] || expected[part]) compare(part, found[part], expected[part]);
  }
  return distances;
}

/** The largest of distances, and whose it is; NaN is the largest of all. */
export function worst(distances: ReadonlyMap<string, number>): { name: string; distance: number } {
  const order = ([, distance]: [string, number]) =>
    Number.isNaN(distance) ? Number.POSITIVE_INFINITY : distance;
  const [name, distance] = [...distances].sort((a, b) => order(b) - order(a))[0] ?? ["none", 0];
  return { name, distance };
}

/** The engine's tensors of those names. */
export async function tensorsOf(
  engine: Engine,
  of: "model" | "ema" | "gradient",
  names: Iterable<string>,
): Promise<Map<string, Float32Array>> {
  const tensors = new Map<string, Float32Array>();
  for (const name of names) tensors.set(name, (await engine.tensor(name, of)).values);
  return tensors;
}

/** Prints what a tolerance is stated from, where GOLDEN_FIGURES is set. */
export function measured(name: string, value: unknown): void {
  if (process.env.GOLDEN_FIGURES) process.stderr.write(`${name}: ${JSON.stringify(value)}\n`);
}
