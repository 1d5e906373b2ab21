// A training of `training-cell.ts` in a process of its own: an engine that faults costs one
// training, and its memory is free afterwards.

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { probeEngine } from "../../gpu-node/training/engine-probe.ts";
import { ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { execute } from "../peers/environments.ts";
import { CellResult, Figures, type Training } from "./training-cells.ts";

/** Exit code of a training's process that was asked to end: the training goes on another time. */
export const PUT_ASIDE = 75;

const JUDGE_MS_MAX = 300_000;

/** What a training's process is started with, as JSON. */
export interface CellOrder {
  cell: Training;
  key: string;
  name: string;
  /** What is kept of a training until it has its result. */
  folder: string;
  /** A Python with pycocotools. */
  python: string;
  /** Where the result goes. */
  result: string;
}

/** The result that a training left at a path, or null. */
export const resultAt = (path: string): CellResult | null =>
  existsSync(path) ? CellResult.parse(JSON.parse(readFileSync(path, "utf8"))) : null;

/** Trains to the end, or puts the training aside when it is told to stop. */
export async function runCell(order: CellOrder, stop: AbortSignal): Promise<CellResult | null> {
  const script = join(import.meta.dirname, "training-cell.ts");
  // It is no part of the test that may have started it.
  const { VITEST: _, ...environment } = process.env;
  const child = spawn(process.execPath, [script, JSON.stringify(order)], {
    // By the channel it hears when this process is gone.
    stdio: ["ignore", "inherit", "inherit", "ipc"],
    env: { ...environment, ...ENGINE_ENVIRONMENT },
  });
  const end = () => child.kill("SIGTERM");
  stop.addEventListener("abort", end);
  const code = await new Promise<number | null>((done) => child.once("close", done));
  stop.removeEventListener("abort", end);
  if (code !== 0 && code !== PUT_ASIDE && !stop.aborted)
    process.stderr.write(`${order.name} failed (${code}); what it did is kept\n`);
  return resultAt(order.result);
}

/** The engine here: its torch, and whether bf16 is likely to pay. */
export async function engineHere(): Promise<{ torch: string; bf16: boolean }> {
  const environment = { PATH: process.env.PATH ?? "", ...ENGINE_ENVIRONMENT };
  const described = await probeEngine(environment);
  if ("missing" in described) throw new Error(described.missing);
  const { torch, torchSource, cpuBf16 } = described.engine;
  // Debian's gains next to nothing by it.
  return { torch, bf16: cpuBf16 && torchSource === "wheel" };
}

/** pycocotools' figures of a list of detections. */
export async function cocoFigures(python: string, truth: string, found: string): Promise<Figures> {
  const script = join(import.meta.dirname, "../peers/training/coco_figures.py");
  const { code, output } = await execute([python, script, truth, found], { msMax: JUDGE_MS_MAX });
  const line = output.trim().split("\n").at(-1) ?? "";
  if (code !== 0) throw new Error(`pycocotools: ${line}`);
  return Figures.parse(JSON.parse(line));
}
