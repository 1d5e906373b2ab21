// `npm run bench -- engine`: what a training step of detection and of segmentation costs, beside a
// plain PyTorch loop of the same graph on the same torch, in one run. Each configuration runs in
// processes of its own, the two in turn; fp32 and bf16 beside it in one process, step by step. On a
// GPU the engine trains augmented epochs, as a run does, while the plain loop has its one batch on
// the device and augments nothing; also larger batches, and the larger variant. On a CPU last, how
// many times as fast images are made ready on two cores.

import { spawn, spawnSync } from "node:child_process";
import { randomFillSync } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { probeEngine } from "../../gpu-node/training/engine-probe.ts";
import type { Engine, EngineOptions, TrainingOptions } from "../../native/index.d.ts";
import { ENGINE_ENVIRONMENT, loadEngine } from "../../native/load.ts";
import { AUGMENTATION_PRESETS } from "../../shared/detector/augmentation.ts";
import { type DetectorTask, detectorGraph, type Variant } from "../../shared/detector/detector.ts";
import { measureScaling } from "./engine-scaling.ts";
import { pythonOf, torchProblem } from "./plain-torch.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    device: { type: "string", default: "cpu" },
    threads: { type: "string", default: "2" },
    steps: { type: "string" },
    /** Measures configurations whose names contain one of these; all by default. */
    only: { type: "string", multiple: true },
    /** A Python that has torch; else one with the engine's is looked for. */
    python: { type: "string" },
    /** Of the process that measures one configuration of the engine. */
    one: { type: "string" },
    /** Of the process that measures what a second core brings. */
    scaling: { type: "boolean", default: false },
  },
});

interface Configuration {
  task: DetectorTask;
  variant: Variant;
  imageSize: number;
  batch: number;
  precision: "fp32" | "bf16";
  device: "cpu" | "cuda";
  threads: number;
  steps: number;
  warmup: number;
}

interface Measurement {
  /** Its version. */
  torch: string;
  seconds: number;
  /** Images of those seconds; all steps' where it is left out. */
  images?: number;
  /** Processor time, which other processes add nothing to. */
  cpuSeconds: number;
  losses: number[];
  /** At its peak: of the GPU, or of the process. */
  memoryBytes: number | null;
  /** Seconds by part of a step. */
  parts: Record<string, number>;
  /** Of an augmented epoch; the engine's alone. */
  imagesPerSecond?: number;
  /**
   * On a GPU: images a second of steps without recordings, the time in which the GPU computed
   * (percent, by its driver), and the number of steps that replayed a recording.
   */
  onGpu?: {
    unrecordedRate: number;
    busyPercent: number | null;
    recorded: number;
    /** Of the first epoch, in which libraries choose their algorithms and steps are recorded. */
    firstSeconds: number;
  };
  /** How many times as fast as fp32, by the clock and in time of the CPU; the engine's alone. */
  inBf16?: { clock: number; cpu: number };
}

type StepTime = Awaited<ReturnType<Engine["probe"]>>;

const CLASSES = 80;
const OBJECTS = 8;
const RING_CORNERS = 24;
/** Of an epoch on a GPU, and how long such epochs are measured at least. */
const GPU_IMAGES = 1_536;
const GPU_SECONDS = 3;

/** Boxes of every image: class, corners in pixels. */
function truthsOf({ batch, imageSize }: Configuration): number[][][] {
  const side = imageSize / 8;
  return Array.from({ length: batch }, (_, image) =>
    Array.from({ length: OBJECTS }, (_, object) => {
      const x = ((image + 3 * object) % 6) * side + object;
      const y = ((2 * image + object) % 6) * side + object;
      return [(image + object) % CLASSES, x, y, x + side * (1 + object / 8), y + side];
    }),
  );
}

