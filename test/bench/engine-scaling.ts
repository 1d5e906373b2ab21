// What a second core brings a training: epochs of the same images by one process of one thread, by
// one of two threads, and by two processes of a thread each that train as one. In turn, so that
// whatever else the machine does is in each; the fastest of each counts. Processor time says what
// two free cores would come to at most: it has no waits in it.

import { randomFillSync } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { Team } from "../../gpu-node/training/team.ts";
import type { Dataset, Engine, EngineOptions, TrainingOptions } from "../../native/index.d.ts";
import { loadEngine } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { followers } from "../support/followers.ts";

const ROUNDS = 3;
const CLASSES = 80;
const OBJECTS = 8;

export interface Scaling {
  imageSize: number;
  batch: number;
  steps: number;
  training: TrainingOptions;
}

/** Images a second by the clock, and a second of processor time of all processes together. */
interface Rates {
  rate: number;
  cpuRate: number;
}
const NOTHING: Rates = { rate: 0, cpuRate: 0 };
/** Of /proc: a second has so many. */
const TICKS = 100;

/** Processor time of this process and of those that it started, in seconds. */
function cpuSeconds(): number {
  const ticksOf = (pid: number) => {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
    return Number(fields[11]) + Number(fields[12]);
  };
  return [process.pid, ...followers()].reduce((sum, pid) => sum + ticksOf(pid), 0) / TICKS;
}

/** Noise with boxes: what a step costs does not depend on what it learns. */
function noise(folder: string, { imageSize, batch, steps }: Scaling): Dataset {
  const path = join(folder, "images");
  const bytes = 3 * imageSize * imageSize;
  writeFileSync(path, randomFillSync(Buffer.alloc(batch * bytes)));
  const side = imageSize / 4;
  const images = Array.from({ length: batch * steps }, (_, at) => {
    const boxes = Array.from({ length: OBJECTS }, (_, object) => {
      const [x, y] = [(object % 3) * side + (at % 7), Math.floor(object / 3) * side + (at % 5)];
      return [(at + object) % CLASSES, x, y, x + side / 2, y + side / 2];
    });
    const boxesOfImage = Float32Array.from(boxes.flat());
    const offset = (at % batch) * bytes;
    return { offset, width: imageSize, height: imageSize, boxes: boxesOfImage };
  });
  return { path, images };
}

/** Images a second of each way, as lines to print. */
export async function measureScaling(scaling: Scaling): Promise<string[]> {
  const loaded = loadEngine();
  if ("missing" in loaded) throw new Error(loaded.missing);
  const { Engine: NativeEngine } = loaded.native;
  const folder = mkdtempSync(join(tmpdir(), "vantage-bench-scaling-"));
  const dataset = noise(folder, scaling);
  const ends: (() => unknown)[] = [];
  const optionsOf = (threads: number): EngineOptions => ({
    graph: detectorGraph("det26n", CLASSES),
    device: "cpu",
    seed: 0,
    threads,
    training: scaling.training,
  });
  const open = async (threads: number) => {
    const engine: Engine = new NativeEngine(optionsOf(threads));
    ends.push(() => engine.close());
    await engine.setDataset("train", dataset);
    return engine;
  };
  const together = async (synchronizedNorm: boolean) => {
    const engine = await open(1);
    const options = { engine: optionsOf(1), dataset, size: 2, synchronizedNorm };
    const team = await Team.form(engine, options);
    ends.unshift(() => team.close());
    return team;
  };
  try {
    const ways = {
      one: await open(1),
      threads: await open(2),
      processes: await together(false),
      synchronized: await together(true),
    };
    const best = { one: NOTHING, threads: NOTHING, processes: NOTHING, synchronized: NOTHING };
    const names = Object.keys(ways) as (keyof typeof ways)[];
    for (let round = 0; round < ROUNDS; round++) {
      for (const name of names) {
        const [began, cpuBegan] = [performance.now(), cpuSeconds()];
        const { images } = await ways[name].trainEpoch({ epoch: 0, from: 0 }, () => {});
        const rate = (1_000 * images) / (performance.now() - began);
        const cpuRate = images / (cpuSeconds() - cpuBegan);
        best[name] = {
          rate: Math.max(best[name].rate, rate),
          cpuRate: Math.max(best[name].cpuRate, cpuRate),
        };
      }
    }
    const { imageSize, batch } = scaling;
    const { one } = best;
    const times = ({ rate, cpuRate }: Rates) =>
      `${rate.toFixed(1)} (${(rate / one.rate).toFixed(2)} ×; on two free cores at ` +
      `most ${((2 * cpuRate) / one.cpuRate).toFixed(2)} ×, by processor time)`;
    return [
      `scaling at ${imageSize} px, batch ${batch}, images/s (load ${loadavg()[0]?.toFixed(1)}):`,
      `one core ${one.rate.toFixed(1)}`,
      `one process of two threads ${times(best.threads)}`,
      `two processes as one ${times(best.processes)}`,
      `two processes, batch norm by the whole batch ${times(best.synchronized)}`,
    ];
  } finally {
    for (const end of ends) await end();
    rmSync(folder, { recursive: true, force: true });
  }
}
