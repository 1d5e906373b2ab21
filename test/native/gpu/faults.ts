// `node faults.ts`: faults on a device (ENGINE_DEVICE) and what they leave: a step that runs out of
// memory, memory that is too short for recordings, two processes on one device, an interrupt, and a
// process that is killed.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { detectorGraph, stateTensors } from "../../../shared/detector/detector.ts";
import { DEVICE, native } from "../engine.ts";
import { COLOURS, type EngineSetup, rectangleImages, withImages } from "../rectangle-images.ts";
import { fingerprint } from "../training-world.ts";
import { check, must } from "./check.ts";

const MIB = 2 ** 20;
const names = stateTensors(detectorGraph("det26n", COLOURS.length)).map(({ name }) => name);
const onGpu = DEVICE === "cuda";
const sources = rectangleImages(onGpu ? 64 : 16);
const [BATCH, SIDE] = onGpu ? [32, 320] : [8, 96];
const training = { batch: BATCH, nominalBatch: BATCH, imageSize: SIDE, lr0: 0.002 };
const setup: EngineSetup = { sources, training, options: { device: DEVICE } };

interface Outcome {
  losses: number[];
  recorded: number;
  images: number;
  /** Of the average weights after the last epoch. */
  state: string;
}

/** What three epochs come to. */
const epochs = (count = 3) =>
  withImages(setup, async (engine): Promise<Outcome> => {
    const outcome: Outcome = { losses: [], recorded: 0, images: 0, state: "" };
    for (let epoch = 0; epoch < count; epoch++) {
      const done = await engine.trainEpoch({ epoch, from: 0 }, () => {});
      outcome.losses.push(done.losses.total);
      outcome.recorded += done.recorded;
      outcome.images += done.images;
    }
    outcome.state = await fingerprint(engine, "ema", names);
    return outcome;
  });