/** The ellipse in each box, at a cell of four pixels: as the plain loop draws its masks. */
function masksOf(configuration: Configuration): Uint8Array {
  const cells = configuration.imageSize / 4;
  const masks = truthsOf(configuration).flatMap((list) =>
    list.map(([, x1 = 0, y1 = 0, x2 = 0, y2 = 0]) =>
      Uint8Array.from({ length: cells ** 2 }, (_, cell) => {
        const [x, y] = [4 * (cell % cells) + 2, 4 * Math.floor(cell / cells) + 2];
        return Math.hypot((2 * x - x1 - x2) / (x2 - x1), (2 * y - y1 - y2) / (y2 - y1)) < 1 ? 1 : 0;
      }),
    ),
  );
  return Buffer.concat(masks);
}

/** The corners of the ellipse in a box, in turn. */
const ringOf = ([, x1 = 0, y1 = 0, x2 = 0, y2 = 0]: readonly number[]): number[] =>
  Array.from({ length: RING_CORNERS }, (_, corner) => {
    const angle = (2 * Math.PI * corner) / RING_CORNERS;
    const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
    return [x + ((x2 - x1) / 2) * Math.cos(angle), y + ((y2 - y1) / 2) * Math.sin(angle)];
  }).flat();

const trainingOf = ({
  batch,
  imageSize,
}: Pick<Configuration, "batch" | "imageSize">): TrainingOptions => ({
  optimizer: "adamw",
  epochs: 100,
  batch,
  imageSize,
  lr0: 0.001,
  lrf: 1,
  cosine: false,
  momentum: 0.9,
  weightDecay: 5e-4,
  warmupEpochs: 0,
  warmupMomentum: 0.9,
  warmupBiasLr: 0,
  nominalBatch: batch,
  clipNorm: 10,
  emaDecay: 0.9999,
  emaUpdates: 2000,
  gains: { box: 7.5, cls: 0.5, dfl: 1.5 },
  augmentation: AUGMENTATION_PRESETS.standard,
});

function loadedEngine() {
  const loaded = loadEngine();
  if ("missing" in loaded) throw new Error(loaded.missing);
  return loaded.native;
}

function engineOf(configuration: Configuration, options: Pick<EngineOptions, "recorded"> = {}) {
  const { task, variant, precision, device, threads } = configuration;
  return new (loadedEngine().Engine)({
    graph: detectorGraph(variant, CLASSES, task),
    device,
    seed: 0,
    threads,
    precision,
    training: trainingOf(configuration),
    ...options,
  });
}

async function measureOnCpu(configuration: Configuration): Promise<Measurement> {
  const { task, imageSize, batch, precision, steps, warmup } = configuration;
  const engine = engineOf(configuration);
  await engine.ready;
  const images = new Float32Array(batch * 3 * imageSize * imageSize);
  for (let at = 0, state = 1; at < images.length; at++) {
    state = (state * 48_271) % 2_147_483_647;
    images[at] = state / 2_147_483_647;
  }
  const boxes = Float32Array.from(
    truthsOf(configuration).flatMap((list, image) => list.flatMap((box) => [image, ...box])),
  );
  const shape = { count: batch, height: imageSize, width: imageSize };
  const masks = task === "segmentation" && { masks: masksOf(configuration) };
  const given = { images, ...shape, boxes, ...masks };
  const losses: number[] = [];
  let began = 0;
  let cpu = process.cpuUsage();
  for (let step = 0; step < warmup + steps; step++) {
    if (step === warmup) [began, cpu] = [performance.now(), process.cpuUsage()];
    losses.push((await engine.step(given, { epoch: 0, iteration: step })).total);
  }
  const seconds = (performance.now() - began) / 1_000;
  const { user, system } = process.cpuUsage(cpu);
  const cpuSeconds = (user + system) / 1e6;
  const { bytes: memoryBytes } = await engine.probe({ batch, imageSize });
  const inBf16 = precision === "bf16" ? await speedup(engine, configuration) : null;
  const folder = mkdtempSync(join(tmpdir(), "vantage-bench-engine-"));
  try {
    await setImages(engine, configuration, { folder, batches: steps });
    const { parts, seconds: wall, images: done } = await trainedFor(engine, 0, 0);
    const { torch } = loadedEngine().describe();
    const measured = { torch, seconds, cpuSeconds, losses, memoryBytes, parts };
    return { ...measured, imagesPerSecond: done / wall, ...(inBf16 && { inBf16 }) };
  } finally {
    await engine.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/**
 * Epochs of augmented images from a file, for some seconds, after one in which libraries choose
 * their algorithms and steps are recorded; then the same without recordings.
 */
async function measureOnGpu(configuration: Configuration): Promise<Measurement> {
  const { batch, imageSize } = configuration;
  const folder = mkdtempSync(join(tmpdir(), "vantage-bench-engine-"));
  const trained = async (recorded: boolean) => {
    const engine = engineOf(configuration, recorded ? {} : { recorded });
    try {
      await setImages(engine, configuration, { folder, batches: Math.ceil(GPU_IMAGES / batch) });
      const first = await trainedFor(engine, 0, 0);
      const meter = new GpuMeter();
      const cpu = process.cpuUsage();
      const epochs = await trainedFor(engine, 1, GPU_SECONDS);
      const { user, system } = process.cpuUsage(cpu);
      const busyPercent = meter.end();
      const { bytes } = await engine.probe({ batch, imageSize });
      return { ...epochs, bytes, busyPercent, cpuSeconds: (user + system) / 1e6, first };
    } finally {
      await engine.close();
    }
  };
  try {
    const own = await trained(true);
    const unrecorded = await trained(false);
    const { seconds, images, cpuSeconds, parts, busyPercent, recorded } = own;
    const unrecordedRate = unrecorded.images / unrecorded.seconds;
    return {
      torch: loadedEngine().describe().torch,
      seconds,
      images,
      cpuSeconds,
      parts,
      memoryBytes: own.bytes,
      losses: [own.first.loss],
      imagesPerSecond: images / seconds,
      onGpu: { unrecordedRate, busyPercent, recorded, firstSeconds: own.first.seconds },
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Trains epochs from one on, until so many seconds have passed; one epoch at least. */
async function trainedFor(engine: Engine, first: number, secondsMin: number) {
  const parts: Record<string, number> = {};
  let [images, recorded, loss] = [0, 0, 0];
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1_000;
  for (let epoch = first; epoch === first || seconds() < secondsMin; epoch++) {
    const done = await engine.trainEpoch({ epoch, from: 0 }, () => {});
    for (const [part, time] of Object.entries(done.seconds))
      parts[part] = (parts[part] ?? 0) + time;
    images += done.images;
    recorded += done.recorded;
    loss = done.losses.total;
  }
  return { parts, images, recorded, loss, seconds: seconds() };
}

/** How much of the time since it was made the first GPU computed, by its driver. */
class GpuMeter {
  readonly #child = spawn(
    "nvidia-smi",
    ["--id=0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"],
    { stdio: ["ignore", "pipe", "ignore"] },
  );
  #output = "";

  constructor() {
    this.#child.stdout.setEncoding("utf8").on("data", (text: string) => {
      this.#output += text;
    });
    // Without the driver's program there is no figure.
    this.#child.on("error", () => {});
  }

  /** The mean in percent; null where there was no answer. */
  end(): number | null {
    this.#child.kill();
    const samples = this.#output.trim().split("\n").filter(Boolean).map(Number);
    return samples.length > 0 ? samples.reduce((sum, one) => sum + one, 0) / samples.length : null;
  }
}

/** How many times as fast forward and backward are in bf16: fastest of steps done in turn. */
async function speedup(engine: Engine, { batch, imageSize, steps }: Configuration) {
  const all = { fp32: [] as StepTime[], bf16: [] as StepTime[] };
  for (let step = 0; step <= steps; step++) {
    for (const precision of ["fp32", "bf16"] as const) {
      const time = await engine.probe({ batch, imageSize, precision });
      if (step > 0) all[precision].push(time);
    }
  }
  const ratio = (of: (time: StepTime) => number) =>
    Math.min(...all.fp32.map(of)) / Math.min(...all.bf16.map(of));
  return { clock: ratio(({ seconds }) => seconds), cpu: ratio(({ cpuSeconds }) => cpuSeconds) };
}

/** Gives the engine a dataset of so many batches, all of the same images of noise. */
async function setImages(
  engine: Engine,
  { task, batch, ...configuration }: Configuration,
  { folder, batches }: { folder: string; batches: number },
) {
  const { imageSize } = configuration;
  const path = join(folder, "images");
  const bytes = 3 * imageSize * imageSize;
  writeFileSync(path, randomFillSync(Buffer.alloc(batch * bytes)));
  const distinct = truthsOf({ task, batch, ...configuration }).map((list, at) => ({
    offset: at * bytes,
    width: imageSize,
    height: imageSize,
    boxes: Float32Array.from(list.flat()),
    ...(task === "segmentation" && {
      rings: Float32Array.from(list.flatMap(ringOf)),
      ringStarts: Int32Array.from(list, (_, object) => object * RING_CORNERS),
    }),
  }));
  const images = Array.from({ length: batches }, () => distinct).flat();
  await engine.setDataset("train", { path, images });
}

const environment = { ...process.env, ...ENGINE_ENVIRONMENT };

function run(command: string, args: string[], input: string): Measurement | null {
  const child = spawnSync(command, args, {
    input,
    encoding: "utf8",
    env: environment,
    maxBuffer: 1e8,
    timeout: 600_000,
  });
  const line = child.stdout?.trim().split("\n").at(-1) ?? "";
  if (child.status !== 0 || !line.startsWith("{")) {
    process.stderr.write(`${command}: ${(child.stderr || String(child.error)).slice(-500)}\n`);
    return null;
  }
  return JSON.parse(line) as Measurement;
}

function plain(python: string, configuration: Configuration): Measurement | null {
  const { task, variant, imageSize, batch, ...rest } = configuration;
  const graph = detectorGraph(variant, CLASSES, task);
  const truths = truthsOf(configuration);
  const asked = { graph, image_size: imageSize, batch, truths, lr: 0.001, weight_decay: 5e-4 };
  const script = join(import.meta.dirname, "plain_torch.py");
  return run(python, [script], JSON.stringify({ ...rest, ...asked }));
}

const TASKS = ["detection", "segmentation"] as const;

function configurations(): Configuration[] {
  const threads = Number(values.threads);
  if (values.device !== "cuda") {
    const common = { device: "cpu", variant: "det26n", threads, warmup: 2 } as const;
    const steps = Number(values.steps ?? 6);
    return TASKS.flatMap((task) =>
      (["fp32", "bf16"] as const).flatMap((precision) => [
        { ...common, task, precision, imageSize: 320, batch: 8, steps },
        { ...common, task, precision, imageSize: 640, batch: 4, steps },
      ]),
    );
  }
  const steps = Number(values.steps ?? 30);
  // By how much they say: a part of them may be all that there is time for.
  const sizes = [64, 8, 128, 16].flatMap((batch) => TASKS.map((task) => ({ batch, task })));
  return (["det26n", "det26m"] as const).flatMap((variant) =>
    sizes.flatMap((size) =>
      (["bf16", "fp32"] as const).map((precision) => ({
        ...size,
        variant,
        precision,
        imageSize: 640,
        device: "cuda" as const,
        threads,
        steps,
        warmup: 8,
      })),
    ),
  );
}

const nameOf = ({ task, variant, imageSize, batch, precision }: Configuration) =>
  [task, variant, imageSize, batch, precision].join(", ");

const say = (line: string) => process.stdout.write(`${line}\n`);

/** Shares of the parts, in percent. */
function shares(measured: Measurement | null): string {
  const parts = Object.entries(measured?.parts ?? {});
  const sum = parts.reduce((total, [, seconds]) => total + seconds, 0);
  return parts.map(([name, part]) => `${name} ${Math.round((100 * part) / sum)} %`).join(", ");
}

async function main() {
  say(
    "| task, variant, px, batch, precision | engine ms/image | plain ms/image | plain ÷ engine | in " +
      "processor time | memory |",
  );
  say("|---|---|---|---|---|---|");
  const note = (line: string) => process.stderr.write(`${line}\n`);
  const engine = await probeEngine({ PATH: process.env.PATH ?? "", ...ENGINE_ENVIRONMENT });
  const python = values.python ?? pythonOf("engine" in engine ? engine.engine.torch : "");
  const problem = torchProblem(python);
  if (problem) process.stderr.write(`${problem}\n`);
  const wanted = configurations().filter(
    (one) => !values.only || values.only.some((text) => nameOf(one).includes(text)),
  );
  for (const configuration of wanted) {
    const one = JSON.stringify(configuration);
    const own = run(process.execPath, [import.meta.filename, "--one", one], "");
    const other = problem ? null : plain(python, configuration);
    const { batch, steps } = configuration;
    const each = (measured: Measurement | null, seconds = measured?.seconds ?? 0) =>
      measured && (seconds * 1_000) / (measured.images ?? steps * batch);
    const shown = (value: number | null) => value?.toFixed(2) ?? "–";
    const memory = own?.memoryBytes ? `${Math.round(own.memoryBytes / 1e6)} MB` : "";
    const [mine, theirs] = [each(own), each(other)];
    const figures = [mine, theirs].map(shown);
    const ratio = shown(mine && theirs && theirs / mine);
    const [myCpu, theirCpu] = [own, other].map((one) => each(one, one?.cpuSeconds));
    const inCpu = shown(myCpu && theirCpu ? theirCpu / myCpu : null);
    const name = nameOf(configuration);
    say(`| ${[name, ...figures, ratio, inCpu, memory].join(" | ")} |`);
    if (own) {
      const rate = own.imagesPerSecond?.toFixed(1);
      const rest = `torch ${own.torch}, first loss ${own.losses[0]}`;
      note(`${name}: ${rate} images/s augmented (${shares(own)}); ${rest}`);
    }
    if (other) {
      const rest = `torch ${other.torch}, first loss ${other.losses[0]}`;
      const parts = configuration.device === "cpu" ? `${shares(other)}; ` : "";
      note(`plain without data: ${parts}${rest}`);
    }
    if (own?.onGpu) {
      const { unrecordedRate, busyPercent, recorded, firstSeconds } = own.onGpu;
      const times = ((own.imagesPerSecond ?? 0) / unrecordedRate).toFixed(2);
      note(
        `${name}: ${times} times as fast as unrecorded (${recorded} steps recorded); ` +
          `GPU busy ${busyPercent?.toFixed(0)} %; first epoch ${firstSeconds.toFixed(1)} s`,
      );
    }
    if (own?.inBf16) {
      const { clock, cpu } = own.inBf16;
      note(
        `${name}: ${clock.toFixed(2)} times as fast as fp32, ` +
          `${cpu.toFixed(2)} in processor time (load ${loadavg()[0]?.toFixed(1)})`,
      );
    }
  }
  if (values.device === "cuda") return;
  sayScaling();
  // A process of its own, with as many threads for images as a node has.
  const prepared = join(import.meta.dirname, "training-data.ts");
  spawnSync(process.execPath, [prepared, "--images", "200"], { stdio: "inherit" });
}

function sayScaling() {
  const steps = ["--steps", values.steps ?? "6"];
  const child = spawnSync(process.execPath, [import.meta.filename, "--scaling", ...steps], {
    encoding: "utf8",
    env: environment,
    timeout: 1_200_000,
  });
  say(child.status === 0 ? child.stdout.trim() : `scaling: ${child.stderr.slice(-500)}`);
}

if (values.one) {
  const configuration = JSON.parse(values.one) as Configuration;
  const measure = configuration.device === "cuda" ? measureOnGpu : measureOnCpu;
  const measured = await measure(configuration);
  say(JSON.stringify(measured));
} else if (values.scaling) {
  const shape = { imageSize: 320, batch: 8 };
  const steps = Number(values.steps ?? 6);
  for (const line of await measureScaling({ ...shape, steps, training: trainingOf(shape) }))
    say(line);
} else await main();