/** This file in another process, which trains for so many epochs and prints what they come to. */
function child(count: number): ChildProcess {
  return spawn(process.execPath, [import.meta.filename, String(count)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
}

async function outcomeOf(process: ChildProcess): Promise<Outcome | { code: string }> {
  let text = "";
  process.stdout?.setEncoding("utf8").on("data", (part) => {
    text += part;
  });
  const [code, signal] = await once(process, "close");
  must(text.includes("{"), `the process ended by ${signal ?? code} and printed ${text}`);
  return JSON.parse(text.slice(text.indexOf("{")));
}

const isClose = (one: readonly number[], other: readonly number[]) =>
  one.every((loss, at) => Math.abs(loss - (other[at] ?? 0)) < 0.05 * Math.abs(loss));

/** MiB of the first GPU that any process uses, by its driver. */
const usedMib = () =>
  Number(
    spawnSync(
      "nvidia-smi",
      ["--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
      {
        encoding: "utf8",
      },
    ).stdout,
  );

/** Has another process take all memory of the GPU but so many MiB while `work` is under way. */
async function withFree<Result>(mib: number, work: () => Promise<Result>): Promise<Result> {
  const program =
    "import torch; free, _ = torch.cuda.mem_get_info(); " +
    `kept = torch.empty(free - ${mib * MIB}, dtype=torch.uint8, device='cuda'); ` +
    "print('ready', flush=True); input()";
  const holder = spawn("python3", ["-c", program], { stdio: ["pipe", "pipe", "inherit"] });
  try {
    await Promise.race([once(holder.stdout, "data"), once(holder, "exit")]);
    return await work();
  } finally {
    holder.kill("SIGKILL");
    await once(holder, "close");
  }
}

async function outOfMemory() {
  return await withImages(setup, async (engine) => {
    await engine.trainEpoch({ epoch: 0, from: 0 }, () => {});
    const before = await fingerprint(engine, "model", names);
    // No device has memory for it: 3 TiB of pixels.
    const large = { batch: 4_096, imageSize: 8_192 };
    const { code } = await engine.probe(large).then(
      () => ({ code: "none" }),
      (error) => error,
    );
    const wanted = onGpu ? "gpu_out_of_memory" : "out_of_memory";
    must(code === wanted, `a step without memory rejected with ${code}, not ${wanted}`);
    must((await fingerprint(engine, "model", names)) === before, "the weights changed");
    const { images, losses } = await engine.trainEpoch({ epoch: 1, from: 0 }, () => {});
    must(images === sources.length && Number.isFinite(losses.total), "the next epoch failed");
    return `${wanted}, weights as before, the next epoch trains (loss ${losses.total.toFixed(2)})`;
  });
}

/**
 * Trains in processes of their own with less and less memory: each ends as it would have, without
 * recordings, or with `gpu_out_of_memory`.
 */
async function shortMemory(whole: Outcome) {
  const lines: string[] = [];
  const kinds = new Set<string>();
  for (const mib of [6_000, 3_200, 2_600, 2_000]) {
    const found = await withFree(mib, () => outcomeOf(child(3)));
    if ("code" in found) must(found.code === "gpu_out_of_memory", `${mib} MiB: ${found.code}`);
    else must(isClose(found.losses, whole.losses), `${mib} MiB: ${found.losses}`);
    kinds.add("code" in found ? "refused" : found.recorded > 0 ? "recorded" : "plain");
    lines.push(`${mib} MiB ${"code" in found ? found.code : `${found.recorded} recorded`}`);
  }
  return `${[...kinds].join(", ")} (${lines.join("; ")})`;
}

async function twoProcesses(whole: Outcome) {
  const all = await Promise.all([outcomeOf(child(3)), outcomeOf(child(3))]);
  for (const found of all) {
    must(!("code" in found), `a process failed: ${JSON.stringify(found)}`);
    must(isClose(found.losses, whole.losses), `${found.losses} beside ${whole.losses}`);
  }
  return "both train as one alone does";
}

async function interrupt() {
  return await withImages(setup, async (engine) => {
    const waits: number[] = [];
    let from = 0;
    for (let epoch = 0; epoch < 6; epoch++) {
      let asked = 0;
      const interruptSoon = () => {
        asked ||= performance.now();
        engine.interrupt();
      };
      const done = await engine.trainEpoch({ epoch, from: 0 }, interruptSoon);
      if (asked > 0) waits.push(performance.now() - asked);
      must(done.batch <= done.batches, "more batches than there are");
      ({ batch: from } = done);
      const rest = await engine.trainEpoch({ epoch, from }, () => {});
      must(rest.batch === rest.batches, "the rest of the epoch was not trained");
    }
    must(waits.length > 0, "no epoch reported");
    return `an epoch ends ${Math.max(...waits).toFixed(0)} ms after it at most, and goes on`;
  });
}

async function killed() {
  const before = onGpu ? usedMib() : 0;
  const victim = child(10_000);
  // On a GPU the libraries load and choose their algorithms first.
  await new Promise((resolve) => setTimeout(resolve, onGpu ? 8_000 : 2_000));
  const during = onGpu ? usedMib() : 0;
  victim.kill("SIGKILL");
  await once(victim, "close");
  if (!onGpu) return "a process was killed in the middle of its epochs";
  for (let tries = 0; tries < 50 && usedMib() > before + 64; tries++)
    await new Promise((resolve) => setTimeout(resolve, 100));
  must(during > before + 256, `it had not begun: ${before} and ${during} MiB`);
  must(usedMib() <= before + 64, `${usedMib()} MiB are in use, ${before} before`);
  return `its ${during - before} MiB are free again`;
}

const count = process.argv[2];
if (count) {
  const outcome = await epochs(Number(count)).catch((error) => ({
    code: error.code ?? `${error}`,
  }));
  process.stdout.write(`${JSON.stringify(outcome)}\n`);
} else {
  must(native, "the engine is not built");
  const found = await outcomeOf(child(3));
  must(!("code" in found), `three epochs failed: ${JSON.stringify(found)}`);
  await check("a step out of memory", outOfMemory);
  await check("two processes", () => twoProcesses(found));
  await check("an interrupt", interrupt);
  await check("a kill", killed);
  if (onGpu) await check("memory too short for recordings", () => shortMemory(found));
}
